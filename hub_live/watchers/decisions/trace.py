"""The trace of watchers: their last looks at their values, and why each did something or nothing."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from agent_core.times import utc
from agent_core.tools.skill_calls import shown_arguments
from contracts.phrases import Phrase
from contracts.wire import Json
from hub_live import limits
from hub_live.watchers.predicates import Evaluator, Verdict

HELD_UP: Final = "it waits: the evaluations of a minute are used up"
RAN_OFTEN: Final = "it waits: it ran too often in a short time"
NOT_WATCHING: Final[Mapping[str, str]] = {
    "draft": "it is a draft: it waits for an approval",
    "paused": "it is paused",
    "failed": "it cannot follow its values",
}
"""By the state of a watcher."""


@dataclass(eq=False)
class Look:
    """Like looks in a row; see `TraceEntry`.

    Attributes:
        truths: What the parts of the predicate were worth, as they are written.
        actions: Calls that were made, as in `DecisionRow`.
    """

    since: datetime
    at: datetime
    outcome: str
    truth: bool | None
    truths: Mapping[str, bool | None]
    values: Mapping[str, Json]
    actions: Sequence[Json] = ()
    count: int = 1


@dataclass(frozen=True)
class Traces:
    """The last looks at each watcher since the hub was started, the oldest first."""

    looks: dict[str, deque[Look]] = field(default_factory=dict)

    def add(
        self,
        watcher: str,
        at: float,
        outcome: str,
        *,
        truth: bool | None = None,
        evaluator: Evaluator | None = None,
        actions: Sequence[Json] = (),
    ) -> None:
        """Add a look; one that is like the last one counts with that, whatever else was noted in between.

        Args:
            evaluator: Which has looked.
            actions: The calls of a decision.
        """
        truths: dict[str, bool | None] = {}
        values: dict[str, Json] = {}
        if evaluator is not None:
            truths = {
                text: each if isinstance(each, bool) else None for text, each in evaluator.parts.items()
            }
            values = shown_arguments(evaluator.values(at))
        kept = self.looks.setdefault(watcher, deque(maxlen=limits.TRACE_KEPT))
        look = Look(utc(at), utc(at), outcome, truth, truths, values, actions)
        last = next((each for each in reversed(kept) if bool(each.truths) == bool(truths)), None)
        alike = outcome, truth, truths, actions
        if last is not None and (last.outcome, last.truth, last.truths, last.actions) == alike:
            kept.remove(last)
            look.since, look.count = last.since, last.count + 1
        kept.append(look)


def outcome_of(verdict: Verdict, evaluator: Evaluator, *, is_firing: bool) -> str:
    """Return what comes of a verdict, for people."""
    if is_firing:
        return "the condition became true"
    if verdict.truth is None:
        return Phrase("it is not known whether the condition is true: {reason}", reason=verdict.reason)
    if verdict.truth:
        return "the condition is still true: it was not false since it became true"
    if evaluator.predicate.for_s and evaluator.is_met:
        return Phrase("the condition is not true for {seconds:g} s yet", seconds=evaluator.predicate.for_s)
    return "the condition is false"
