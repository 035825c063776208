"""Conversations as a person reads them: which there are, and what was said in one."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from pydantic import Field

from agent_core.conversation import ConversationSummary, Exchange
from contracts.errors import NotFound
from contracts.wire import Json, rfc3339

Limit = Annotated[int, Field(ge=1, le=1000)]
"""How many conversations, or exchanges of one, a request may ask for."""

CONVERSATIONS: Final = 20
"""How many are listed where the request does not say."""

EXCHANGES: Final = 100
"""How many of a conversation are shown where the request does not say: the last ones."""

_ASKED_CHARS: Final = 80


def conversation_list(known: Iterable[ConversationSummary]) -> list[Json]:
    """Give the answer to ``GET /api/conversations``."""
    return [{"id": each.id, "asked": _line(each.asked), "at": rfc3339(each.last)} for each in known]


def whole_conversation(conversation: str, exchanges: Sequence[Exchange]) -> dict[str, Json]:
    """Give the answer to ``GET /api/conversations/{id}``.

    Raises:
        NotFound: If nothing was said in it.
    """
    if not exchanges:
        raise NotFound(
            f"there is no conversation {conversation!r} here",
            hint="'strawberry history' lists those there are.",
        )
    return {"id": conversation, "exchanges": [_shown(exchange) for exchange in exchanges]}


def _shown(exchange: Exchange) -> Json:
    assert exchange.at is not None, "what is stored has its time"
    device: dict[str, Json] = {} if exchange.device is None else {"device": exchange.device}
    return {
        "question": exchange.question,
        # An empty one is what is written down where nobody could answer.
        "answer": exchange.answer or None,
        "at": rfc3339(exchange.at),
        "mode": exchange.mode,
        **device,
    }


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _ASKED_CHARS else f"{line[: _ASKED_CHARS - 1]}…"
