"""The tools an agent has: what a toolset is, and the one with skills behind three tools."""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Final, Protocol

from agent_core import limits
from agent_core.gateway.protocol import ToolCall, ToolSpec
from agent_core.provenance import Prompt
from agent_core.search.catalogue import Catalogue
from agent_core.tools.output import (
    called_text,
    described_text,
    refused_text,
    run_text,
    search_text,
    value_text,
)
from agent_core.tools.skill_calls import Consent, SkillCaller, SkillCalls
from agent_core.turn import TurnContext
from contracts.errors import CallError, SandboxError
from contracts.tracing.trace import span
from contracts.wire import Json
from sandbox_host.limits import Deadline
from sandbox_host.result import RunResult


@dataclass(frozen=True)
class ToolOutcome:
    """What a tool gives back to the model."""

    ok: bool
    text: Prompt


class Toolset(Protocol):
    """Some tools and the way to run them."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that are offered next, in their order."""

    async def run(self, call: ToolCall, context: TurnContext) -> ToolOutcome:
        """Run one call.

        Unknown tools and arguments that do not fit give an outcome that is not ok; an expected
        failure is an outcome too and never an exception.
        """


class SandboxSession(Protocol):
    """Where ``python_exec`` runs: a session of ``sandbox_host.pool``."""

    async def run(
        self,
        code: str,
        call_handler: Callable[[str, list[Json], dict[str, Json]], Awaitable[Json]],
        *,
        deadline: Deadline | None = None,
    ) -> RunResult:
        """Run one program; see ``sandbox_host.pool.Session.run``."""


def _tool(name: str, says: str, argument: str, about: str, *, is_needed: bool = True) -> ToolSpec:
    """Return a tool that takes one text."""
    parameters: dict[str, Json] = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": about}},
        **({"required": [argument]} if is_needed else {}),
        "additionalProperties": False,
    }
    return ToolSpec(name, Prompt(says), parameters)


_FIND: Final = (
    "Find skills. Gives path, signature, summary, flags and devices of each, best match first. "
    "Words in any order; no query lists all."
)
_RUN: Final = (
    "Run Python in a sandbox where skills are callable by their paths. Gives what is printed and the "
    "value of the last expression. Variables stay for the next run."
)
_DESCRIBE: Final = "Show the full documentation of one skill method."
TOOL_SPECS: Final = (
    _tool("search_skills", _FIND, "query", "A few words for what to do", is_needed=False),
    _tool("describe_function", _DESCRIBE, "path", "As search_skills gives it"),
    _tool("python_exec", _RUN, "code", "Python source"),
)

_ALIASES: Final = {
    "get_function_info": "describe_function",
    "get_skill_info": "describe_function",
}
"""Names that other agents have for the same tools; models use them out of habit."""

_SAME_ARGUMENT: Final = {
    "describe_function": ("path", ("function_name", "skill_name", "name")),
    "search_skills": ("query", ("q", "text")),
    "python_exec": ("code", ("source", "python")),
}


@dataclass(eq=False)
class SkillToolset:
    """The three tools over the skills that one user has, for one turn.

    Attributes:
        catalogue: The skills, as this user sees them from the current device.
        caller: Calls them with the rights of this turn.
        session: The sandbox of the conversation.
        consent: Asks the person where a call needs a confirmation.
    """

    catalogue: Catalogue
    _: KW_ONLY
    caller: SkillCaller
    session: SandboxSession
    consent: Consent

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return TOOL_SPECS

    async def run(self, call: ToolCall, context: TurnContext) -> ToolOutcome:
        name = _ALIASES.get(call.name, call.name)
        spec = next((spec for spec in TOOL_SPECS if spec.name == name), None)
        if spec is None:
            known = ", ".join(spec.name for spec in TOOL_SPECS)
            return failed(
                f"there is no tool {call.name!r}", f"The tools are {known}. Skills are called in python_exec."
            )
        if call.arguments is None:
            return failed(f"the arguments are no JSON object: {call.raw[:200]}", f"Expected: {_shape(spec)}")
        arguments = _renamed(name, call.arguments)
        problem = _misfit(spec, arguments)
        if problem:
            return failed(problem, f"Expected: {_shape(spec)}")
        try:
            match name:
                case "search_skills":
                    query = arguments.get("query") or ""
                    page = await self.catalogue.search(query)
                    return ToolOutcome(ok=True, text=search_text(page, query, limits.SEARCH_BYTES))
                case "describe_function":
                    text = await self.catalogue.describe(arguments["path"])
                    return ToolOutcome(ok=True, text=described_text(text))
                case "python_exec":
                    return await self._exec(arguments["code"], context)
                case _:
                    return failed(f"the tool {name} cannot be run here")
        except CallError as error:
            return ToolOutcome(ok=False, text=refused_text(error))
        except SandboxError as error:
            return failed(error.message, error.hint)

    async def call(self, path: str, arguments: Mapping[str, Json], context: TurnContext) -> ToolOutcome:
        """Call one method of a skill by itself: as a program would, with the same questions and rights."""
        calls = self._calls(context)
        try:
            target = await self.catalogue.resolve(path)
            text = value_text(await calls.call(target, [], dict(arguments)))
        except CallError as error:
            return ToolOutcome(ok=False, text=refused_text(error))
        finally:
            self.consent.heard |= calls.answered
        return ToolOutcome(ok=True, text=called_text(path, text, untrusted=self.consent.untrusted))

    async def _exec(self, code: str, context: TurnContext) -> ToolOutcome:
        deadline = Deadline(limits.PROGRAM_S)

        def paused() -> AbstractContextManager[object]:
            both = ExitStack()
            both.enter_context(deadline.paused())
            both.enter_context(context.paused())
            return both

        with span("sandbox", "program") as at:
            calls = self._calls(TurnContext(context.turn, context.emit, paused), deadline.paused)
            result = await self.session.run(code, calls.handle, deadline=deadline)
            at.note(run_ms=round(result.seconds * 1000, 1), lost=result.lost or None)
            if not result.ok:
                last = result.traceback.strip().rpartition("\n")[2]
                at.failed(result.problem or last or result.status.value)
        # From here on, and not before: the program was written without them.
        self.consent.heard |= calls.answered
        text = run_text(result, untrusted=self.consent.untrusted)
        return ToolOutcome(ok=result.ok, text=text)

    def _calls(
        self, context: TurnContext, waiting: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> SkillCalls:
        return SkillCalls(
            self.catalogue, caller=self.caller, consent=self.consent, context=context, waiting=waiting
        )


def _renamed(name: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    own, others = _SAME_ARGUMENT[name]
    return {own if key in others and own not in arguments else key: value for key, value in arguments.items()}


def _misfit(spec: ToolSpec, arguments: Mapping[str, Json]) -> str:
    properties = spec.parameters["properties"]
    for key, value in arguments.items():
        if key not in properties:
            return f"{spec.name} has no argument {key!r}"
        if not isinstance(value, str) and not (
            value is None and key not in spec.parameters.get("required", ())
        ):
            return f"{key} must be a string"
    missing = [key for key in spec.parameters.get("required", ()) if key not in arguments]
    return f"{spec.name} needs {', '.join(missing)}" if missing else ""


def _shape(spec: ToolSpec) -> str:
    required = spec.parameters.get("required", ())
    names = [key if key in required else f"{key}?" for key in spec.parameters["properties"]]
    return json.dumps(dict.fromkeys(names, "string"))


def failed(message: str, hint: str = "") -> ToolOutcome:
    return ToolOutcome(ok=False, text=Prompt(f"Error: {message}" + (f"\nHint: {hint}" if hint else "")))
