"""A test of a model with a real request: whether it answers, how fast, and whether it calls tools."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Literal

from agent_core.gateway.fallback import RetryPolicy
from agent_core.gateway.opening import open_gateway
from agent_core.gateway.protocol import GatewayEvent, ModelRequest, TextPart, ToolCall, ToolSpec, UserMessage
from agent_core.models.entries import GatewayKind, Model, Models
from agent_core.models.ollama import NO_TOOLS_ADVICE
from agent_core.provenance import Prompt
from agent_core.tools.text_tools import printed_calls
from contracts.errors import GatewayError
from contracts.phrases import Phrase

ToolUse = Literal["calls", "prints", "none", "untried"]
"""How a model calls a tool: as it should, by writing the call into its text, or not at all."""

_NUMBER: Final = 7
_REPORT: Final = ToolSpec(
    "report_number",
    Prompt("Report a number."),
    {
        "type": "object",
        "properties": {"number": {"type": "integer", "description": "The number"}},
        "required": ["number"],
    },
)
_ASK_FOR_CALL: Final = ModelRequest(
    "You act by calling tools.",
    (UserMessage(Prompt(f"Report the number {_NUMBER} with the tool report_number.")),),
    (_REPORT,),
)
_ASK: Final = ModelRequest("You answer in one word.", (UserMessage(Prompt("Say: ready")),))
_ADVICE: Final[dict[ToolUse, str]] = {
    "calls": "",
    "prints": Phrase(
        "It writes tool calls into its text. That is understood, but fails more often: {advice}.",
        advice=Phrase(NO_TOOLS_ADVICE),
    ),
    "none": Phrase("It can talk, but not act: {advice}.", advice=Phrase(NO_TOOLS_ADVICE)),
    "untried": "",
}


TRY_S: Final = 60.0
"""How long the first word may take while a model is tried: one that was idle is loaded into memory first."""


@dataclass(frozen=True)
class Probe:
    """What came of trying a model.

    Attributes:
        problem: Why it gave no answer, in one line; empty if it answered.
        first_s: Seconds until the first piece of the answer.
        seconds: Seconds until its end.
    """

    problem: str = ""
    tools: ToolUse = "untried"
    first_s: float = 0.0
    seconds: float = 0.0

    @property
    def answers(self) -> bool:
        return not self.problem

    @property
    def serves(self) -> bool:
        # However it writes its calls: printed ones can be read, too.
        return self.answers and self.tools != "none"

    @property
    def advice(self) -> str:
        return _ADVICE[self.tools]


def with_loading_time(model: Model) -> Model:
    """Return a model that is to be tried, with time enough to load it first."""
    entry = model.entry
    patient = entry.model_copy(update={"first_token_s": max(TRY_S, entry.first_token_s)})
    return replace(model, entry=patient)


async def probe(model: Model, *, tools: bool = True, kind: GatewayKind = "tensorzero") -> Probe:
    """Ask a model something short.

    Args:
        tools: Whether to try a tool call, too; a model that refuses tools is asked again without.
    """
    async with open_gateway(Models((model,)), kind=kind, retry=RetryPolicy(retries=0)) as gateway:
        if not gateway.models.usable:
            return Probe(problem=Phrase.joined("; ", gateway.models.problems))
        started = time.monotonic()
        try:
            return await _try(gateway.stream(_ASK_FOR_CALL if tools else _ASK), tools=tools)
        except GatewayError as error:
            refused = error.message
        # One that let its time run out would do so again.
        if not tools or time.monotonic() - started >= model.entry.first_token_s:
            return Probe(problem=refused)
        try:
            plain = await _try(gateway.stream(_ASK), tools=False)
        except GatewayError:
            return Probe(problem=refused)
        return Probe(tools="none", first_s=plain.first_s, seconds=plain.seconds)


async def _try(answer: AsyncGenerator[GatewayEvent, None], *, tools: bool) -> Probe:
    started = time.monotonic()
    first: float | None = None
    texts: list[str] = []
    called = False
    async with aclosing(answer) as events:
        async for event in events:
            first = time.monotonic() - started if first is None else first
            match event:
                case TextPart(text):
                    texts.append(text)
                case ToolCall(name="report_number", arguments={"number": number}):
                    called = called or str(number) == str(_NUMBER)
    seconds = time.monotonic() - started
    use: ToolUse = "untried"
    if tools:
        printed = printed_calls("".join(texts), (_REPORT,), prefix="printed")
        use = "calls" if called else "prints" if printed is not None else "none"
    return Probe(tools=use, first_s=first or seconds, seconds=seconds)
