"""Answers about what was said and done: turns, conversations, the audit."""

from typing import Any

from pydantic import ConfigDict, Field

from contracts.chat.messages import Mode, TurnOutcome, TurnRecord, TurnState
from contracts.names import Token
from contracts.tracing.trace import TurnSpan
from contracts.wire import Part, Phrased, PhraseText, Timestamp


class AuditEntry(Part):
    """A record as it is shown; see `hub_agent.calls.audit.CallRecord`."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: Timestamp
    user: str
    device: str
    skill: str
    method: str
    outcome: str
    actor: dict[str, str | bool | None]
    arguments: str
    call: str
    token: str
    token_name: str
    through: str | None
    confirmed_by: str | None


class AuditPage(Part):
    """Records, the newest first, and ``before`` which one the next page begins; None at the end."""

    entries: list[AuditEntry]
    before: int | None


class TurnCosts(Part):
    """What the models of a turn took, and how long each kind of span."""

    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    ms_by_kind: dict[Any, float] = {}


class TurnSummary(TurnCosts, Phrased):
    """A turn as it is in a list, without what people said who are not the one that asks."""

    turn: str
    conversation: str | None
    user: str
    agent: str
    device: str | None
    origin: str
    question: str | None
    at: Timestamp
    ended_at: Timestamp | None
    ms: int | None
    state: TurnState
    outcome: TurnOutcome | None
    problem: PhraseText
    reason: str
    replaced_by: str | None
    mode: Mode | None


class TurnShown(TurnSummary):
    """A turn with where its time went; ``spans`` is None where that is not known."""

    answer: str | None
    did: list[str]
    spans: list[TurnSpan] | None
    left_out: int


class TurnPage(Part):
    """Turns, newest first; ``next`` is None at the end."""

    turns: list[TurnSummary]
    next: str | None


class ConversationTurn(TurnRecord):
    """A turn within its conversation, which it does not name again."""

    conversation: Token = Field(default="", exclude=True)


class ConversationTitle(Part):
    """A conversation, and what a person called it."""

    id: str
    title: str | None


class Conversation(ConversationTitle):
    """A conversation with its turns, the oldest first."""

    exchanges: list[ConversationTurn]
