"""The agent's tables; they live in the hub's database, with migrations of their own."""

from datetime import datetime
from typing import Literal

from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from hub_registry.tables import Moment

TurnState = Literal["not_started", "running", "finished", "cancelled"]
"""``not_started`` is a tombstone: the turn was cancelled before it came, and will never run."""


class Table(SQLModel, registry=registry()):
    """The base of these tables: with a registry of its own, apart from that of the accounts."""


class TurnRow(Table, table=True):
    """One turn of a conversation: what was asked, and what was answered.

    Ids of turns and conversations are chosen by clients, so they count within one user only.
    ``instance`` is the hub process that runs it. ``untrusted`` says that text from outside the home
    came into it.
    """

    __tablename__ = "turn"

    user: str = Field(primary_key=True)
    id: str = Field(primary_key=True)
    position: int = Field(index=True)
    conversation: str | None = None
    instance: str
    device: str | None = None
    state: str
    question: str = ""
    answer: str | None = None
    mode: str | None = None
    untrusted: bool = False
    started_at: datetime = Field(sa_type=Moment)
    ended_at: datetime | None = Field(default=None, sa_type=Moment)


class HomeTopicRow(Table, table=True):
    """A topic that the hub has published retained on a broker beside the bus, and may have to empty."""

    __tablename__ = "home_topic"

    broker: str = Field(primary_key=True)
    topic: str = Field(primary_key=True)
