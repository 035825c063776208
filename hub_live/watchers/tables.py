"""The tables of watchers, their decisions and timers."""

from datetime import datetime

from sqlalchemy import JSON, Column, Index
from sqlmodel import Field

from contracts.wire import Json
from hub_registry.storage.tables import Moment, PhraseColumn, Table


class WatcherRow(Table, table=True):
    """A watcher as its owner made it, and how far it has come.

    Attributes:
        title: Its name as it was typed; ``name`` is its id.
        instance: The hub process that evaluates it; others that share the database leave it alone.
        state: ``draft``, ``active``, ``paused`` or ``failed``.
        topics: By name in the predicate: topic, value and link; see `definition.WatchedValue`.
        allow: Approved calls; see `approved.ApprovedCall`.
        then: What it does without a model; see `definition.Step`. Its calls are those of `allow`, in order.
        step: Index of the step that waits.
        step_at: When that is due.
        note: Why there is no predicate, or what else the owner should know.
        missed: What happens to scheduled evaluations that the hub missed: ``run`` or ``tell``.
        approved_by: ``jti`` of the token with which the calls were approved.
        approver: Id of the person who did that.
        approved_through: Id of the device that this token was of; None for a person's own.
        armed: Whether it fires when its predicate is true next: that was false since it last fired.
        pending: For what a momentary predicate fired and nothing is decided yet; a crash does not lose it.
        done: What was done since the predicate was last false; none of it is done again before that.
        next_at: When a schedule comes next.
    """

    __tablename__ = "watcher"

    name: str = Field(primary_key=True)
    title: str = ""
    instance: str
    owner: str
    created_at: datetime = Field(sa_type=Moment)
    state: str = "draft"
    instruction: str
    topics: dict[str, Json] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    every_s: float | None = None
    schedule: str | None = None
    missed: str = "tell"
    predicate: str | None = None
    note: str = Field(default="", sa_type=PhraseColumn)
    allow: list[Json] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    then: list[Json] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    step: int | None = None
    step_at: datetime | None = Field(default=None, sa_type=Moment)
    approved_by: str | None = None
    approver: str | None = None
    approved_through: str | None = None
    dry_run: bool = False
    snoozed_until: datetime | None = Field(default=None, sa_type=Moment)
    actions_per_hour: int | None = None
    armed: bool = True
    pending: str = Field(default="", sa_type=PhraseColumn)
    done: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    fired: int = 0
    evaluations: int = 0
    model_calls: int = 0
    tokens: int = 0
    next_at: datetime | None = Field(default=None, sa_type=Moment)

    @property
    def display_name(self) -> str:
        return self.title or self.name


class DecisionRow(Table, table=True):
    """One entry in the history of a watcher: what it saw, decided and did, and what that cost.

    Attributes:
        state: ``acting`` from before the first action until after the last; ``interrupted`` where the hub
            stopped meanwhile; else ``done``.
        decision: ``nothing``, ``notify`` or ``act``; ``failed`` where the model gave none, and ``gap`` where
            data was missed.
        seen: Values by name.
        actions: Path, arguments and outcome of each call.
        tokens: Of the model, question and answer together.
    """

    __tablename__ = "watcher_decision"
    __table_args__ = (Index("ix_watcher_decision", "watcher", "id"),)

    id: int | None = Field(default=None, primary_key=True)
    watcher: str
    at: datetime = Field(sa_type=Moment)
    state: str = "done"
    decision: str
    reason: str = Field(default="", sa_type=PhraseColumn)
    seen: dict[str, Json] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    actions: list[Json] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    tokens: int = 0
    dry_run: bool = False


class TimerRow(Table, table=True):
    """A timer or a reminder.

    Attributes:
        instance: The hub process that keeps it.
        schedule: When it comes again; None where it comes once.
        missed: ``run``: one that ended while the hub was stopped ends when the hub starts. ``tell``: it is
            only reported as missed.
        call: What it calls at its end; see `timers.LaterCall`.
        left_s: Seconds left of one that is paused.
    """

    __tablename__ = "timer"

    id: str = Field(primary_key=True)
    instance: str
    owner: str
    text: str
    due: datetime = Field(sa_type=Moment)
    schedule: str | None = None
    missed: str = "run"
    call: dict[str, Json] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    left_s: float | None = None
