"""An active watcher: what is known of it, and when its model is asked."""

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from contracts.rates import Backoff
from hub_live import limits
from hub_live.watchers.decisions.kinds import FAILED
from hub_live.watchers.definition import CheckedStep, WatchedValue
from hub_live.watchers.phases import TRANSITIONS, Phase, Trigger
from hub_live.watchers.predicates import Evaluator, Verdict
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.tables import DecisionRow, WatcherRow


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
        asked: How many of these the model was asked about last.
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
    asked: int = 0
    has_new: bool = False
    recheck: Backoff = field(
        default_factory=lambda: Backoff(limits.RECHECK_S, limits.LONGEST_RECHECK_S, jitter=0.0)
    )

    def move(self, trigger: Trigger) -> None:
        self.phase = TRANSITIONS[trigger].get(self.phase, self.phase)

    def plan(self, at: float, *, occasion: str) -> None:
        """Ask the model then, or earlier if that is planned; while it is being asked, ask it again later."""
        self.occasion = occasion
        if self.phase is not Phase.HELD_UP:
            self.ask_at = min(at, self.ask_at)
            self.move("plan")

    def drop(self) -> None:
        """Cancel the next question to the model."""
        self.ask_at = math.inf
        self.move("drop")

    def hold(self, until: float) -> None:
        """Postpone the next question to the model: the evaluations of a minute are used up."""
        self.ask_at = until
        self.move("hold")

    def ask(self) -> None:
        """Note that the model is asked."""
        self.ask_at, self.has_new, self.asked = math.inf, False, self.rises
        self.move("ask")

    def decide(self) -> None:
        """Note that it was decided what the model was asked about."""
        self.rises -= self.asked
        self.move("decide")
        if self.ask_at < math.inf:
            self.move("plan")

    @property
    def is_over(self) -> bool:
        """Return whether the state that the model was asked about last has ended."""
        verdict = self.verdict
        is_false = verdict is not None and (verdict.truth is False or verdict.momentary)
        return is_false or self.phase is Phase.OVERTAKEN

    @property
    def has_failed(self) -> bool:
        return self.last is not None and self.last.decision == FAILED.name

    @property
    def is_settled(self) -> bool:
        """Return whether every allowed call was made since the predicate became true."""
        did = {key.partition(" ")[0] for key in self.row.done}
        return bool(did) and did >= {call["path"] for call in self.row.allow}

    @property
    def on_interval(self) -> bool:
        """Return whether the model evaluates it at its interval, even without new values."""
        return self.evaluator is None and self.row.every_s is not None

    @property
    def on_change(self) -> bool:
        """Return whether the model evaluates it when its values differ from those of its last decision."""
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
        """Return for how many seconds the model is not asked again about new values."""
        return max(self.row.every_s or limits.LEAST_EVERY_S, self.recheck.next() if self.evaluator else 0.0)
