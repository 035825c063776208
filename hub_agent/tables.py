"""The agent's tables in the hub's database."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Column, Index
from sqlmodel import Field

from hub_registry.storage.tables import Moment, Table


class TurnRow(Table, table=True):
    """One turn: whether it may run, and how it ended. What was said in it stands in the history.

    Ids of turns and conversations are chosen by clients, so they count within one user only.
    ``instance`` is the hub process that runs it.
    """

    __tablename__ = "turn"

    user: str = Field(primary_key=True)
    id: str = Field(primary_key=True)
    conversation: str | None = None
    instance: str
    device: str | None = None
    state: str
    started_at: datetime = Field(sa_type=Moment)
    ended_at: datetime | None = Field(default=None, sa_type=Moment)


class EntryRow(Table, table=True):
    """Something that was said; see ``contracts.history.Entry``. Rows are added, never changed."""

    __tablename__ = "history_entry"
    __table_args__ = (Index("ix_history_entry_conversation", "user", "conversation", "at"),)

    user: str = Field(primary_key=True)
    origin: str = Field(primary_key=True)
    seq: int = Field(primary_key=True, sa_type=BigInteger)
    conversation: str
    turn: str
    at: datetime = Field(sa_type=Moment)
    kind: str
    text: str
    agent: str = ""
    device: str | None = None
    mode: str | None = None
    did: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    untrusted: bool = False
    complete: bool = True


class PartRow(Table, table=True):
    """A device that has taken part in a conversation, and so has all of it."""

    __tablename__ = "history_part"

    user: str = Field(primary_key=True)
    conversation: str = Field(primary_key=True)
    device: str = Field(primary_key=True)


class FeedRow(Table, table=True):
    """An entry that is meant for a device, at its place in the list that this device follows.

    ``number`` counts from 1 for each device, without gaps.
    """

    __tablename__ = "history_feed"

    device: str = Field(primary_key=True)
    number: int = Field(primary_key=True, sa_type=BigInteger)
    user: str
    origin: str
    seq: int = Field(sa_type=BigInteger)


class HomeTopicRow(Table, table=True):
    """A topic that the hub has published retained on a broker beside the bus, and may have to empty."""

    __tablename__ = "home_topic"

    broker: str = Field(primary_key=True)
    topic: str = Field(primary_key=True)
