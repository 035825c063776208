"""The parts of a predicate: what each gives at a time, and when that can change without new data."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar, cast

from contracts.phrases import Phrase
from hub_live.watchers.predicates.syntax import FUNCTIONS, Node
from hub_live.watchers.predicates.windows import Series, Unknown, Value, Window, number

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


def _never(_: float) -> float:
    return math.inf


_T_co = TypeVar("_T_co", covariant=True)


class Part(NamedTuple, Generic[_T_co]):
    """A part of a predicate, over the values of one watcher.

    Attributes:
        value: Returns the value at a time. A second argument is by how many seconds durations are taken to
            have grown already.
        wake: Returns when the value can change without new data; infinite for never. That a duration grows
            does not count: comparisons say when it crosses their bound.
    """

    value: Callable[..., _T_co]
    wake: Callable[[float], float] = _never


def build(node: Node, series: Mapping[str, Series]) -> Part[Value]:
    """Return a part, and those that it is made of, over the values of one watcher."""
    parts = [build(part, series) for part in node.parts]
    match node.op:
        case "constant":
            return Part(lambda now, ahead=0.0: node.value)
        case "name":
            own = series[str(node.value)]
            return Part(lambda now, ahead=0.0: own.value)
        case "and" | "or":
            conditions = [as_condition(*pair) for pair in zip(parts, node.parts, strict=True)]
            return _junction(conditions, decisive=node.op == "or")
        case "not":
            return _negation(as_condition(parts[0], node.parts[0]))
        case "minus":
            return _calculation(node, Part(lambda now, ahead=0.0: 0.0), parts[0])
        case "+" | "-" | "*" | "/":
            return _calculation(node, *parts)
        case "age":
            return _age(series[str(node.value)], node)
        case "changed":
            return _changed(series[str(node.value)], node)
        case "last":
            return _last(series[str(node.value)], node)
        case "count" | "max" | "mean" | "min" | "rate":
            return _statistic(series[str(node.value)], node)
    return _comparison(node, *parts)


def as_condition(part: Part[Value], node: Node) -> Part[bool | Unknown]:
    """Return a part as one whose value is true, false or unknown."""
    if node.kind == "truth":
        return cast("Part[bool | Unknown]", part)

    def value(now: float, ahead: float = 0.0) -> bool | Unknown:
        found = part.value(now)
        if isinstance(found, (bool, Unknown)):
            return found
        is_text = isinstance(found, str)
        template = "{text} is text, not true or false" if is_text else "{text} is a number, not true or false"
        return Unknown(Phrase(template, text=node.text))

    return Part(value, part.wake)


def _unheard(node: Node, low: float = -math.inf, high: float = math.inf) -> Unknown:
    return Unknown(Phrase("there is a gap in the time of {text}", text=node.text), low, high)


def _leaves(series: Series, length_s: float, now: float, at: float) -> float:
    """Return when a moment or the last gap leaves a window, whichever is first."""
    first = math.inf
    for each in (at, series.gap_until):
        if now < each + length_s < first:
            first = each + length_s
    return first


def _age(series: Series, node: Node) -> Part[Value]:
    def value(now: float, ahead: float = 0.0) -> Value:
        if series.at is None:
            return series.value
        age = now + ahead - series.at
        if series.is_retained:
            return Unknown(
                Phrase("{name} was retained; when it was sent is not known", name=series.name), low=age
            )
        if series.gap_until <= series.at:
            return age
        return _unheard(node, 0.0 if series.gap_until > now else now + ahead - series.gap_until, age)

    return Part(value)


def _changed(series: Series, node: Node) -> Part[Value]:
    if node.window_s is None:
        return Part(lambda now, ahead=0.0: series.has_changed)
    length_s = node.window_s

    def value(now: float, ahead: float = 0.0) -> bool | Unknown:
        if series.changed_at + length_s > now:
            return True
        return _unheard(node) if series.gap_until + length_s > now else False

    return Part(value, lambda now: _leaves(series, length_s, now, series.changed_at))


def _last(series: Series, node: Node) -> Part[Value]:
    length_s = node.window_s or 0.0

    def value(now: float, ahead: float = 0.0) -> Value:
        if series.at is None or series.at + length_s > now:
            return series.value
        return Unknown(Phrase("there is no value in the time of {text}", text=node.text))

    def wake(now: float) -> float:
        return _leaves(series, length_s, now, -math.inf if series.at is None else series.at)

    return Part(value, wake)


def _statistic(series: Series, node: Node) -> Part[Value]:
    """Make a number from the values of a window."""
    length_s, op = node.window_s or 0.0, node.op
    window = series.windows.setdefault(length_s, Window(length_s))

    def value(now: float, ahead: float = 0.0) -> Value:
        count, total, low, high = window.sums(now)
        has_gap = series.gap_until + length_s > now
        if op == "count":
            return _unheard(node, low=count) if has_gap else float(count)
        if window.bad_at + length_s > now:
            return window.bad
        if op == "rate":
            result = _rate(series, window, node, in_window=count > 0)
        elif not count:
            result = number(series.name, series.value)
        else:
            result = total / count if op == "mean" else low if op == "min" else high
        if isinstance(result, Unknown):
            return result
        if has_gap:
            return _unheard(
                node,
                low=result if op == "max" and count else -math.inf,
                high=result if op == "min" and count else math.inf,
            )
        return (
            result
            if math.isfinite(result)
            else Unknown(Phrase("{text} is not a finite number", text=node.text))
        )

    return Part(value, lambda now: _leaves(series, length_s, now, window.oldest[0]))


def _rate(series: Series, window: Window, node: Node, *, in_window: bool) -> float | Unknown:
    """Return the change a second from the oldest value, or where it is the only one from that before."""
    newest = number(series.name, series.value)
    if isinstance(newest, Unknown) or series.at is None:
        return newest
    if not in_window:
        return 0.0
    oldest = window.oldest if window.oldest[0] < series.at else window.before
    if oldest[0] == -math.inf or oldest[0] >= series.at:
        return Unknown(Phrase("{text} needs two values", text=node.text))
    return (newest - oldest[1]) / (series.at - oldest[0])


def _calculation(node: Node, left: Part[Value], right: Part[Value]) -> Part[Value]:
    calculate, column = _CALCULATIONS[node.op], node.column
    left_text, right_text = node.parts[0].text, node.parts[-1].text

    def value(now: float, ahead: float = 0.0) -> Value:
        one, two = number(left_text, left.value(now, ahead)), number(right_text, right.value(now, ahead))
        if isinstance(one, Unknown) or isinstance(two, Unknown):
            return _bounded(node.op, one, two)
        try:
            result = calculate(one, two)
        except ZeroDivisionError:
            return Unknown(Phrase("there is a division by zero at column {column}", column=column))
        return (
            result
            if math.isfinite(result)
            else Unknown(Phrase("the result at column {column} is not finite", column=column))
        )

    return Part(value, lambda now: min(left.wake(now), right.wake(now)))


def _bounded(op: str, left: float | Unknown, right: float | Unknown) -> Unknown:
    unknown = left if isinstance(left, Unknown) else right
    assert isinstance(unknown, Unknown)
    (left_low, left_high), (right_low, right_high) = _bounds(left), _bounds(right)
    if op == "+":
        return Unknown(unknown.reason, left_low + right_low, left_high + right_high)
    if op in ("-", "minus"):
        return Unknown(unknown.reason, left_low - right_high, left_high - right_low)
    return Unknown(unknown.reason)


def _comparison(node: Node, left: Part[Value], right: Part[Value]) -> Part[Value]:
    op, compare = node.op, _OPERATORS[node.op]
    side, bound = node.parts
    grows = "time" in (side.kind, bound.kind)
    # What leaves a window makes count and max no larger, and min no smaller.
    stays_false = bound.op == "constant" and (
        (side.op in ("count", "max") and op in (">", ">=")) or (side.op == "min" and op in ("<", "<="))
    )
    near = 0

    def value(now: float, ahead: float = 0.0) -> bool | Unknown:
        one, two = left.value(now), right.value(now)
        if type(one) is float and type(two) is float:
            return compare(one, two)
        if op in ("==", "!=") and not isinstance(one, Unknown) and not isinstance(two, Unknown):
            return (type(one) is type(two) and one == two) is (op == "==")
        one, two = number(side.text, one), number(bound.text, two)
        (left_low, left_high), (right_low, right_high) = _bounds(one), _bounds(two)
        if op in ("==", "!="):
            if left_high < right_low or left_low > right_high:
                return op == "!="
        else:
            pairs = ((left_high, right_low), (left_low, right_high))
            hardest, easiest = pairs if op in ("<", "<=") else reversed(pairs)
            if compare(*hardest):
                return True
            if not compare(*easiest):
                return False
        return one if isinstance(one, Unknown) else Unknown(two.reason if isinstance(two, Unknown) else "")

    def wake(now: float) -> float:
        nonlocal near
        if stays_false and value(now) is False:
            return math.inf
        first = min(left.wake(now), right.wake(now))
        if not grows:
            return first
        # Durations grow evenly, so two differences tell when they cross.
        for present, later in zip(differences(now, 0.0), differences(now, _AHEAD_S), strict=True):
            each_second = (later - present) / _AHEAD_S
            if each_second and math.isfinite(each_second):
                crossing = now - present / each_second + MOMENT_S
                first = min(first, crossing if crossing > now else math.inf)
        # Beside numbers so large that a duration is rounded away, it crosses later than computed.
        near = near + 1 if first < now + 2 * MOMENT_S else 0
        return now + 1.0 if near > _MAX_NEAR else first

    def differences(now: float, ahead: float) -> tuple[float, float]:
        left_low, left_high = _bounds(left.value(now, ahead))
        right_low, right_high = _bounds(right.value(now, ahead))
        return left_low - right_high, left_high - right_low

    return Part(value, wake if any(each.op in FUNCTIONS for each in node.walk()) else _never)


def _bounds(value: Value) -> tuple[float, float]:
    if isinstance(value, float):
        return value, value
    return (value.low, value.high) if isinstance(value, Unknown) else (-math.inf, math.inf)


def _negation(part: Part[bool | Unknown]) -> Part[Value]:
    def value(now: float, ahead: float = 0.0) -> Value:
        found = part.value(now)
        return not found if isinstance(found, bool) else found

    return Part(value, part.wake)


def _junction(parts: Sequence[Part[bool | Unknown]], *, decisive: bool) -> Part[Value]:
    """Make ``and``, which one part decides that is false, or ``or``, which one part decides that is true."""

    def value(now: float, ahead: float = 0.0) -> bool | Unknown:
        unknown = None
        for part in parts:
            found = part.value(now)
            if found is decisive:
                return decisive
            if unknown is None and isinstance(found, Unknown):
                unknown = found
        return unknown or not decisive

    def wake(now: float) -> float:
        # As long as one part that decides stays as it is, the others do not matter.
        last = -math.inf
        for part in parts:
            if part.value(now) is decisive:
                last = max(last, part.wake(now))
                if last == math.inf:
                    return last
        return last if last > -math.inf else min(part.wake(now) for part in parts)

    return Part(value, wake)
