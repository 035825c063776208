"""The tools of an agent: called by its model by name, with the rights and the audit of skill calls."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from agent_core.gateway.protocol import ToolCall, ToolSpec
from agent_core.models.entries import read_variable
from agent_core.provenance import Origin, Prompt, Text, render
from agent_core.search.catalogue import Catalogue, SkillCall, Target
from agent_core.search.directory import HUB_KEY
from agent_core.skills.loading.exposure import LoadedMethod, expose
from agent_core.skills.running.runner import SkillRunner
from agent_core.tools.output import bounded, called_text, refused_text, value_text
from agent_core.tools.skill_calls import Consent, SkillCalls
from agent_core.tools.toolset import ToolOutcome, Toolset, failed
from agent_core.turn import TurnContext
from contracts.errors import CallError, ConfigError
from contracts.wire import Json
from hub_agent import limits
from hub_agent.agents.agent import load_function
from hub_agent.agents.built_in import BuiltInTools
from hub_agent.agents.files import AgentFiles
from hub_agent.agents.http_tools import http_method
from hub_agent.agents.profile import AgentProfile, HttpTool, PythonTool
from hub_agent.calls.device_manager import ActingCaller

_log = logging.getLogger(__name__)

_NO_ARGUMENTS: Final[dict[str, Json]] = {"type": "object", "properties": {}}


@dataclass(frozen=True)
class Tools:
    """The tools of one agent.

    Attributes:
        agent: Its name.
        methods: What can be called, by name.
        problems: Why the others cannot be.
        origins: Where the results of each come from, if not from the hub itself.
        runner: Runs them, with their time limits.
    """

    agent: str
    methods: Mapping[str, LoadedMethod]
    problems: Mapping[str, ConfigError]
    origins: Mapping[str, Origin]
    runner: SkillRunner

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as they are offered to a model."""
        usable = [
            ToolSpec(name, Prompt(method.contract.doc), method.contract.parameters)
            for name, method in self.methods.items()
        ]
        # A model that would not know of them would say that it never could.
        broken = [ToolSpec(name, Prompt("Cannot be used now."), _NO_ARGUMENTS) for name in self.problems]
        return (*usable, *broken)

    def target(self, name: str) -> Target:
        """Return what a tool is in events, questions and the audit."""
        # A name with a blank is that of no skill.
        skill = f"agent {self.agent}"
        method = self.methods[name].contract
        return Target(f"{self.agent}.{name}", HUB_KEY, "Hub", skill, method)


def open_tools(agent: str, profile: AgentProfile, *, home: Path, directory: Path) -> Tools:
    """Make the tools that the profile of an agent names. This imports Python files, so it blocks.

    Args:
        home: ``STRAWBERRY_HOME``.
        directory: Where the profiles are.

    Raises:
        FileProblem: If the directory of its files cannot be one.
    """
    skill, _ = expose(BuiltInTools(agent, AgentFiles.of(home, agent, profile)))
    methods: dict[str, LoadedMethod] = {}
    problems: dict[str, ConfigError] = {}
    origins = dict.fromkeys(("file_reader", "file_list"), Origin.FILE)
    for tool in profile.tools:
        match tool:
            case HttpTool():
                methods[tool.name] = http_method(tool, secret=partial(read_variable, home))
                origins[tool.name] = Origin.OUTSIDE
            case PythonTool():
                if tool.untrusted_output:
                    origins[tool.name] = Origin.OUTSIDE
                try:
                    methods[tool.name] = load_function(tool, directory)
                except ConfigError as error:
                    _log.warning(
                        "the tool %s of agent %s cannot be used: %s", tool.name, agent, error.message
                    )
                    problems[tool.name] = error
            case _:
                methods[tool] = skill.methods[tool]
    runner = SkillRunner([replace(skill, name=agent, methods=methods, concurrency=limits.CALLS_AT_ONCE)])
    return Tools(agent, methods, problems, origins, runner)


class AgentToolset:
    """The tools of an agent, beside those by which it calls skills, for one turn; see ``Toolset``.

    Args:
        caller: Has the rights of this turn.
        catalogue: The skills that it may call.
        beside: Calls skills; None where it may call none.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        caller: ActingCaller,
        catalogue: Catalogue,
        consent: Consent,
        beside: Toolset | None,
    ) -> None:
        self._tools = tools
        self._caller = _ToolCaller(tools, caller)
        self._catalogue = catalogue
        self._consent = consent
        self._beside = beside

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """See ``Toolset``."""
        beside = self._beside.specs if self._beside is not None else ()
        return (*self._tools.specs, *beside)

    async def run(self, call: ToolCall, context: TurnContext) -> ToolOutcome:
        """See ``Toolset``."""
        if (problem := self._tools.problems.get(call.name)) is not None:
            return failed(problem.message, problem.hint)
        if call.name not in self._tools.methods:
            known = ", ".join(self._tools.methods)
            if self._beside is not None:
                outcome = await self._beside.run(call, context)
                if outcome.ok or not known or call.name in {spec.name for spec in self._beside.specs}:
                    return outcome
                return replace(outcome, text=Prompt(f"{outcome.text} The agent's own tools are {known}."))
            return failed(f"there is no tool {call.name!r}", f"The tools are {known}.")
        target = self._tools.target(call.name)
        if call.arguments is None:
            return failed(
                f"the arguments are no JSON object: {call.raw[:200]}", f"It is {target.method.signature}."
            )
        calls = SkillCalls(self._catalogue, caller=self._caller, consent=self._consent, context=context)
        try:
            value = await calls.call(target, [], call.arguments)
        except CallError as error:
            return ToolOutcome(ok=False, text=refused_text(error))
        return ToolOutcome(ok=True, text=self._shown(call.name, value_text(value)))

    def _shown(self, name: str, text: str) -> Prompt:
        origin = self._tools.origins.get(name)
        if origin is Origin.FILE:
            return render(Text(origin, bounded(text), name))
        return called_text(name, text, untrusted=origin is Origin.OUTSIDE)


@dataclass(frozen=True)
class _ToolCaller:
    """Runs a tool where a skill would be called; see ``SkillCaller``."""

    tools: Tools
    caller: ActingCaller

    async def call(self, call: SkillCall) -> Json:
        """Run it, with the rights of the turn."""
        run = partial(self.tools.runner.run, self.tools.agent, call.target.method.name, (), call.arguments)
        return await self.caller.run(call, partial(run, confirmed=call.confirmed))
