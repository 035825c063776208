"""The agent's tables in the hub's database."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column, Index
from sqlmodel import Field

from hub_registry.storage.tables import Moment, PhraseColumn, Table


class TurnRow(Table, table=True):
    """A turn; see `contracts.chat.messages.TurnRecord`.

    Ids of turns and conversations are chosen by clients, so they are unique within one user only. A turn that
    was cancelled before it arrived, or that was deleted, has no conversation.

    Attributes:
        through: What the device or the login of the broker that asked is known by, where one did.
        origin: See `contracts.chat.messages.Exchange`.
        files: See `contracts.chat.messages.ChatFile`; the turn is ``untrusted`` where there are any.
        instance: The hub process that runs it; empty for a turn that a device pushed.
        outcome: See `contracts.chat.messages.TurnRecord`; likewise ``reason`` and ``replaced_by``.
    """

    __tablename__ = "turn"
    __table_args__ = (
        Index("ix_turn_conversation", "user", "conversation", "at"),
        Index("ix_turn_through", "user", "through", "conversation"),
        Index("ix_turn_at", "at"),
    )

    user: str = Field(primary_key=True)
    turn: str = Field(primary_key=True)
    conversation: str | None = None
    device: str | None = None
    through: str | None = None
    agent: str = ""
    question: str = ""
    answer: str | None = None
    mode: str | None = None
    # Each row gets a copy. With a factory, SQLModel would parse the signature of `list` for each row: 50 µs,
    # and names that fill Python's table of strings until it is twice as large.
    did: list[str] = Field(default=[], sa_column=Column(JSON, nullable=False))
    untrusted: bool = False
    origin: str = Field(default="person", sa_column_kwargs={"server_default": "person"})
    files: list[dict[str, str]] = Field(
        default=[], sa_column=Column(JSON, nullable=False, server_default="[]")
    )
    state: str
    instance: str
    at: datetime = Field(sa_type=Moment)
    ended_at: datetime | None = Field(default=None, sa_type=Moment)
    outcome: str | None = None
    problem: str = Field(default="", sa_type=PhraseColumn, sa_column_kwargs={"server_default": ""})
    reason: str = Field(default="", sa_column_kwargs={"server_default": ""})
    replaced_by: str | None = None


class TraceRow(Table, table=True):
    """Where the time of a turn went; a turn that ran elsewhere, or long ago, has no such row.

    Attributes:
        at: When the turn ended.
        model: Name of the ``[[models]]`` entry that answered last.
        cost: What the providers say; None where none does.
        ms: Milliseconds by kind of span; see `contracts.tracing.trace.own_ms`.
        left_out: Spans that were too many.
        spans: A list of `contracts.tracing.trace.TurnSpan` as JSON, zipped.
    """

    __tablename__ = "turn_trace"

    user: str = Field(primary_key=True)
    turn: str = Field(primary_key=True)
    at: datetime = Field(sa_type=Moment)
    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    ms: dict[str, float] = Field(sa_column=Column(JSON, nullable=False))
    left_out: int = 0
    spans: bytes


class ConversationRow(Table, table=True):
    """What a person said of a conversation; there are conversations without such a row."""

    __tablename__ = "conversation"

    user: str = Field(primary_key=True)
    conversation: str = Field(primary_key=True)
    title: str | None = None


class SummaryRow(Table, table=True):
    """What a model wrote of the beginning of a long conversation; see `agent_core.conversation.Summary`.

    Attributes:
        reader: Key of the device whose own turns are all that is in it; empty where all turns are.
        turn: The last turn that is in it.
        at: When that turn began.
    """

    __tablename__ = "conversation_summary"

    user: str = Field(primary_key=True)
    conversation: str = Field(primary_key=True)
    reader: str = Field(primary_key=True)
    text: str
    turn: str
    at: datetime = Field(sa_type=Moment)
    exchanges: int
    untrusted: bool
    skilled: bool


class HomeTopicRow(Table, table=True):
    """A topic that the hub has published retained on a broker beside the bus, and may have to empty."""

    __tablename__ = "home_topic"

    broker: str = Field(primary_key=True)
    topic: str = Field(primary_key=True)


class ExposureRow(Table, table=True):
    """What is shown to Home Assistant; see `hub_home_assistant.outward.exposures`.

    Attributes:
        path: A device's id, a skill of it or a member of that, with dots between them.
        shown: False for what is hidden although more than it is shown.
        user: Who decided it; calls are made on behalf of that person.
    """

    __tablename__ = "home_assistant_exposure"

    path: str = Field(primary_key=True)
    shown: bool
    user: str
    at: datetime = Field(sa_type=Moment)


class HeardRow(Table, table=True):
    """When a hub process last had a connection to a link, Unix seconds; see `hub_live.topics.feed`."""

    __tablename__ = "heard"

    instance: str = Field(primary_key=True)
    link: str = Field(primary_key=True)
    at: float


class EventRow(Table, table=True):
    """Something that happened, for one person; see `hub_live.events`.

    Attributes:
        id: Grows with each event of the home.
        subject: What it is about, for people: the name of a watcher, a capture or a device.
    """

    __tablename__ = "event"
    __table_args__ = (Index("ix_event_kept", "user", "kind", "id"),)

    id: int | None = Field(default=None, primary_key=True)
    user: str
    kind: str
    subject: str
    data: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    at: datetime = Field(sa_type=Moment)
