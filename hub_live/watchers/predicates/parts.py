"""The parts of a predicate: what each gives at a time."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, cast

from contracts.phrases import Phrase
from hub_live.watchers.predicates.clock import Clock
from hub_live.watchers.predicates.syntax import Node
from hub_live.watchers.predicates.windows import Series, Unknown, Value, Window, number

Part = Callable[[float], Value]
"""Returns the value of a part of a predicate at a time, over the values of one watcher."""
Condition = Callable[[float], bool | Unknown]
"""Likewise, of a part that is true, false or unknown."""

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
    "*": operator.mul,
    "/": operator.truediv,
}


def build(node: Node, series: Mapping[str, Series], clock: Clock) -> Part:
    """Return a part, and those that it is made of, over the values of one watcher."""
    parts = [build(part, series, clock) for part in node.parts]
    if node.op == "clock":
        return clock.part(str(node.value))
    if node.op == "constant":
        return lambda now: node.value
    if node.op in ("and", "or"):
        conditions = [as_condition(*pair) for pair in zip(parts, node.parts, strict=True)]
        return lambda now: joined((part(now) for part in conditions), node.op == "or")
    if node.op == "not":
        return partial(_negation, as_condition(parts[0], node.parts[0]))
    if node.op in _CALCULATIONS:
        return partial(_calculation, node, _CALCULATIONS[node.op], parts[0], parts[1])
    if node.op in _OPERATORS:
        return partial(_comparison, node, _OPERATORS[node.op], parts[0], parts[1])
    own = series[str(node.value)]
    if node.op in _OF_SERIES:
        return partial(_OF_SERIES[node.op], own, node)
    length_s = node.window_s or 0.0
    return partial(_statistic, own, own.windows.setdefault(length_s, Window(length_s)), node)


def as_condition(part: Part, node: Node) -> Condition:
    """Return a part as a condition, whose value is true, false or unknown."""
    return cast("Condition", part) if node.kind == "truth" else partial(_condition, part, node)


def _condition(part: Part, node: Node, now: float) -> bool | Unknown:
    found = part(now)
    if isinstance(found, (bool, Unknown)):
        return found
    is_text = isinstance(found, str)
    template = "{text} is text, not true or false" if is_text else "{text} is a number, not true or false"
    return Unknown(Phrase(template, text=node.text))


def _unheard(node: Node, low: float = -math.inf, high: float = math.inf) -> Unknown:
    return Unknown(Phrase("there is a gap in the time of {text}", text=node.text), low, high)


def _age(series: Series, node: Node, now: float) -> Value:
    if series.at is None:
        return series.value
    age = now - series.at
    if series.is_retained:
        reason = Phrase("{name} was retained; when it was sent is not known", name=series.name)
        return Unknown(reason, low=age)
    if series.gap_until <= series.at:
        return age
    return _unheard(node, 0.0 if series.gap_until > now else now - series.gap_until, age)


def _changed(series: Series, node: Node, now: float) -> bool | Unknown:
    if node.window_s is None:
        return series.has_changed
    if series.changed_at + node.window_s > now:
        return True
    return _unheard(node) if series.gap_until + node.window_s > now else False


def _last(series: Series, node: Node, now: float) -> Value:
    if series.at is None or series.at + (node.window_s or 0.0) > now:
        return series.value
    return Unknown(Phrase("there is no value in the time of {text}", text=node.text))


_OF_SERIES: Final[Mapping[str, Callable[[Series, Node, float], Value]]] = {
    "name": lambda series, node, now: series.value,
    "age": _age,
    "changed": _changed,
    "last": _last,
}


def _statistic(series: Series, window: Window, node: Node, now: float) -> Value:
    """Make a number from the values of a window."""
    op = node.op
    count, total, low, high = window.sums(now)
    has_gap = series.gap_until + window.length_s > now
    if op == "count":
        return _unheard(node, low=count) if has_gap else float(count)
    if window.bad_at + window.length_s > now:
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
    if math.isfinite(result):
        return result
    return Unknown(Phrase("{text} is not a finite number", text=node.text))


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


def _calculation(
    node: Node, calculate: Callable[[float, float], float], left: Part, right: Part, now: float
) -> Value:
    one, two = number(node.parts[0].text, left(now)), number(node.parts[1].text, right(now))
    if isinstance(one, Unknown) or isinstance(two, Unknown):
        return _bounded(node.op, one, two)
    try:
        result = calculate(one, two)
    except ZeroDivisionError:
        return Unknown(Phrase("there is a division by zero at column {column}", column=node.column))
    if math.isfinite(result):
        return result
    return Unknown(Phrase("the result at column {column} is not finite", column=node.column))


def _bounded(op: str, left: float | Unknown, right: float | Unknown) -> Unknown:
    unknown = left if isinstance(left, Unknown) else right
    assert isinstance(unknown, Unknown)
    (left_low, left_high), (right_low, right_high) = _bounds(left), _bounds(right)
    if op == "+":
        return Unknown(unknown.reason, left_low + right_low, left_high + right_high)
    if op == "-":
        return Unknown(unknown.reason, left_low - right_high, left_high - right_low)
    return Unknown(unknown.reason)


def _comparison(
    node: Node, compare: Callable[[float, float], bool], left: Part, right: Part, now: float
) -> bool | Unknown:
    one, two, op = left(now), right(now), node.op
    if type(one) is float and type(two) is float:
        return compare(one, two)
    if op in ("==", "!=") and not isinstance(one, Unknown) and not isinstance(two, Unknown):
        return (type(one) is type(two) and one == two) is (op == "==")
    one, two = number(node.parts[0].text, one), number(node.parts[1].text, two)
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


def _bounds(value: Value) -> tuple[float, float]:
    if isinstance(value, float):
        return value, value
    return (value.low, value.high) if isinstance(value, Unknown) else (-math.inf, math.inf)


def _negation(part: Condition, now: float) -> bool | Unknown:
    found = part(now)
    return not found if isinstance(found, bool) else found


def joined(parts: Iterable[bool | Unknown], decisive: bool) -> bool | Unknown:
    """Return what ``and`` gives, which one part decides that is false, or ``or``, one that is true."""
    unknown = None
    for found in parts:
        if found is decisive:
            return decisive
        if unknown is None and isinstance(found, Unknown):
            unknown = found
    return unknown or not decisive
