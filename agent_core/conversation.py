"""What is recorded of a turn, and what a model is shown of earlier ones: each with its origin."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from agent_core import limits
from agent_core.gateway.protocol import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agent_core.history import Summary
from agent_core.provenance import Origin, Prompt, Text, render
from agent_core.tools.skill_calls import Consent
from contracts.chat.messages import ChatFile, ChatRequest, Exchange, SkillCalled, TurnEvent

_NO_ANSWER: Final = "(no answer)"
_SHOWN_THEN: Final = "(a picture; it was shown with this message only)"
_GIVEN: Final = Prompt("(The user was given the answer that is marked as data above.)")


def call_line(event: TurnEvent) -> str | None:
    """Return the line that is recorded of an event; None unless a skill call ended by it."""
    if not isinstance(event, SkillCalled) or event.state not in ("done", "failed"):
        return None
    where = f" on {event.device}" if event.device else ""
    return f"{event.path}{where}: {'declined' if event.declined else event.state}"[: limits.LINE_CHARS]


def messages_of(exchanges: Iterable[Exchange], *, reader: str | None) -> tuple[Message, ...]:
    """Return earlier exchanges as messages for a model, each with its origin.

    What a skill answered, and what only a device or a client program says was said, is data in the user's
    role: in the assistant's it would stand as the model's own words.

    Args:
        reader: Id of the device on which the model is asked; None at the hub.
    """
    messages: list[Message] = []
    for exchange in exchanges:
        answer = exchange.answer or _NO_ANSWER
        question: tuple[Text | Prompt, ...]
        if is_hearsay(exchange, reader):
            said = f"The user asked: {exchange.question}\nThe answer was: {answer}"
            question, reply = (Text(Origin(exchange.origin), said, exchange.device or ""),), _GIVEN
        else:
            question = (
                *_mark(exchange, reader),
                *attached(exchange.files),
                Text(Origin.PERSON, exchange.question),
            )
            reply = render(Text(Origin.ASSISTANT, answer))
            if exchange.mode == "sentence" and exchange.answer:
                origin = Origin.OUTSIDE if exchange.untrusted else Origin.SKILL
                question, reply = (*question, Text(origin, answer)), _GIVEN
        messages += [UserMessage(render(*question)), AssistantMessage(reply)]
    return tuple(messages)


def attached(files: Iterable[ChatFile]) -> tuple[Text, ...]:
    return tuple(Text(Origin.OUTSIDE, each.text or _SHOWN_THEN, each.name) for each in files)


def client_tools(request: ChatRequest) -> tuple[ToolSpec, ...]:
    """Return the client's own tools as they are offered to a model."""
    return tuple(
        ToolSpec(
            tool.name,
            render(Text(Origin.OUTSIDE, tool.description)),
            tool.parameters or {"type": "object", "properties": {}},
        )
        for tool in request.tools
    )


def steps_of(request: ChatRequest) -> tuple[Message, ...]:
    """Return what a model did with the client's tools, as messages for it."""
    messages: list[Message] = []
    for step in request.steps:
        calls = (
            ToolCall(call.id, call.name, json.dumps(call.arguments), call.arguments) for call in step.calls
        )
        messages.append(AssistantMessage(render(Text(Origin.ASSISTANT, step.text)), tuple(calls)))
        messages += [
            ToolMessage(call.id, call.name, render(Text(Origin.OUTSIDE, call.result, call.name)))
            for call in step.calls
        ]
    return tuple(messages)


def take_in(
    consent: Consent,
    exchanges: Sequence[Exchange],
    *,
    reader: str | None,
    notes: str = "",
    summary: Summary | None = None,
) -> None:
    """Note what the model of a turn is shown of earlier exchanges.

    Args:
        reader: As for `messages_of`.
        notes: What the client program tells the model.
        summary: Of what came before.
    """
    if notes or (summary is not None and summary.untrusted) or is_untrusted(exchanges, reader):
        consent.untrusted = True
    if (summary is not None and summary.skilled) or is_skilled(exchanges):
        # Which device gave the answer is not recorded, so it counts as another one than any.
        consent.heard.add("")


def is_untrusted(exchanges: Iterable[Exchange], reader: str | None) -> bool:
    return any(each.untrusted or is_hearsay(each, reader) for each in exchanges)


def is_skilled(exchanges: Iterable[Exchange]) -> bool:
    # A sentence is answered with the result of a skill, not with a model's text.
    return any(each.mode == "sentence" for each in exchanges)


def notes_of(request: ChatRequest) -> Text | None:
    return Text(Origin.OUTSIDE, request.notes) if request.notes else None


def is_hearsay(exchange: Exchange, reader: str | None) -> bool:
    """Return whether an exchange is known only from another device or from a client program.

    Args:
        reader: As for `messages_of`.
    """
    return exchange.origin == "outside" or (exchange.origin == "device" and exchange.device != reader)


def _mark(exchange: Exchange, reader: str | None) -> tuple[Prompt, ...]:
    if reader is None or exchange.device == reader:
        return ()
    return (Prompt(f"[Asked {f'on {exchange.device}' if exchange.device else 'elsewhere'}]"),)
