"""The evaluation of a predicate over the values as they arrive.

Logic has three values, after Kleene: unknown and false is false, unknown or true is true, and whatever else
an unknown has a part in is unknown, with the reason of the first one. Where bounds of a number are known they
decide a comparison: with three errors seen, ``count(errors, "1h") >= 3`` is true whatever a gap has hidden.
"""

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from contracts.wire import Json
from hub_live.watchers.predicates.clock import UTC_CLOCK, Clock, time_text
from hub_live.watchers.predicates.parts import as_condition, build, joined
from hub_live.watchers.predicates.syntax import Predicate
from hub_live.watchers.predicates.windows import Series, Unknown, Value


class Verdict(NamedTuple):
    """The result of a predicate at a time.

    Attributes:
        truth: None where it is not known.
        reason: Why it is not known.
        values: The latest values by name, and of the functions as they are written; empty where it is false.
        momentary: It is true for this moment only, because a value has just changed.
    """

    truth: bool | None
    reason: str
    values: Mapping[str, Json]
    momentary: bool = False


_FALSE: Final = Verdict(False, "", MappingProxyType({}))
"""Most verdicts by far."""


class Evaluator:
    """The state of one watcher's predicate.

    Call `verdict` after each `put`, and `tick` once a second in between. Time comes with each call and never
    runs backwards: an earlier one counts as the latest.

    A value holds until the next one of its name. A window has the values that arrived in it; while there are
    none, its lowest, highest and mean are the value that holds.

    Attributes:
        depends_on_time: Whether `tick` can give anything.
        has_clock: Whether it depends on the time of day, which must be looked at each minute.
        parts: What the parts that it is joined of were worth last, as they are written.
        is_met: Whether all but its ``for`` was true last.
    """

    def __init__(self, predicate: Predicate, clock: Clock = UTC_CLOCK) -> None:
        self.predicate = predicate
        self._now = -math.inf
        self._series = {name: Series(name) for name in predicate.names}
        self._latest: dict[str, Json] = {}
        root = predicate.root
        self._decisive = root.op == "or"
        built = ((node, build(node, self._series, clock)) for node in predicate.parts)
        self._parts = {node.source: as_condition(part, node) for node, part in built}
        self.parts: Mapping[str, bool | Unknown] = {}
        self.is_met = False
        functions = {
            node.text: node for node in root.walk() if node.text and node.op not in ("name", "constant")
        }
        momentary = [node for node in functions.values() if node.op == "changed" and node.window_s is None]
        self._momentary = [self._series[str(functions.pop(node.text).value)] for node in momentary]
        self._functions = {text: build(node, self._series, clock) for text, node in functions.items()}
        self.depends_on_time = bool(self._functions or momentary or predicate.for_s)
        self.has_clock = bool(predicate.clock_names)
        self._last = _FALSE
        self._not_false_since: float | None = None
        self._true_since: float | None = None

    def put(self, name: str, at: float, value: Json, *, retained: bool = False) -> None:
        """Store a new value; other names than those of the predicate are ignored.

        Args:
            at: When it arrived, Unix seconds.
            retained: Whether the broker had kept it, so that it may have been sent at any time before.
        """
        series = self._series.get(name)
        if series is not None:
            self._now = at = max(at, self._now)
            series.put(at, value, retained=retained)
            self._latest[name] = value

    def gap(self, since: float, until: float | None, names: Collection[str] | None = None) -> None:
        """Record a time in which nothing was heard.

        Args:
            until: None while it lasts; it is then given again with its end.
            names: Those that it concerns; by default all.
        """
        end = math.inf if until is None else until
        for series in self._series.values():
            if names is None or series.name in names:
                # A gap that lasts ends with the next one that is given.
                series.gap_until = end if series.gap_until == math.inf else max(end, series.gap_until)
        if self._true_since is not None and self._true_since < end:
            self._true_since = None
        if self._not_false_since is None and self._now < end:
            # Perhaps the condition has held since then; before the first value, for any time.
            self._not_false_since = since if self._now > -math.inf else -math.inf

    def tick(self, now: float) -> Verdict | None:
        """Return what the predicate gives where time alone has changed that; None where it has not.

        What was true for a moment stays the verdict until a value comes or it is true for longer.
        """
        if not self.depends_on_time:
            return None
        last, verdict = self._last, self.verdict(now)
        if verdict.truth is True if last.momentary else verdict.truth is not last.truth:
            return verdict
        self._last = last
        return None

    def verdict(self, now: float) -> Verdict:
        """Return what the predicate gives at a time."""
        verdict = self._last = self._verdict(now)
        return verdict

    def _verdict(self, now: float) -> Verdict:
        self._now = now = max(now, self._now)
        self.parts = parts = self._look(now)
        after = truth = joined(parts.values(), self._decisive)
        self.is_met = truth is True
        if self._momentary and any(series.has_changed for series in self._momentary):
            for series in self._momentary:
                series.has_changed = False
            after = joined(self._look(now).values(), self._decisive)
        is_momentary = truth is True and after is not True
        if self.predicate.for_s:
            self._observe(truth, now)
            self._observe(after, now)
            truth, is_momentary = self._held(after, now), False
        if truth is False:
            return _FALSE
        values = self.values(now)
        if isinstance(truth, Unknown):
            return Verdict(None, truth.reason, values)
        return Verdict(True, "", values, momentary=is_momentary)

    def _look(self, now: float) -> dict[str, bool | Unknown]:
        return {source: part(now) for source, part in self._parts.items()}

    def values(self, now: float) -> dict[str, Json]:
        """Return the latest values by name, and of the functions as they are written."""
        values = self._latest.copy()
        for text, function in self._functions.items():
            values[text] = (
                _shown(function(now)) if text != "time" else time_text(cast("float", function(now)))
            )
        return values

    def _observe(self, truth: bool | Unknown, now: float) -> None:
        """Record since when the condition holds, for certain and perhaps."""
        if truth is False:
            self._not_false_since = self._true_since = None
            return
        if self._not_false_since is None:
            self._not_false_since = now
        in_gap = any(series.gap_until == math.inf for series in self._series.values())
        if truth is not True or in_gap:
            self._true_since = None
        elif self._true_since is None:
            self._true_since = now

    def _held(self, truth: bool | Unknown, now: float) -> bool | Unknown:
        """Return whether the condition has held for as long as it must."""
        for_s = self.predicate.for_s
        if self._not_false_since is None or self._not_false_since + for_s > now:
            return False
        if self._true_since is not None and self._true_since + for_s <= now:
            return True
        if isinstance(truth, Unknown):
            return truth
        return Unknown("it is not known whether the condition held without interruption")


def _shown(value: Value) -> Json:
    """Return a value as people read it: whole numbers without a point, others with six digits."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.6g}")
    return None if isinstance(value, Unknown) else value
