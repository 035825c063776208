"""The agent's loop: ask the model, run its tools, ask again, until it answers."""

import json
import re
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    FellBack,
    Gateway,
    Message,
    ModelRequest,
    Offer,
    Remark,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agent_core.history import NOTHING, Beginning, trimmed, without_calls
from agent_core.limits import SAME_FAILURES
from agent_core.models.entries import ToolMode
from agent_core.provenance import EMPTY, Origin, Prompt, Text, render
from agent_core.tools.native import NativeMode
from agent_core.tools.text_tools import Screen, printed_calls
from agent_core.tools.toolset import ToolOutcome, Toolset, failed
from agent_core.turn import Emit, TurnContext, TurnLimits
from contracts.chat.messages import (
    ChatImage,
    ClientCall,
    Mode,
    Notice,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnError,
    TurnEvent,
    TurnFinal,
)
from contracts.errors import GatewayError, NoModel
from contracts.phrases import Phrase
from contracts.tracing.trace import span
from sandbox_host.limits import Deadline

_PARAGRAPH: Final = "\n\n"

_LAST_WORD: Final = (
    "[This is not from the user: {reason}, and no more tools can be used. Tell the user briefly what was "
    "done, what was found and what is still open. Never say that something was done when it was not.]"
)
"""Asks for an honest end where a turn may go no further."""


@dataclass(frozen=True)
class TurnRequest:
    """One message of a person.

    Attributes:
        turn: Id of the turn.
        system: The system prompt; the same from turn to turn.
        history: Earlier messages of the conversation.
        beginning: What came before those.
        context: What changes from turn to turn; goes before the message, in the user's role.
        device: Id of the current device.
        client_tools: Tools that the client runs. The model gets them in place of the toolset, and the turn
            ends where it calls one.
        steps: What it did with them already.
        attached: Texts that came with the message.
        images: Pictures likewise.
    """

    turn: str
    message: str
    system: str
    history: tuple[Message, ...] = ()
    beginning: Beginning = NOTHING
    context: Prompt = EMPTY
    device: str | None = None
    mode: Mode = "online"
    client_tools: tuple[ToolSpec, ...] = ()
    steps: tuple[Message, ...] = ()
    attached: tuple[Text, ...] = ()
    images: tuple[ChatImage, ...] = ()


async def run_turn(
    request: TurnRequest,
    *,
    gateway: Gateway,
    toolset: Toolset | None,
    emit: Emit,
    native: NativeMode | None = None,
    limits: TurnLimits | None = None,
) -> None:
    """Run one turn and emit what happens, in the order in which it happens.

    The last event is exactly one ``TurnFinal`` or ``TurnError``, unless the turn is cancelled: that ends the
    model's answer, the program and the skill that run.

    Args:
        toolset: None for a turn in which nothing may be executed.
        native: None where all models act alike; only with a ``toolset``.
    """
    await _Turn(request, gateway, toolset, native, limits=limits or TurnLimits(), emit=emit).run()


@dataclass(frozen=True)
class _Answer:
    """One whole answer of a model."""

    message: AssistantMessage
    calls: tuple[ToolCall, ...]
    completed: Completed


class _LimitReached(Exception):
    """The turn must stop here; the text says why."""


class _ToolsUsedUp(_LimitReached):
    """No more tools; the model may still say how far it came."""


