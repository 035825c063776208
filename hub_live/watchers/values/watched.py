"""An active watcher: what is known of it, and how people and programs read it."""

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter

from agent_core.tools.skill_calls import shown_arguments
from contracts import topics
from contracts.answers.watchers import (
    DecisionEntry,
    DecisionSummary,
    WatchedTopic,
    WatcherSummary,
)
from contracts.phrases import Phrase
from contracts.rates import Backoff
from contracts.wire import Json, shown_digest
from hub_live import limits
from hub_live.watchers.decisions.announcer import state_of
from hub_live.watchers.decisions.evaluation import calls_of
from hub_live.watchers.decisions.kinds import FAILED
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.decisions.steps import steps_of
from hub_live.watchers.decisions.trace import HELD_UP, RAN_OFTEN
from hub_live.watchers.definition import CheckedStep, WatchedValue, sources_of
from hub_live.watchers.phases import TRANSITIONS, Phase, Trigger
from hub_live.watchers.predicates import Evaluator, Verdict
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.tables import DecisionRow, WatcherRow

_APPROVED: Final = {
    *("name", "owner", "created_at", "instruction", "topics", "every_s", "schedule", "missed"),
    *("predicate", "allow", "then", "dry_run", "actions_per_hour"),
}
_DONE: Final = TypeAdapter(list[str])


