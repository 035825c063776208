"""The evaluation of a predicate over the values as they arrive.

Logic has three values, after Kleene: unknown and false is false, unknown or true is true, and whatever else
an unknown has a part in is unknown, with the reason of the first one. Where bounds of a number are known they
decide a comparison: with three errors seen, ``count(errors, "1h") >= 3`` is true whatever a gap has hidden.
"""

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from contracts.wire import Json
from hub_agent.live.watchers.predicates.syntax import FUNCTIONS, Node, Predicate
from hub_agent.live.watchers.predicates.windows import Series, Unknown, Value, Window, number

_MOMENT_S: Final = 0.001
"""How long after the moment in which a duration reaches a bound it is looked at: it is beyond it then."""
_AHEAD_S: Final = 1_024.0
_MAX_NEAR: Final = 3

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_CALCULATIONS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "minus": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class Verdict(NamedTuple):
    """What a predicate gives at a time.

    Attributes:
        truth: None where it is not known.
        reason: Why it is not known.
        values: The latest values by name, and of the functions as they are written; empty where it is false.
        momentary: It is true for this moment only, because a value has just changed.
        waiting: Not all of the names have had a value.
    """

    truth: bool | None
    reason: str
    values: Mapping[str, Json]
    momentary: bool = False
    waiting: bool = False


_FALSE: Final = Verdict(False, "", MappingProxyType({}))
"""Most verdicts by far."""