class _Turn:
    def __init__(
        self,
        request: TurnRequest,
        gateway: Gateway,
        toolset: Toolset | None,
        native: NativeMode | None,
        *,
        limits: TurnLimits,
        emit: Emit,
    ) -> None:
        self._request = request
        self._gateway = gateway
        # What could be called in place of the client's tools would not be known when the client goes on.
        self._toolset = toolset = toolset if not request.client_tools else None
        self._native = native if toolset is not None else None
        self._for_client: tuple[ClientCall, ...] = ()
        self._tool_mode: ToolMode = "code"
        self._limits = limits
        self._emit = emit
        self._shown: list[str] = []
        self._notices: set[str] = set()
        self._failures: dict[tuple[str, str], int] = {}
        self._tokens = [0, 0]
        self._model: str | None = None
        self._deadline = Deadline(limits.seconds)

    async def run(self) -> None:
        """Run to the end; the last thing emitted is the final event."""
        try:
            async with self._deadline.enforced():
                await self._converse()
            end: TurnEvent = self._final()
        except TimeoutError:
            end = _limit(f"the turn was stopped after {self._limits.seconds:g} seconds")
        except _LimitReached as reached:
            end = _limit(str(reached))
        except NoModel as error:
            end = TurnError(code="no_model", message=error.message, hint=error.hint)
        except GatewayError as error:
            end = TurnError(code="model_failed", message=error.message, hint=error.hint)
        self._emit(end)

    async def _converse(self) -> None:
        request = self._request
        context = (request.context, EMPTY) if request.context else ()
        said = (*context, *request.attached, Text(Origin.PERSON, request.message))
        question = UserMessage(render(*said), request.images)
        messages: list[Message] = [question, *request.steps]
        try:
            await self._work(messages)
        except _ToolsUsedUp as reached:
            await self._sum_up(messages, str(reached))

    async def _work(self, messages: list[Message]) -> None:
        """Ask, run the tools, and ask again; adds all that was said to the messages."""
        for iteration in range(self._limits.iterations):
            answer = await self._ask(messages, iteration, with_tools=True)
            if not answer.calls:
                if answer.completed.stop == "length":
                    self._notice("The answer was cut at the model's limit of length.")
                return
            if self._leave_to_client(answer.calls):
                return
            messages.append(answer.message)
            for call in answer.calls:
                messages.append(await self._run_tool(call))  # noqa: PERF401  each needs the one before
            if sum(self._tokens) >= self._limits.tokens:
                raise _LimitReached(
                    Phrase("the turn was stopped after {limit} tokens", limit=sum(self._tokens))
                )
        raise _ToolsUsedUp(
            Phrase("the turn was stopped after {limit}", limit=_steps(self._limits.iterations))
        )

    def _leave_to_client(self, calls: tuple[ToolCall, ...]) -> bool:
        """Keep the calls of the client's tools for the last event; return whether there are any."""
        names = {tool.name for tool in self._request.client_tools}
        self._for_client = tuple(
            ClientCall(id=call.id, name=call.name, arguments=call.arguments)
            for call in calls
            if call.name in names and call.arguments is not None
        )
        return bool(self._for_client)

    async def _sum_up(self, messages: list[Message], reason: str) -> None:
        """Ask the model for a summary; end the turn as stopped where it gives none."""
        shown = len(self._shown)
        question = UserMessage(Prompt(_LAST_WORD.format(reason=reason)))
        try:
            await self._ask([*without_calls(messages), question], self._limits.iterations, with_tools=False)
        except GatewayError as error:
            raise _LimitReached(Phrase.joined("; ", [reason, error.message])) from error
        if len(self._shown) == shown:
            raise _LimitReached(reason)
        self._notice(
            Phrase("{reason}. Ask again to continue from here.", reason=Phrase(reason).capitalized())
        )

    async def _ask(self, messages: list[Message], iteration: int, *, with_tools: bool) -> _Answer:
        """Ask once, show the text as it comes, and give the whole answer."""
        history, beginning = self._request.history, self._request.beginning
        kept, cut = trimmed(history, tuple(messages), self._limits.context_tokens, beginning=beginning)
        if cut := cut + beginning.left_out:
            self._notice(
                Phrase("The model does not see {cut} earlier exchanges of this long conversation.", cut=cut)
            )
        elif beginning.more:
            self._notice("The model does not see the beginning of this long conversation.")
        request = self._question(kept)
        screen, texts, calls = Screen(request.all_tools), list[str](), list[ToolCall]()
        fresh_answer, completed = bool(self._shown), None
        asked = request if with_tools else request.without_tools()
        async with aclosing(self._gateway.stream(asked)) as events:
            async for event in events:
                match event:
                    case TextPart(text):
                        texts.append(text)
                        for piece in screen.feed(text):
                            fresh_answer = self._show(piece, new_paragraph=fresh_answer)
                    case ToolCall():
                        calls.append(event)
                    case FellBack(model, reasons):
                        self._notice(
                            Phrase(
                                "{reasons}; {model} answers instead.",
                                reasons=Phrase.joined("; ", reasons),
                                model=model,
                            )
                        )
                    case Remark(remark):
                        self._notice(remark)
                    case Completed():
                        completed = event
        assert completed is not None, "a gateway ends with Completed or an error"
        self._model, self._tool_mode = completed.model, completed.tool_mode
        self._tokens[0] += completed.input_tokens
        self._tokens[1] += completed.output_tokens
        text = "".join(texts)
        printed = (
            printed_calls(text, request.for_mode(completed.tool_mode).tools, prefix=f"printed_{iteration}")
            if not calls
            else None
        )
        if printed is not None:
            spoken = render(Text(Origin.ASSISTANT, printed.text))
            return _Answer(AssistantMessage(spoken, printed.calls), printed.calls, completed)
        self._show(screen.rest(), new_paragraph=fresh_answer)
        made = _with_own_ids(calls, iteration)
        spoken = render(Text(Origin.ASSISTANT, text))
        return _Answer(AssistantMessage(spoken, tuple(map(_acceptable, made))), made, completed)

    def _question(self, messages: tuple[Message, ...]) -> ModelRequest:
        """Make a question with the tools as they are now, for models of both modes."""
        tools = self._toolset.specs if self._toolset is not None else self._request.client_tools
        native = None
        if self._native is not None:
            native = Offer(self._native.system, self._native.toolset.specs)
        return ModelRequest(self._request.system, messages, tools, native=native)

    def _show(self, text: str, *, new_paragraph: bool) -> bool:
        """Show a piece of text; return whether the next one still begins a paragraph."""
        if new_paragraph:
            text = text.lstrip()
        if not text:
            return new_paragraph
        if new_paragraph:
            newlines = len(self._shown[-1]) - len(self._shown[-1].rstrip("\n"))
            text = _PARAGRAPH[newlines:] + text
        self._shown.append(text)
        self._emit(TextDelta(text=text))
        return False

    def _notice(self, text: str) -> None:
        if text not in self._notices:
            self._notices.add(text)
            self._emit(Notice(text=text))

    async def _run_tool(self, call: ToolCall) -> ToolMessage:
        if self._failures.get((call.name, call.raw), 0) > SAME_FAILURES:
            raise _ToolsUsedUp("the model repeats a call that fails")
        self._emit(
            ToolCalled(
                id=call.id, name=call.name, arguments=call.raw if call.arguments is None else call.arguments
            )
        )
        with span("tool", call.name) as at:
            at.note(arguments=call.raw if call.arguments is None else call.arguments)
            outcome = await self._outcome(call)
            at.note(result=outcome.text)
            if not outcome.ok:
                at.failed()
        self._emit(ToolReturned(id=call.id, name=call.name, ok=outcome.ok, output=outcome.text))
        return ToolMessage(call.id, _acceptable(call).name, outcome.text)

    async def _outcome(self, call: ToolCall) -> ToolOutcome:
        toolset = self._toolset
        if self._tool_mode == "native" and self._native is not None:
            toolset = self._native.toolset
        if toolset is None:
            # None were offered; a model that calls one all the same must not make anything happen.
            if tools := ", ".join(tool.name for tool in self._request.client_tools):
                return failed(
                    f"there is no tool {call.name!r} with these arguments", f"The tools are {tools}."
                )
            return failed("nothing can be executed in this turn. Answer without tools.")
        key = (call.name, call.raw)
        failures = self._failures.get(key, 0)
        if failures == SAME_FAILURES:
            self._failures[key] = failures + 1
            return failed(
                f"this very call has failed {failures} times and was not run again.",
                "Do something else, or tell the user what does not work.",
            )
        context = TurnContext(self._request.turn, self._emit, self._deadline.paused)
        outcome = await toolset.run(call, context)
        if outcome.ok:
            self._failures.clear()
        else:
            self._failures[key] = failures + 1
        return outcome

    def _final(self) -> TurnFinal:
        return TurnFinal(
            answer="".join(self._shown),
            mode=self._request.mode,
            model=self._model,
            device=self._request.device,
            input_tokens=self._tokens[0],
            output_tokens=self._tokens[1],
            calls=self._for_client,
        )


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


def _limit(message: str) -> TurnError:
    return TurnError(code="limit", message=message, hint="Ask again to continue from here.")


def _with_own_ids(calls: list[ToolCall], iteration: int) -> tuple[ToolCall, ...]:
    """Make the ids of calls unique in the turn; some models restart numbering in each answer."""
    return tuple(
        replace(call, id=re.sub(r"[^A-Za-z0-9_-]", "_", f"t{iteration}_{number}_{call.id}")[:40])
        for number, call in enumerate(calls)
    )


def _acceptable(call: ToolCall) -> ToolCall:
    """Make a call that goes back to the model acceptable to its server.

    Models invent names, and write arguments that are no JSON; servers refuse to see them again.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unnamed"
    raw = call.raw or "{}" if call.arguments is not None else json.dumps({"malformed": call.raw})
    return replace(call, name=name, raw=raw)