@dataclass
class Watched:
    """A watcher that is active or snoozed; see `phases` for what it goes through.

    Attributes:
        heard: Names that have had a value.
        verdict: What the predicate last said.
        phase: One of those of an active watcher.
        ask_at: When the model is asked next, Unix seconds; infinite while it need not be.
        occasion: Why it is asked.
        asked_at: When it was asked last.
        since: When it began to be followed.
        rises: How often the predicate became true since the model was asked: it is then asked also where the
            predicate is false again by that time, as a door that opened and closed.
        has_new: Whether a value came since the model was asked.
        last: The newest decision.
        asks: By name, when its method is asked next; infinite while it is asked.
    """

    row: WatcherRow
    sources: Mapping[str, WatchedValue]
    evaluator: Evaluator | None
    schedule: Schedule | None
    last: DecisionRow | None = None
    follows: ExitStack = field(default_factory=ExitStack)
    asks: dict[str, float] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)
    verdict: Verdict | None = None
    phase: Phase = Phase.QUIET
    ask_at: float = math.inf
    occasion: str = ""
    asked_at: float = -math.inf
    since: float = field(default_factory=time.time)
    rises: int = 0
    has_new: bool = False
    recheck: Backoff = field(
        default_factory=lambda: Backoff(limits.RECHECK_S, limits.LONGEST_RECHECK_S, jitter=0.0)
    )

    def move(self, trigger: Trigger) -> None:
        """Change the phase as the table says."""
        self.phase = TRANSITIONS[trigger].get(self.phase, self.phase)

    def plan(self, at: float, *, occasion: str) -> None:
        """Have the model asked at a time, or earlier where that is planned; while it is asked, after that."""
        self.occasion = occasion
        if self.phase is not Phase.HELD_UP:
            self.ask_at = min(at, self.ask_at)
            self.move("plan")

    def drop(self) -> None:
        """Have the model not asked."""
        self.ask_at = math.inf
        self.move("drop")

    def hold(self, until: float) -> None:
        """Have the model asked later: the evaluations of a minute are used up."""
        self.ask_at = until
        self.move("hold")

    def ask(self) -> None:
        """Note that the model is asked."""
        self.ask_at, self.has_new = math.inf, False
        self.move("ask")

    def decide(self, rises: int) -> None:
        """Note that the model was asked about so many times that the predicate became true."""
        self.rises -= rises
        self.move("decide")
        if self.ask_at < math.inf:
            self.move("plan")

    @property
    def is_over(self) -> bool:
        """Whether what the model was asked about last has ended."""
        verdict = self.verdict
        is_false = verdict is not None and (verdict.truth is False or verdict.momentary)
        return is_false or self.phase is Phase.OVERTAKEN

    @property
    def has_failed(self) -> bool:
        """Whether no model could decide when it was last asked."""
        return self.last is not None and self.last.decision == FAILED.name

    @property
    def is_settled(self) -> bool:
        """Whether all was done that can be before the predicate is false again."""
        did = {key.partition(" ")[0] for key in self.row.done}
        return bool(did) and did >= {call["path"] for call in self.row.allow}

    @property
    def on_interval(self) -> bool:
        """Whether the model evaluates it at its interval, also where nothing new was heard."""
        return self.evaluator is None and self.row.every_s is not None

    @property
    def on_change(self) -> bool:
        """Whether the model evaluates it when its values are others than those it decided on last."""
        return self.evaluator is None and self.row.every_s is None and self.schedule is None

    def drop_step(self) -> bool:
        """Drop the step that waits if it is done only while the predicate is true; return whether it is."""
        row = self.row
        if row.step is None or not CheckedStep.model_validate(row.then[row.step]).if_still:
            return False
        row.step = row.step_at = None
        return True

    def is_step_due(self, now: float) -> bool:
        """Return whether the step that waits is to be done now."""
        row, verdict = self.row, self.verdict
        # In another phase it begins from its first step again.
        if row.step_at is None or row.step_at.timestamp() > now or self.phase is not Phase.QUIET:
            return False
        is_known = self.evaluator is None or (verdict is not None and verdict.truth is not None)
        # After a restart its values come first: they may say that it is over.
        return is_known or now >= self.since + limits.RETAINED_S

    def pause_s(self) -> float:
        """Return how long the model is not asked again about new values."""
        return max(self.row.every_s or limits.LEAST_EVERY_S, self.recheck.next() if self.evaluator else 0.0)


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
    row: WatcherRow,
    watched: Watched | None,
    last: DecisionRow | None,
    *,
    problem: str = "",
    sentence: str = "",
) -> WatcherSummary:
    """Return a watcher as people and programs read it.

    Args:
        watched: What the engine has of it, while it is active.
        last: Its last decision.
        problem: Why it sees no values.
        sentence: What it does, in words.
    """
    verdict, reason = None, ""
    if watched is not None:
        verdict = watched.verdict
        silent = ", ".join(name for name in watched.sources if name not in watched.heard)
        if verdict is not None:
            reason = verdict.reason
        elif silent:
            reason = Phrase("there is no value of {name} yet", name=silent)
        if watched.phase is Phase.HELD_UP:
            reason = RAN_OFTEN if row.then else HELD_UP
    return WatcherSummary(
        name=row.name,
        title=row.display_name,
        digest=digest_of(row),
        state=row.state,
        owner=row.owner,
        sentence=sentence,
        instruction=row.instruction,
        predicate=row.predicate,
        note=row.note or problem,
        truth=verdict.truth if verdict is not None else None,
        reason=reason,
        topics={
            name: WatchedTopic.model_validate(each, from_attributes=True)
            for name, each in sources_of(row).items()
        },
        every_s=row.every_s,
        on_change=row.every_s is None and row.schedule is None,
        schedule=row.schedule,
        next_at=row.next_at,
        allow=list(calls_of(row)),
        then=[step for step, _ in steps_of(row)],
        next_step_at=row.step_at,
        dry_run=row.dry_run,
        snoozed_until=row.snoozed_until,
        fired=row.fired,
        evaluations=row.evaluations,
        model_calls=row.model_calls,
        tokens=row.tokens,
        last=None if last is None else DecisionSummary.model_validate(last),
    )


def digest_of(row: WatcherRow) -> str:
    """Return the digest of all that a watcher is approved for."""
    return shown_digest(row.model_dump(mode="json", include=_APPROVED, warnings=False))


def calls_json(row: WatcherRow) -> list[Json]:
    """Return the approved calls of a watcher without their devices."""
    return [call.model_dump(exclude={"device"}) for call in calls_of(row)]


def values_json(seen: Mapping[str, Seen]) -> dict[str, Json]:
    """Return the latest values, cut to what a person reads."""
    return shown_arguments({name: each.value for name, each in seen.items() if each.age_s is not None})
