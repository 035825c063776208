"""The part of a conversation that fits into a request to a model."""

from collections.abc import Sequence
from typing import Final

from agent_core.gateway.protocol import AssistantMessage, Message, ToolMessage, UserMessage
from agent_core.limits import estimate_tokens
from agent_core.provenance import Prompt, render

_MESSAGE_TOKENS: Final = 4
"""Overhead of one message: its role and delimiters."""


def tokens_of(message: Message) -> int:
    """Estimate the tokens of a message."""
    match message:
        case UserMessage(text) | ToolMessage(_, _, text):
            size = estimate_tokens(text)
        case AssistantMessage(text, calls):
            size = estimate_tokens("".join((text, *(call.name + call.raw for call in calls))))
    return size + _MESSAGE_TOKENS


def trimmed(history: Sequence[Message], current: tuple[Message, ...], budget: int) -> tuple[Message, ...]:
    """Keep the newest exchanges that fit beside the current turn.

    Whole exchanges go, from one message of the user to the next, so that no tool result stands
    without its call. The current turn is never shortened.

    Args:
        current: The messages of the turn that runs.
        budget: Tokens, as ``tokens_of`` counts them.
    """
    left = budget - sum(map(tokens_of, current))
    kept: list[Message] = []
    for exchange in reversed(_exchanges(history)):
        left -= sum(map(tokens_of, exchange))
        if left < 0:
            break
        kept[:0] = exchange
    return (*kept, *current)


def without_calls(messages: Sequence[Message]) -> list[Message]:
    """Write tool calls and their results as text, for a request that offers no tools.

    Some providers refuse calls in a conversation where there is nothing to call.
    """
    made: list[Message] = []
    for message in messages:
        match message:
            case AssistantMessage(text, calls):
                lines = [text, *(Prompt(f"[You called {call.name} with {call.raw}]") for call in calls)]
                made.append(AssistantMessage(render(*filter(None, lines))))
            case ToolMessage(_, name, text):
                made.append(UserMessage(render(Prompt(f"[Result of {name}]"), text)))
            case _:
                made.append(message)
    return made


def _exchanges(history: Sequence[Message]) -> list[list[Message]]:
    exchanges: list[list[Message]] = []
    for message in history:
        if isinstance(message, UserMessage) or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges
