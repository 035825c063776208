"""An active watcher: what is known of it, and how people and programs read it."""

import math
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from agent_core.tools.skill_calls import shown_arguments
from contracts import topics
from contracts.phrases import Phrase
from contracts.rates import Backoff
from contracts.wire import Json, Part, Timestamp, shown_digest
from hub_live.topics import LinkName
from hub_live.watchers.decisions.evaluation import (
    DecisionEntry,
    DecisionSummary,
    calls_of,
    state_of,
)
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.definition import (
    LEAST_EVERY_S,
    Allowed,
    WatchedValue,
    sources_of,
    topics_json,
)
from hub_live.watchers.predicates import Evaluator, Verdict
from hub_live.watchers.predicates.firing import Firing
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.tables import DecisionRow, WatcherRow

_APPROVED: Final = {
    *("name", "owner", "created_at", "instruction", "topics", "every_s", "schedule", "missed"),
    *("predicate", "allow", "dry_run", "actions_per_hour"),
}
_DONE: Final = TypeAdapter(list[str])
_RECHECK_S: Final = 60.0
_LONGEST_RECHECK_S: Final = 900.0
"""While a predicate stays true and there is something left to do, the model is asked again about new values,
less and less often."""


@dataclass
class Watched:
    """A watcher that is active.

    Attributes:
        verdict: What the predicate last said.
        wake: When that can change without a new value.
        ask_at: When the model is asked next; None while it need not be.
        rises: How often the predicate became true since the model was asked: it is then asked also where the
            predicate is false again by that time, as a door that opened and closed.
        is_held_up: Whether the model is to be asked, and the evaluations of a minute are used up.
        ended: Whether the predicate was false while the model was asked.
        gaps: Times in which data was missed, as text, since the last evaluation.
        asked_with: The values of the last evaluation, which is not repeated on the same.
    """

    row: WatcherRow
    sources: Mapping[str, WatchedValue]
    evaluator: Evaluator | None
    schedule: Schedule | None
    firing: Firing = field(default_factory=Firing)
    follows: ExitStack = field(default_factory=ExitStack)
    heard: set[str] = field(default_factory=set)
    verdict: Verdict | None = None
    wake: float | None = None
    ask_at: float | None = None
    asked_at: float = -math.inf
    occasion: str = ""
    rises: int = 0
    has_new: bool = False
    evaluated: int = 0
    busy: bool = False
    is_held_up: bool = False
    ended: bool = False
    failures: int = 0
    gaps: deque[str] = field(default_factory=lambda: deque(maxlen=5))
    asked_with: Mapping[str, object] | None = None
    recheck: Backoff = field(default_factory=lambda: Backoff(_RECHECK_S, _LONGEST_RECHECK_S, jitter=0.0))

    @property
    def settled(self) -> bool:
        """Return whether all was done that can be before the predicate is false again."""
        did = {key.partition(" ")[0] for key in self.row.done}
        return bool(did) and did >= {call["path"] for call in self.row.allow}

    @property
    def due(self) -> float:
        """When something is to be done for it next, unless a value comes first."""
        if self.row.snoozed_until is not None:
            return self.row.snoozed_until.timestamp()
        times = [self.wake, None if self.busy else self.ask_at]
        times += [self.row.next_at.timestamp()] if self.schedule and self.row.next_at is not None else []
        return min((each for each in times if each is not None), default=math.inf)

    def count(self) -> None:
        """Add the evaluations to those of the row, which takes ten times as long as one of them."""
        if self.evaluated:
            self.row.evaluations, self.evaluated = self.row.evaluations + self.evaluated, 0

    @property
    def on_interval(self) -> bool:
        """Return whether the model evaluates it at its interval, also where nothing new was heard."""
        return self.evaluator is None and self.row.every_s is not None

    def pause_s(self) -> float:
        """Return how long the model is not asked again about new values."""
        return max(self.row.every_s or LEAST_EVERY_S, self.recheck.next() if self.evaluator else 0.0)


class WatchedTopic(TypedDict):
    """A value that a watcher sees; see `WatchedValue`."""

    topic: str
    value: NotRequired[str]
    link: LinkName


class WatcherSummary(Part):
    """A watcher as people and programs read it.

    Attributes:
        digest: Of all that an approval is for; to be sent with it.
    """

    name: str
    digest: str
    state: str
    owner: str
    instruction: str
    predicate: str | None
    note: str
    truth: bool | None
    reason: str
    topics: dict[str, WatchedTopic]
    every_s: float | None
    on_change: bool
    schedule: str | None
    next_at: Timestamp | None
    allow: list[Allowed]
    dry_run: bool
    snoozed_until: Timestamp | None
    fired: int
    evaluations: int
    model_calls: int
    tokens: int
    last: DecisionSummary | None


class WatcherWithHistory(WatcherSummary):
    """A watcher with its history, newest first."""

    history: list[DecisionEntry]


class CheckedPredicate(TypedDict):
    """What another predicate would be worth now; see `Watchers.check`."""

    predicate: str | None
    note: str
    latest: dict[str, Json]


def checked_row(row: WatcherRow) -> WatcherRow:
    """Return a row of which can be read what it sees, may do, has done and shows.

    Raises:
        ValueError: If it was altered; likewise an AttributeError, TypeError or InvalidTopic.
    """
    topics.WATCHER.build(user=row.owner, watcher=row.name)
    _DONE.validate_python(row.done), state_of(row, None), summary_of(row, None, None)
    return row


def checked_decision(row: DecisionRow) -> DecisionRow:
    """Return a decision that can be shown.

    Raises:
        ValueError: If it was altered.
    """
    DecisionEntry.model_validate(row)
    return row


def summary_of(
    row: WatcherRow, watched: Watched | None, last: DecisionRow | None, *, problem: str = ""
) -> WatcherSummary:
    """Return a watcher as people and programs read it.

    Args:
        watched: What the engine has of it, while it is active.
        last: Its last decision.
        problem: Why it sees no values.
    """
    verdict, reason = None, ""
    if watched is not None:
        verdict = watched.verdict
        silent = ", ".join(name for name in watched.sources if name not in watched.heard)
        reason = (
            verdict.reason
            if verdict
            else Phrase("there is no value of {name} yet", name=silent)
            if silent
            else ""
        )
        if watched.is_held_up:
            reason = "it waits to be evaluated: the evaluations of a minute are used up"
        watched.count()
    more = {
        "digest": digest_of(row),
        "note": row.note or problem,
        "truth": verdict.truth if verdict is not None else None,
        "reason": reason,
        "topics": topics_json(sources_of(row)),
        "on_change": row.every_s is None and row.schedule is None,
        "allow": calls_of(row),
        "last": last,
    }
    return WatcherSummary.model_validate({**row.model_dump(), **more})


def digest_of(row: WatcherRow) -> str:
    """Return the digest of all that a watcher is approved for."""
    return shown_digest(row.model_dump(mode="json", include=_APPROVED, warnings=False))


def calls_json(row: WatcherRow) -> list[Json]:
    """Return the approved calls of a watcher without their devices."""
    return [call.model_dump(exclude={"device"}) for call in calls_of(row)]


def values_json(seen: Mapping[str, Seen]) -> dict[str, Json]:
    """Return the latest values, cut to what a person reads."""
    return shown_arguments({name: each.value for name, each in seen.items() if each.age_s is not None})
