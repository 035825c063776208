"""A plain evaluation of predicates over everything that ever arrived, to compare with, and random ones."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Tree = tuple[Any, ...]
NAMES = ("a", "b")
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CALCULATE = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_EXTREMES: dict[str, Any] = {"min": min, "max": max}
_WINDOWS = {"1s": 1.0, "30s": 30.0, "1m30s": 90.0, "10m": 600.0}
# Sums of these are exact in any order.
_CONSTANTS = (0.0, 0.5, 1.0, 2.0, 3.0, 30.0, 90.0)
VALUES = (0, 1, 2, 3, 1.5, -2, 90, 1e300, "on", "off", True, False, None, math.nan, math.inf, 10**400, [1])


@dataclass
class History:
    """Everything that arrived, and the names that changed just now."""

    values: dict[str, list[tuple[float, Any]]] = field(default_factory=lambda: {name: [] for name in NAMES})
    changed: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in NAMES})
    just_changed: set[str] = field(default_factory=set)

    def put(self, name: str, at: float, value: Any) -> None:
        known = self.values[name]
        if known and repr(_plain(known[-1][1])) != repr(_plain(value)):
            self.changed[name].append(at)
            self.just_changed.add(name)
        known.append((at, value))


def text_of(tree: Tree) -> str:
    match tree:
        case ("constant", value):
            return f'"{value}"' if isinstance(value, str) else str(value).lower()
        case ("name", name):
            return str(name)
        case ("not" | "minus", part):
            return f"({'not' if tree[0] == 'not' else '-'} {text_of(part)})"
        case ("age" | "changed", name):
            return f"{tree[0]}({name})"
        case (function, str(name), str(window)):
            return f'{function}({name}, "{window}")'
        case (op, left, right):
            return f"({text_of(left)} {op} {text_of(right)})"
    raise AssertionError(tree)


def truth_of(tree: Tree, history: History, now: float) -> bool | None:
    """Return what a tree gives as a condition; None for unknown."""
    value = _evaluate(tree, history, now)
    return value if isinstance(value, bool) else None


def held(truths: Sequence[tuple[float, bool | None]], for_s: float, now: float) -> bool | None:
    """Return whether a condition held without interruption, by what it was since each moment."""
    until = [later for later, _ in truths[1:]] + [math.inf]
    if now - truths[0][0] < for_s:
        return False
    within = [truth for (_, truth), end in zip(truths, until, strict=True) if end > now - for_s]
    return False if False in within else None if None in within else True


def _plain(value: Any) -> Any:
    """Return a value so that those that are the same to predicates look the same."""
    return float(value) if type(value) is int and value < 1e308 else value


def _number(value: Any) -> float | None:
    if type(value) not in (int, float) or value != value or abs(value) > 1.7e308:
        return None
    return float(value)


def _evaluate(tree: Tree, history: History, now: float) -> Any:
    match tree:
        case ("constant", value):
            return value
        case ("name", name):
            return history.values[name][-1][1] if history.values[name] else None
        case ("age", name):
            return now - history.values[name][-1][0] if history.values[name] else None
        case ("changed", name):
            return name in history.just_changed
        case ("changed", str(name), window):
            return any(at + _WINDOWS[window] > now for at in history.changed[name])
        case ("not", part):
            truth = truth_of(part, history, now)
            return None if truth is None else not truth
        case ("minus", part):
            value = _number(_evaluate(part, history, now))
            return None if value is None else -value
        case ("and" | "or", left, right):
            truths = [truth_of(part, history, now) for part in (left, right)]
            decisive = tree[0] == "or"
            return decisive if decisive in truths else None if None in truths else not decisive
        case ("==" | "!=", left, right):
            values = [_evaluate(part, history, now) for part in (left, right)]
            if any(_number(value) is None and not isinstance(value, str | bool) for value in values):
                return None
            same = (
                type(values[0]) is type(values[1])
                if isinstance(values[0], str | bool)
                else (not isinstance(values[1], str | bool))
            )
            return (same and values[0] == values[1]) is (tree[0] == "==")
        case (function, str(name), str(window)):
            return _statistic(function, history.values[name], _WINDOWS[window], now)
        case (op, left, right):
            one, other = (_number(_evaluate(part, history, now)) for part in (left, right))
            if one is None or other is None or (op == "/" and other == 0):
                return None
            return _COMPARE[op](one, other) if op in _COMPARE else _number(_CALCULATE[op](one, other))
    raise AssertionError(tree)


def _statistic(function: str, known: list[tuple[float, Any]], window_s: float, now: float) -> Any:
    inside = [(at, _number(value)) for at, value in known if at + window_s > now]
    if function == "count":
        return float(len(inside))
    if function == "last":
        return known[-1][1] if inside else None
    if not known or any(value is None for _, value in inside):
        return None
    latest_at, latest = known[-1][0], _number(known[-1][1])
    numbers = [value for _, value in inside if value is not None]
    if function == "rate":
        before = [(at, _number(value)) for at, value in known if at + window_s <= now][-1:]
        if not inside or latest is None:
            return None if latest is None else 0.0
        oldest = next((each for each in (*inside[:1], *before) if each[0] < latest_at), None)
        return (
            None
            if oldest is None or oldest[1] is None
            else _number((latest - oldest[1]) / (latest_at - oldest[0]))
        )
    if not numbers:
        return latest
    return _number(sum(numbers) / len(numbers) if function == "mean" else _EXTREMES[function](numbers))


_names = st.sampled_from(NAMES)
_windows = st.sampled_from(sorted(_WINDOWS))
_constants = st.sampled_from(_CONSTANTS).map(lambda value: ("constant", value))
_texts = st.sampled_from(["on", "off", True, False]).map(lambda value: ("constant", value))
_latest = st.tuples(st.just("name"), _names)
_statistics = st.tuples(st.sampled_from(["min", "max", "mean", "rate", "count", "last"]), _names, _windows)
_numbers = st.recursive(
    _constants | _latest | _statistics,
    lambda part: st.tuples(st.sampled_from("+-*/"), part, part) | st.tuples(st.just("minus"), part),
    max_leaves=3,
)
_ages = st.tuples(st.just("age"), _names)
_durations = st.one_of(
    _ages,
    st.tuples(st.sampled_from("+-"), _ages, _numbers),
    st.tuples(st.sampled_from("*/"), _ages, _constants),
    st.tuples(st.just("-"), _ages, _ages),
    st.tuples(st.just("minus"), _ages),
)
_ops = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
_orders = st.sampled_from(["<", "<=", ">", ">="])
conditions = st.recursive(
    st.one_of(
        st.tuples(_ops, _numbers, _numbers),
        st.tuples(_orders, _durations, _numbers),
        st.tuples(_orders, _numbers, _durations),
        st.tuples(st.sampled_from(["==", "!="]), _latest, _texts),
        st.tuples(st.just("changed"), _names),
        st.tuples(st.just("changed"), _names, _windows),
        _latest,
    ),
    lambda part: st.tuples(st.sampled_from(["and", "or"]), part, part) | st.tuples(st.just("not"), part),
    max_leaves=4,
)