class Evaluator:
    """The state of one watcher's predicate.

    Call `verdict` after each `put`, and when the time of `wake_at` has come; in between it cannot change.
    Time comes with each call and never runs backwards: an earlier one counts as the latest.

    A value holds until the next one of its name. A window has the values that arrived in it; while there are
    none, its lowest, highest and mean are the value that holds.
    """

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self._now = -math.inf
        self._series = {name: Series(name) for name in predicate.names}
        self._latest: dict[str, Json] = {}
        nodes = {node.text: node for node in predicate.root.walk() if node.text and node.op != "name"}
        self._momentary = [
            self._series[str(n.value)] for n in nodes.values() if n.text == f"changed({n.value})"
        ]
        self._root = self._condition(predicate.root)
        self._functions = {
            text: self._part(node) for text, node in nodes.items() if text != f"changed({node.value})"
        }
        self._depends_on_time = bool(self._functions or predicate.for_s)
        self._settles = False
        self._not_false_since: float | None = None
        self._true_since: float | None = None

    def put(self, name: str, at: float, value: Json, *, retained: bool = False) -> None:
        """Take a new value; other names than those of the predicate are ignored.

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
        """Take note of a time in which nothing was heard.

        Args:
            until: None while it lasts; it is then given again with its end.
            names: Those that it concerns; by default all.
        """
        for series in self._series.values():
            if names is None or series.name in names:
                end = math.inf if until is None else until
                # A gap that lasts ends with the next one that is given.
                series.gap_until = end if series.gap_until == math.inf else max(end, series.gap_until)
        if self._not_false_since is None:
            # Perhaps the condition has held since then; before the first value, for any time.
            self._not_false_since = since if self._now > -math.inf else -math.inf
        self._true_since = None

    def verdict(self, now: float) -> Verdict:
        """Return what the predicate gives at a time."""
        self._now = now = max(now, self._now)
        truth = self._root.value(now)
        after = truth
        if self._momentary and any(series.has_changed for series in self._momentary):
            for series in self._momentary:
                series.has_changed = False
            after = self._root.value(now)
        is_momentary = truth is True and after is not True
        self._settles = truth is not True and after is not truth
        if self.predicate.for_s:
            self._observe(truth, now)
            self._observe(after, now)
            truth, is_momentary = self._held(after, now), False
        if truth is False:
            return _FALSE
        values = self._latest.copy()
        for text, function in self._functions.items():
            values[text] = _shown(function.value(now))
        if isinstance(truth, Unknown):
            return Verdict(None, truth.reason, values, waiting=len(self._latest) < len(self._series))
        return Verdict(True, "", values, momentary=is_momentary)

    def wake_at(self, now: float) -> float | None:
        """Return when the verdict can change without new data, Unix seconds; None for never."""
        if not self._depends_on_time and not self._settles:
            return None
        now = max(now, self._now)
        wake = now if self._settles else self._root.wake(now)
        if self.predicate.for_s:
            for since in (self._not_false_since, self._true_since):
                if since is not None and since + self.predicate.for_s > now:
                    wake = min(wake, since + self.predicate.for_s)
        return None if wake == math.inf else max(wake, now + _MOMENT_S)

    def _observe(self, truth: bool | Unknown, now: float) -> None:
        """Take note since when the condition holds, for certain and perhaps."""
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

    def _part(self, node: Node) -> "_Part":
        match node.op:
            case "constant":
                return _Constant(node.value)
            case "name":
                return _Latest(self._series[str(node.value)])
            case "and" | "or":
                return _Junction([self._condition(part) for part in node.parts], decisive=node.op == "or")
            case "not":
                return _Not(self._condition(node.parts[0]))
            case "minus":
                return _Calculation(node, _Constant(0.0), self._part(node.parts[0]))
            case "+" | "-" | "*" | "/":
                return _Calculation(node, *map(self._part, node.parts))
            case "age" | "changed" | "last":
                return {"age": _Age, "changed": _Changed, "last": _Last}[node.op](
                    self._series[str(node.value)], node
                )
            case "count" | "max" | "mean" | "min" | "rate":
                return _Statistic(self._series[str(node.value)], node)
        return _Comparison(node, *map(self._part, node.parts))

    def _condition(self, node: Node) -> "_Condition":
        part = self._part(node)
        return part if isinstance(part, _Condition) else _Truth(part, node.text)


class _Part:
    """A part of a predicate, over the values of one watcher."""

    def value(self, now: float, ahead: float = 0.0) -> Value:
        """Return the value at a time.

        Args:
            ahead: Seconds by which durations are taken to have grown already.
        """
        raise NotImplementedError

    def wake(self, now: float) -> float:
        """Return when the value can change without new data; infinite for never.

        That a duration grows does not count: comparisons say when it crosses their bound.
        """
        return math.inf


class _Condition(_Part):
    """A part that is true, false or unknown."""

    def value(self, now: float, ahead: float = 0.0) -> bool | Unknown:
        raise NotImplementedError


class _Constant(_Part):
    def __init__(self, value: Value) -> None:
        self._value = value

    def value(self, now: float, ahead: float = 0.0) -> Value:
        return self._value


class _Latest(_Part):
    def __init__(self, series: Series) -> None:
        self._series = series

    def value(self, now: float, ahead: float = 0.0) -> Value:
        return self._series.value


class _Function(_Part):
    def __init__(self, series: Series, node: Node) -> None:
        self._series = series
        self._text = node.text
        self._length_s = node.window_s or 0.0

    def _unheard(self, low: float = -math.inf, high: float = math.inf) -> Unknown:
        return Unknown(f"there is a gap in the time of {self._text}", low, high)

    def _leaves(self, now: float, at: float) -> float:
        """Return when a moment or the last gap leaves the window, whichever is first."""
        first = math.inf
        for each in (at, self._series.gap_until):
            if now < each + self._length_s < first:
                first = each + self._length_s
        return first


class _Age(_Function):
    def value(self, now: float, ahead: float = 0.0) -> Value:
        series = self._series
        if series.at is None:
            return series.value
        age = now + ahead - series.at
        if series.is_retained:
            return Unknown(f"{series.name} was retained; when it was sent is not known", low=age)
        if series.gap_until <= series.at:
            return age
        return self._unheard(0.0 if series.gap_until > now else now + ahead - series.gap_until, age)


class _Changed(_Function, _Condition):
    def value(self, now: float, ahead: float = 0.0) -> bool | Unknown:
        series = self._series
        if not self._length_s:
            return series.has_changed
        if series.changed_at + self._length_s > now:
            return True
        return self._unheard() if series.gap_until + self._length_s > now else False

    def wake(self, now: float) -> float:
        return self._leaves(now, self._series.changed_at) if self._length_s else math.inf


class _Last(_Function):
    def value(self, now: float, ahead: float = 0.0) -> Value:
        at = self._series.at
        if at is None or at + self._length_s > now:
            return self._series.value
        return Unknown(f"there is no value in the time of {self._text}")

    def wake(self, now: float) -> float:
        return self._leaves(now, -math.inf if self._series.at is None else self._series.at)


class _Statistic(_Function):
    """A number from the values of a window."""

    def __init__(self, series: Series, node: Node) -> None:
        super().__init__(series, node)
        self._op = node.op
        self._window = series.windows.setdefault(self._length_s, Window(self._length_s))

    def value(self, now: float, ahead: float = 0.0) -> Value:
        window, op = self._window, self._op
        count, total, low, high = window.sums(now)
        has_gap = self._series.gap_until + self._length_s > now
        if op == "count":
            return self._unheard(low=count) if has_gap else float(count)
        if window.bad_at + self._length_s > now:
            return window.bad
        if op == "rate":
            result = self._rate(in_window=count > 0)
        elif not count:
            result = number(self._series.name, self._series.value)
        else:
            result = total / count if op == "mean" else low if op == "min" else high
        if isinstance(result, Unknown):
            return result
        if has_gap:
            return self._unheard(
                low=result if op == "max" and count else -math.inf,
                high=result if op == "min" and count else math.inf,
            )
        return result if math.isfinite(result) else Unknown(f"{self._text} is not a finite number")

    def wake(self, now: float) -> float:
        return self._leaves(now, self._window.oldest[0])

    def _rate(self, *, in_window: bool) -> float | Unknown:
        """Return the change a second from the oldest value, or where it is the only one from that before."""
        series = self._series
        newest = number(series.name, series.value)
        if isinstance(newest, Unknown) or series.at is None:
            return newest
        if not in_window:
            return 0.0
        oldest = self._window.oldest
        if oldest[0] >= series.at:
            oldest = self._window.before
        if oldest[0] == -math.inf or oldest[0] >= series.at:
            return Unknown(f"{self._text} needs two values")
        return (newest - oldest[1]) / (series.at - oldest[0])


class _Calculation(_Part):
    def __init__(self, node: Node, left: _Part, right: _Part) -> None:
        self._calculate = _CALCULATIONS[node.op]
        self._op = node.op
        self._left, self._right = left, right
        texts = [part.text for part in node.parts]
        self._left_text, self._right_text = texts[0], texts[-1]
        self._column = node.column

    def value(self, now: float, ahead: float = 0.0) -> Value:
        left = number(self._left_text, self._left.value(now, ahead))
        right = number(self._right_text, self._right.value(now, ahead))
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return self._bounded(left, right)
        try:
            result = self._calculate(left, right)
        except ZeroDivisionError:
            return Unknown(f"there is a division by zero at column {self._column}")
        return (
            result if math.isfinite(result) else Unknown(f"the result at column {self._column} is not finite")
        )

    def _bounded(self, left: float | Unknown, right: float | Unknown) -> Unknown:
        unknown = left if isinstance(left, Unknown) else right
        assert isinstance(unknown, Unknown)
        (left_low, left_high), (right_low, right_high) = _bounds(left), _bounds(right)
        if self._op == "+":
            return Unknown(unknown.reason, left_low + right_low, left_high + right_high)
        if self._op in ("-", "minus"):
            return Unknown(unknown.reason, left_low - right_high, left_high - right_low)
        return Unknown(unknown.reason)

    def wake(self, now: float) -> float:
        return min(self._left.wake(now), self._right.wake(now))


class _Comparison(_Condition):
    def __init__(self, node: Node, left: _Part, right: _Part) -> None:
        self._op = node.op
        self._compare = _OPERATORS[node.op]
        self._left, self._right = left, right
        self._left_text, self._right_text = (part.text for part in node.parts)
        self._near = 0
        self._grows = "time" in (part.kind for part in node.parts)
        self._depends_on_time = any(each.op in FUNCTIONS for each in node.walk())
        # What leaves a window makes count and max no larger, and min no smaller.
        side, bound = node.parts
        self._stays_false = bound.op == "constant" and (
            (side.op in ("count", "max") and node.op in (">", ">="))
            or (side.op == "min" and node.op in ("<", "<="))
        )

    def value(self, now: float, ahead: float = 0.0) -> bool | Unknown:
        left, right = self._left.value(now), self._right.value(now)
        if type(left) is float and type(right) is float:
            return self._compare(left, right)
        if self._op in ("==", "!=") and not isinstance(left, Unknown) and not isinstance(right, Unknown):
            return (type(left) is type(right) and left == right) is (self._op == "==")
        left, right = number(self._left_text, left), number(self._right_text, right)
        (left_low, left_high), (right_low, right_high) = _bounds(left), _bounds(right)
        pairs = ((left_high, right_low), (left_low, right_high))
        if self._op in ("==", "!="):
            if left_high < right_low or left_low > right_high:
                return self._op == "!="
        else:
            hardest, easiest = pairs if self._op in ("<", "<=") else reversed(pairs)
            if self._compare(*hardest):
                return True
            if not self._compare(*easiest):
                return False
        return (
            left if isinstance(left, Unknown) else Unknown(right.reason if isinstance(right, Unknown) else "")
        )

    def wake(self, now: float) -> float:
        if not self._depends_on_time or (self._stays_false and self.value(now) is False):
            return math.inf
        wake = min(self._left.wake(now), self._right.wake(now))
        if self._grows:
            # Durations grow evenly, so two differences tell when they cross.
            present, later = self._differences(now, 0.0), self._differences(now, _AHEAD_S)
            for difference, grown in zip(present, later, strict=True):
                each_second = (grown - difference) / _AHEAD_S
                if each_second and math.isfinite(each_second):
                    crossing = now - difference / each_second + _MOMENT_S
                    wake = min(wake, crossing if crossing > now else math.inf)
            # Beside numbers so large that a duration is rounded away, it crosses later than computed.
            self._near = self._near + 1 if wake < now + 2 * _MOMENT_S else 0
            if self._near > _MAX_NEAR:
                wake = now + 1.0
        return wake

    def _differences(self, now: float, ahead: float) -> tuple[float, float]:
        left_low, left_high = _bounds(self._left.value(now, ahead))
        right_low, right_high = _bounds(self._right.value(now, ahead))
        return left_low - right_high, left_high - right_low


def _shown(value: Value) -> Json:
    """Return a value as people read it: whole numbers without a point, others with six digits."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.6g}")
    return None if isinstance(value, Unknown) else value


