"""Predicates against a plain evaluation, over random expressions, values and times."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_core.prompt import Household
from contracts.errors import InvalidMessage
from hub_live.watchers.predicates import Clock, Evaluator, parse
from tests.hub_live.watchers.naive import NAMES, VALUES, History, conditions, held, text_of, truth_of

_steps = st.sampled_from([0.0, 0.5, 1.0, 1.5, 29.0, 30.0, 61.0, 500.0, 700.0])
_events = st.lists(
    # Without a name, only time has passed.
    st.tuples(_steps, st.sampled_from([*NAMES, None]), st.sampled_from(VALUES)),
    min_size=1,
    max_size=40,
)
_T0 = 1_700_000_000.0


@settings(max_examples=200, deadline=None)
@example(
    tree=(">", ("mean", "a", "1m30s"), ("constant", 2.0)), events=[(0.0, "a", 0), (30.0, "a", 3)], for_s=0
)
@given(tree=conditions, events=_events, for_s=st.sampled_from([0, 0, 30, 90]))
def test_verdicts_are_those_of_a_plain_evaluation(tree, events, for_s) -> None:
    if not any(each in NAMES for each in _leaves(tree)):
        return
    text = text_of(tree) + (f' for "{for_s}s"' if for_s else "")
    evaluator, history = Evaluator(parse(text, NAMES)), History()
    truths: list[tuple[float, bool | None]] = []
    now = _T0
    for step, name, value in events:
        now += step
        if name is not None:
            history.put(name, now, value)
            evaluator.put(name, now, value)
        verdict = evaluator.verdict(now)
        truths.append((now, truth_of(tree, history, now)))
        history.just_changed.clear()
        truths.append((now, truth_of(tree, history, now)))
        expected = held(truths, for_s, now) if for_s else truths[-2][1]
        assert verdict.truth is expected, (text, now - _T0, verdict)
        assert verdict.reason if expected is None else not verdict.reason


def test_a_tick_says_only_what_time_has_changed() -> None:
    evaluator = Evaluator(parse('age(a) > "2s" or changed(b)', NAMES))
    for name in NAMES:
        evaluator.put(name, _T0, 1)
    evaluator.verdict(_T0)
    assert evaluator.tick(_T0 + 1) is None
    assert evaluator.tick(_T0 + 3).truth is True
    assert evaluator.tick(_T0 + 4) is None
    evaluator.put("a", _T0 + 5, 1)
    evaluator.put("b", _T0 + 5, 2)
    assert evaluator.verdict(_T0 + 5).momentary
    # What was true for a moment stays, until it is true for longer.
    assert evaluator.tick(_T0 + 6) is None
    assert evaluator.tick(_T0 + 8).momentary is False
    assert not Evaluator(parse("a > b", NAMES)).depends_on_time


def test_a_condition_that_a_change_interrupts_is_true_again_with_the_next_tick() -> None:
    evaluator = Evaluator(parse("not changed(a)", NAMES))
    for value in (1, 2):
        evaluator.put("a", _T0 + value, value)
    assert evaluator.verdict(_T0 + 2).truth is False
    assert evaluator.tick(_T0 + 3).truth is True
    assert evaluator.tick(_T0 + 4) is None


_certain = st.recursive(
    st.sampled_from(
        [
            'count(a, "1m30s") >= 3',
            'count(a, "10m") < 4',
            'count(b, "10m") != 5',
            'max(a, "1d") > 1',
            'min(b, "1d") <= 1',
            'age(a) > "1m"',
            'age(a) - age(b) < "10m"',
            "-age(b) < -600",
        ]
    ),
    lambda part: (
        st.tuples(part, st.sampled_from(["and", "or"]), part).map(lambda parts: f"({' '.join(parts)})")
        | part.map("not {}".format)
    ),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(
    text=_certain,
    events=st.lists(st.tuples(_steps, st.sampled_from(NAMES), st.integers(0, 3)), min_size=4, max_size=25),
    gap=st.tuples(st.integers(0, 25), st.integers(1, 8)),
    later=st.sampled_from([1.0, 50.0, 700.0]),
)
def test_what_is_said_after_a_gap_is_true_whatever_it_has_hidden(text, events, gap, later) -> None:
    predicate = parse(text, NAMES)
    knowing, hearing = Evaluator(predicate), Evaluator(predicate)
    first, last = gap[0], gap[0] + gap[1]
    now = before = _T0
    for number, (step, name, value) in enumerate(events):
        now += step
        knowing.put(name, now, value)
        if not first <= number < last:
            hearing.put(name, now, value)
        if number == first:
            hearing.gap(before, None)
        if number == last:
            hearing.gap(before, now)
        if number < first:
            before = now + 0.25
        assert hearing.verdict(now).truth in (None, knowing.verdict(now).truth)
    assert hearing.verdict(now + later).truth in (None, knowing.verdict(now + later).truth)


def _leaves(tree):
    for part in tree[1:]:
        yield from _leaves(part) if isinstance(part, tuple) else (part,)


_BERLIN = Clock(Household(time_zone="Europe/Berlin", latitude=52.5, longitude=13.4))


@pytest.mark.parametrize(
    ("text", "true_at"),
    [
        ('time between "22:00" and "06:00"', ["Thu 23:00", "Fri 00:00", "Fri 05:00", "Fri 23:00"]),
        ('time >= "22:00" or time < "00:01"', ["Thu 23:00", "Fri 00:00", "Fri 23:00"]),
        ('time == "07:00" and weekday != "thursday"', ["Fri 07:00"]),
        ('weekday == "friday" and sun == "down"', ["Fri 00:00", "Fri 05:00", "Fri 23:00"]),
        ('sun == "up" and a > 1', ["Thu 07:00", "Thu 12:00", "Fri 07:00", "Fri 12:00"]),
    ],
)
def test_the_clock_is_that_of_the_home(text: str, true_at: list[str]) -> None:
    evaluator, found = Evaluator(parse(text, NAMES), _BERLIN), []
    begin = datetime(2026, 3, 26, 6, tzinfo=UTC)
    evaluator.put("a", begin.timestamp(), 2)
    for hour in (0, 5, 16, 17, 22, 24, 29, 40):
        at = begin + timedelta(hours=hour)
        if evaluator.verdict(at.timestamp()).truth:
            found.append(f"{at.astimezone(ZoneInfo('Europe/Berlin')):%a %H:%M}")
    assert found == true_at


def test_without_the_place_of_the_home_the_sun_is_not_known() -> None:
    predicate = parse('sun == "up"', NAMES)
    assert "where the household is" in Evaluator(predicate).verdict(1e9).reason
    with pytest.raises(InvalidMessage, match="sun depends on where"):
        Clock().check(predicate.clock_names)
