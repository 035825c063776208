"""What is recorded of a turn, and what a model is shown of earlier ones."""

from collections.abc import Iterable
from typing import Final

from agent_core.gateway.protocol import AssistantMessage, Message, UserMessage
from contracts.chat import Exchange, SkillCalled, TurnEvent

_NO_ANSWER: Final = "(no answer)"
_LINE_CHARS: Final = 200


def call_line(event: TurnEvent) -> str | None:
    """Return the line that is recorded of an event; None unless a skill call ended by it."""
    if not isinstance(event, SkillCalled) or event.state not in ("done", "failed"):
        return None
    where = f" on {event.device}" if event.device else ""
    return f"{event.path}{where}: {event.state}"[:_LINE_CHARS]


def storable(text: str) -> str:
    """Join surrogate pairs that arrived in two pieces; a lone half becomes U+FFFD, as none can be stored."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def messages_of(exchanges: Iterable[Exchange], *, reader: str | None) -> tuple[Message, ...]:
    """Return earlier exchanges as messages for a model, marked where they happened elsewhere.

    Args:
        reader: Id of the device on which the model is asked; None at the hub.
    """
    messages: list[Message] = []
    for exchange in exchanges:
        question = "\n".join(filter(None, (_mark(exchange, reader), exchange.question)))
        messages += [UserMessage(question), AssistantMessage(exchange.answer or _NO_ANSWER)]
    return tuple(messages)


def _mark(exchange: Exchange, reader: str | None) -> str:
    if exchange.mode == "offline" and exchange.device != reader:
        return f"[Asked and answered on {exchange.device}, offline]"
    if reader is not None and exchange.device != reader:
        return f"[Asked {f'on {exchange.device}' if exchange.device else 'elsewhere'}]"
    return ""
