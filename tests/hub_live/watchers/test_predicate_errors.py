"""Predicates that cannot be read, and values that cannot be used: an error with its column, or unknown."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import PredicateError
from hub_live.watchers.predicates import Evaluator, Verdict, parse
from tests.hub_live.watchers.naive import VALUES

_NAMES = ["disk", "door", "motion", "errors"]

_REFUSED = [
    ("dsk > 95", 1, "unknown name 'dsk' at column 1; did you mean 'disk'?"),
    ("disk > 95 and " + "n" * 1_900 + " > 1", 15, "unknown name 'nnnn"),
    ('avg(disk, "10m") > 3', 1, "unknown function 'avg' at column 1; did you mean 'mean'?"),
    ("mean(disk) > 3", 1, "mean has other arguments"),
    ("mean(disk, 600) > 3", 12, "a window is a text"),
    ('mean(disk, "0s") > 3', 12, "'0s' is not between 1s and 31d"),
    ('mean(disk, "9999w") > 3', 12, "is not between"),
    ('mean(disk, "soon") > 3', 12, "'soon' is not a duration"),
    ('disk > 95 for "soon"', 15, "'soon' is not a duration"),
    ('age(door) == "open"', 14, "'open' is not a duration"),
    ("age(door) * age(door) > 1", 13, "can be multiplied and divided by a number only"),
    ('(disk > 1 for "2m") or door', 11, "unexpected 'for'"),
    ('time > "7"', 8, "'7' is no time of day"),
    ("time + 60 > 0", 1, "the time of day cannot be calculated with"),
    ('weekday == "mondy"', 12, "weekday is never 'mondy' at column 12; did you mean 'monday'?"),
    ('sun == "set"', 8, "sun is never 'set'"),
    ('disk between "1" and "2"', 1, "only time is between two times"),
    ("age(time) > 5", 1, "age has other arguments"),
    ("disk = 95", 6, "unexpected '='"),
    ("1 < disk < 5", 10, "unexpected '<'"),
    ("disk > 5m", 9, "unexpected 'm'"),
    ("disk >", 7, "ends too early"),
    ("(disk > 1", 10, "ends too early"),
    ("", 1, "is empty"),
    ("\0", 1, "unexpected"),
    ("disk > \u0663", 8, "unexpected"),
    ("disk + 1", 1, "a number is no condition"),
    ('disk > "full"', 8, "text cannot be compared by >"),
    ("1 < 2", 1, "uses no value"),
    ("10**308 * 10 > disk", 4, "unexpected '*'"),
    ("1e308 * 10 > disk", 1, "the number is larger than"),
    ("9" * 1_900 + " > disk", 1, "the number is larger than"),
    ('"1" * 10**6', 1, "text cannot be calculated with"),
    (" and ".join(["door"] * 10_000), 2_001, "has 89,995 characters"),
    ("(" * 1_990 + "disk", 1_995, "ends too early"),
    ("-" * 1_990 + "disk > 1", 1_941, "more than 50 operations in one another"),
    ("not " * 400 + "door", 1_401, "more than 50 operations in one another"),
    ("+".join(["disk"] * 300) + " > 1", 1, "more than 50 operations in one another"),
    (" or ".join(f'max(disk, "{n}s") > 1' for n in range(1, 20)), 376, "more than 16 different windows"),
]


@pytest.mark.parametrize(("text", "column", "message"), _REFUSED, ids=[text[:30] for text, *_ in _REFUSED])
def test_a_mistake_is_named_with_its_column(text, column, message) -> None:
    with pytest.raises(PredicateError) as raised:
        parse(text, _NAMES)
    assert message in raised.value.message
    assert f"at column {column}" in raised.value.message
    assert raised.value.position == column
    assert len(raised.value.message) < 200


def test_the_predicates_of_the_documentation_can_be_read() -> None:
    document = (Path(__file__).parents[3] / "docs" / "live.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```predicate\n(.*?)```", document, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) > 5
    for line in lines:
        parse(line, [*_NAMES, "state", "power", "temperature"])
    table = re.findall(r"`(\w+\(x(?:, \"10m\")?\))`", document)
    assert {call.partition("(")[0] for call in table} == {
        "age", "changed", "count", "last", "max", "mean", "min", "rate"
    }  # fmt: skip
    for call in table:
        parse(f"({call}) == 1", ["x"])


def _last(text: str, *values: object) -> Verdict:
    evaluator = Evaluator(parse(text, _NAMES))
    for at, value in enumerate(values):
        evaluator.put("disk", float(at), value)
    return evaluator.verdict(float(len(values)))


_WORDS = """disk door dsk age( mean( changed( count(door, "10m") "5m" 'on' ) ( and or not for true"""
_MORE = "1e15 0 9e99 - * / < >= == = é \0"
_soup = st.lists(st.sampled_from(f"{_WORDS} {_MORE}".split(" ")), max_size=40).map(" ".join)


@settings(max_examples=250, deadline=None)
@given(text=_soup | st.text(max_size=80), values=st.lists(st.sampled_from(VALUES), max_size=6))
def test_any_text_is_a_predicate_or_an_error_with_a_column(text, values) -> None:
    position, predicate = 1, None
    try:
        predicate = parse(text, _NAMES)
    except PredicateError as error:
        position = error.position
    assert 1 <= position <= len(text) + 1
    if predicate is None:
        return
    evaluator = Evaluator(predicate)
    for at, value in enumerate(values):
        evaluator.put("disk", float(at), value)
        evaluator.put("door", float(at), value)
        assert evaluator.verdict(float(at)).truth in (True, False, None)
        evaluator.tick(float(at) + 0.5)


@pytest.mark.parametrize(
    ("text", "values", "reason"),
    [
        ("disk > 95", [], "there is no value of disk yet"),
        ('age(disk) > "5m"', [], "there is no value of disk yet"),
        ('mean(disk, "1h") > 95', [], "there is no value of disk yet"),
        ("disk > 95", ["full"], "disk is text, not a number"),
        ("disk > 95", [True], "disk is true or false, not a number"),
        ("disk > 95", [None], "disk is null"),
        ("disk > 95", [{"value": 96}], "disk is not a single value"),
        ("disk > 95", [math.nan], "disk is not a finite number"),
        ("disk > 95", [-math.inf], "disk is not a finite number"),
        ("disk > 95", [10**400], "disk is not a finite number"),
        ("disk", [96], "disk is a number, not true or false"),
        ('last(disk, "1h") or disk', ["on"], 'last(disk, "1h") is text, not true or false'),
        ('max(disk, "1h") > 95', [1, "full", 2], "disk is text, not a number"),
        ('mean(disk, "1h") > 95', [1.7e308, 1.7e308], 'mean(disk, "1h") is not a finite number'),
        ('rate(disk, "1h") > 1', [5], 'rate(disk, "1h") needs two values'),
        ("disk / 0 > 1", [5], "there is a division by zero at column 1"),
        ("0 / disk > 1", [0], "there is a division by zero at column 1"),
        ("disk * disk > 1", [1e300], "the result at column 1 is not finite"),
        ("disk - disk / 0 > 1", [1e300], "there is a division by zero at column 8"),
        ("*".join(["1e15"] * 30) + " > disk", [5], "the result at column 1 is not finite"),
    ],
)
def test_what_cannot_be_known_has_its_reason(text, values, reason) -> None:
    verdict = _last(text, *values)
    assert (verdict.truth, verdict.reason) == (None, reason)


def test_an_unknown_part_does_not_hide_what_is_certain() -> None:
    assert _last("disk > 95 and door", 80).truth is False
    assert _last("disk > 95 or door", 96).truth is True
    assert _last("not (disk > 95 and door)", 80).truth is True
    assert _last("disk > 95 and door", 96).reason == "there is no value of door yet"