def _bounds(value: Value) -> tuple[float, float]:
    if isinstance(value, float):
        return value, value
    return (value.low, value.high) if isinstance(value, Unknown) else (-math.inf, math.inf)


class _Truth(_Condition):
    """A value that has to be true or false."""

    def __init__(self, part: _Part, text: str) -> None:
        self._part = part
        self._text = text

    def wake(self, now: float) -> float:
        return self._part.wake(now)

    def value(self, now: float, ahead: float = 0.0) -> bool | Unknown:
        value = self._part.value(now)
        if isinstance(value, (bool, Unknown)):
            return value
        return Unknown(
            f"{self._text} is {'text' if isinstance(value, str) else 'a number'}, not true or false"
        )


class _Not(_Condition):
    def __init__(self, part: _Condition) -> None:
        self._part = part

    def wake(self, now: float) -> float:
        return self._part.wake(now)

    def value(self, now: float, ahead: float = 0.0) -> bool | Unknown:
        value = self._part.value(now)
        return not value if isinstance(value, bool) else value


class _Junction(_Condition):
    """``and``, which one part decides that is false, or ``or``, which one part decides that is true."""

    def __init__(self, parts: Sequence[_Condition], *, decisive: bool) -> None:
        self._parts = parts
        self._decisive = decisive

    def value(self, now: float, ahead: float = 0.0) -> bool | Unknown:
        decisive, unknown = self._decisive, None
        for part in self._parts:
            value = part.value(now)
            if value is decisive:
                return decisive
            if unknown is None and isinstance(value, Unknown):
                unknown = value
        return unknown or not decisive

    def wake(self, now: float) -> float:
        # As long as one part that decides stays as it is, the others do not matter.
        last = -math.inf
        for part in self._parts:
            if part.value(now) is self._decisive:
                last = max(last, part.wake(now))
                if last == math.inf:
                    return last
        return last if last > -math.inf else min(part.wake(now) for part in self._parts)
