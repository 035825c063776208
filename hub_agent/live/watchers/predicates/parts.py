"""The parts of a predicate: what each gives at a time, and when that can change without new data."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hub_agent.live.watchers.predicates.syntax import FUNCTIONS, Node
from hub_agent.live.watchers.predicates.windows import Series, Unknown, Value, Window, number

MOMENT_S: Final = 0.001
"""How long after the moment in which a duration reaches a bound it is looked at: it is beyond it then."""
_AHEAD_S: Final = 1_024.0
_MAX_NEAR: Final = 3
"""How often in a row a duration may be looked at after a moment; then once a second."""

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


def build(node: Node, series: Mapping[str, Series]) -> "Part":
    """Return a part, and those that it is made of, over the values of one watcher."""
    parts = [build(part, series) for part in node.parts]
    match node.op:
        case "constant":
            return _Constant(node.value)
        case "name":
            return _Latest(series[str(node.value)])
        case "and" | "or":
            conditions = [as_condition(*pair) for pair in zip(parts, node.parts, strict=True)]
            return _Junction(conditions, decisive=node.op == "or")
        case "not":
            return _Not(as_condition(parts[0], node.parts[0]))
        case "minus":
            return _Calculation(node, _Constant(0.0), parts[0])
        case "+" | "-" | "*" | "/":
            return _Calculation(node, *parts)
        case "age":
            return _Age(series[str(node.value)], node)
        case "changed":
            return _Changed(series[str(node.value)], node)
        case "last":
            return _Last(series[str(node.value)], node)
        case "count" | "max" | "mean" | "min" | "rate":
            return _Statistic(series[str(node.value)], node)
    return _Comparison(node, *parts)


def as_condition(part: "Part", node: Node) -> "Condition":
    """Return a part as one that is true, false or unknown."""
    return part if isinstance(part, Condition) else _Truth(part, node.text)


class Part:
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


class Condition(Part):
    """A part that is true, false or unknown."""

    def value(self, now: float, ahead: float = 0.0) -> bool | Unknown:
        """Return the truth at a time."""
        raise NotImplementedError


class _Constant(Part):
    def __init__(self, value: Value) -> None:
        self._value = value

    def value(self, now: float, ahead: float = 0.0) -> Value:
        return self._value


class _Latest(Part):
    def __init__(self, series: Series) -> None:
        self._series = series

    def value(self, now: float, ahead: float = 0.0) -> Value:
        return self._series.value


class _Function(Part):
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


class _Changed(_Function, Condition):
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


class _Calculation(Part):
    def __init__(self, node: Node, left: Part, right: Part) -> None:
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


class _Comparison(Condition):
    def __init__(self, node: Node, left: Part, right: Part) -> None:
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
                    crossing = now - difference / each_second + MOMENT_S
                    wake = min(wake, crossing if crossing > now else math.inf)
            # Beside numbers so large that a duration is rounded away, it crosses later than computed.
            self._near = self._near + 1 if wake < now + 2 * MOMENT_S else 0
            if self._near > _MAX_NEAR:
                wake = now + 1.0
        return wake

    def _differences(self, now: float, ahead: float) -> tuple[float, float]:
        left_low, left_high = _bounds(self._left.value(now, ahead))
        right_low, right_high = _bounds(self._right.value(now, ahead))
        return left_low - right_high, left_high - right_low


def _bounds(value: Value) -> tuple[float, float]:
    if isinstance(value, float):
        return value, value
    return (value.low, value.high) if isinstance(value, Unknown) else (-math.inf, math.inf)


class _Truth(Condition):
    """A value that has to be true or false."""

    def __init__(self, part: Part, text: str) -> None:
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


class _Not(Condition):
    def __init__(self, part: Condition) -> None:
        self._part = part

    def wake(self, now: float) -> float:
        return self._part.wake(now)

    def value(self, now: float, ahead: float = 0.0) -> bool | Unknown:
        value = self._part.value(now)
        return not value if isinstance(value, bool) else value


class _Junction(Condition):
    """``and``, which one part decides that is false, or ``or``, which one part decides that is true."""

    def __init__(self, parts: Sequence[Condition], *, decisive: bool) -> None:
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
