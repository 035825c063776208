"""Back-tests: when a watcher would have fired on recorded data, by the rule of the live engine."""

import asyncio

import pytest

from contracts.answers.live import LinkName
from hub_live.topics import Gap, Sample
from hub_live.topics.values import described_gap
from hub_live.watchers.backtest import backtest
from hub_live.watchers.definition import WatchedValue
from hub_live.watchers.predicates import Evaluator, parse

_T0 = 1_700_000_000.0


_SOURCES = {
    "disk": WatchedValue(topic="nas/disk", value="value"),
    "door": WatchedValue(topic="door"),
    "motion": WatchedValue(topic="motion", link="home"),
}


def _sample(at: float, topic: str, payload: str, *, retained: bool = False) -> Sample:
    link: LinkName = "home" if topic == "motion" else "bus"
    return Sample(link, topic, _T0 + at, payload.encode(), retained)


def _disk(at: float, value: object) -> Sample:
    return _sample(at, "nas/disk", f'{{"value": {value}}}')


async def _fired(text: str, *recorded: Sample | Gap, until: float | None = None) -> list[float]:
    end = None if until is None else _T0 + until
    report = await backtest(parse(text, _SOURCES), _SOURCES, recorded, until=end)
    return [each.at.timestamp() - _T0 for each in report.would_have_fired]


async def test_it_fires_when_the_predicate_becomes_true_and_again_after_it_was_false() -> None:
    values = [90, 96, 97, 94, 98, 98]
    assert await _fired("disk > 95", *(_disk(10 * n, value) for n, value in enumerate(values))) == [10, 40]


async def test_unknown_between_two_times_true_does_not_make_it_fire_twice() -> None:
    assert await _fired("disk > 95", _disk(0, 96), _disk(1, '"?"'), _disk(2, 96)) == [0]


async def test_a_change_fires_each_time() -> None:
    doors = [_sample(n, "door", state) for n, state in enumerate(["open", "closed", "closed", "open"])]
    assert await _fired("changed(door)", *doors) == [1, 3]
    assert await _fired('changed(door, "1h")', *doors) == [1]


async def test_time_alone_makes_it_fire() -> None:
    motion = _sample(0, "motion", "1")
    assert await _fired('age(motion) > "5m"', motion, until=1_000) == [301]
    # After a long silence it is exact to a thousandth of that.
    day = 86_400.0
    assert await _fired('age(motion) > "1d"', motion, until=10 * day) == [pytest.approx(day, rel=0.001)]
    assert await _fired('age(motion) > "5m"', motion, until=200) == []
    assert await _fired('disk > 95 for "2m"', _disk(0, 96), _disk(60, 97), until=600) == [120]
    assert await _fired('disk > 95 for "2m"', _disk(0, 96), _disk(60, 1), _disk(61, 96), until=600) == [181]


async def test_what_leaves_a_window_as_a_value_comes_is_seen_together_with_it() -> None:
    """A count that is 10 all the time, of a value that comes each minute, does not rise each minute."""
    values = [_disk(60 * n, 1) for n in range(60)]
    assert await _fired('count(disk, "10m") >= 10', *values) == [540]


async def test_a_gap_is_reported_and_what_it_hides_is_unknown() -> None:
    values = [_disk(60 * n, 96) for n in range(20)]
    gap = Gap("bus", _T0 + 600, _T0 + 900)
    recorded: list[Sample | Gap] = [*values[:10], gap, *values[15:]]
    predicate = parse('mean(disk, "10m") > 95 and count(disk, "10m") > 99', _SOURCES)
    report = await backtest(predicate, _SOURCES, recorded)
    assert report.gaps == [described_gap(gap)]
    assert (report.fired, report.unknown, report.evaluated) == (0, 6, 16)
    assert report.reason == 'there is a gap in the time of mean(disk, "10m")'


async def test_a_gap_of_another_broker_hides_nothing() -> None:
    gap = Gap("home", _T0 + 1, _T0 + 2)
    assert await _fired('mean(disk, "10m") > 95', _disk(0, 90), gap, _disk(5, 200)) == [5]


async def test_the_values_at_each_firing_are_reported() -> None:
    report = await backtest(
        parse('disk > 95 and max(disk, "1h") > 97', _SOURCES),
        _SOURCES,
        [_disk(0, 98), _sample(1, "other", "1"), _disk(2, 20), _disk(3, 96)],
    )
    assert [each.values for each in report.would_have_fired] == [
        {"disk": 98, 'max(disk, "1h")': 98.0},
        {"disk": 96, 'max(disk, "1h")': 98.0},
    ]


async def test_a_long_backtest_ends_with_its_caller() -> None:
    """The data has no end; the thread stops after the slice in which its caller was cancelled."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless():
        try:
            number = 0
            while True:
                number += 1
                yield _disk(number, number % 100)
        finally:
            loop.call_soon_threadsafe(ended.set)

    task = loop.create_task(backtest(parse("disk > 95", _SOURCES), _SOURCES, endless()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()


def test_a_retained_value_has_no_known_age() -> None:
    evaluator = Evaluator(parse('age(door) > "5m"', ["door"]))
    evaluator.put("door", 0.0, "open", retained=True)
    assert evaluator.verdict(1.0).truth is None
    assert evaluator.verdict(301.0).truth is True


def test_a_value_that_is_delivered_again_is_not_another_one() -> None:
    evaluator = Evaluator(parse('count(door, "1h") > 1 or changed(door)', ["door"]))
    evaluator.put("door", 0.0, "open")
    evaluator.put("door", 10.0, "open", retained=True)
    assert evaluator.verdict(10.0).truth is False
    evaluator.put("door", 20.0, "closed", retained=True)
    assert evaluator.verdict(20.0).truth is True


def test_three_errors_are_three_errors_whatever_a_gap_has_hidden() -> None:
    evaluator = Evaluator(parse('count(door, "1h") >= 3', ["door"]))
    for at in range(2):
        evaluator.put("door", float(at), at)
    evaluator.gap(10.0, None)
    assert evaluator.verdict(15.0).truth is None
    evaluator.gap(10.0, 20.0)
    assert evaluator.verdict(25.0).truth is None
    evaluator.put("door", 30.0, 3)
    assert evaluator.verdict(30.0).truth is True
    # Those before the gap leave first, then the gap.
    assert evaluator.verdict(3_601.0).truth is None
    assert evaluator.verdict(3_620.0).truth is False


def test_after_a_restart_it_is_not_known_how_long_a_condition_has_held() -> None:
    evaluator = Evaluator(parse('disk > 95 for "2m"', ["disk"]))
    evaluator.gap(0.0, 10.0)
    evaluator.put("disk", 10.0, 96)
    assert evaluator.verdict(10.0).truth is None
    assert evaluator.tick(129.0) is None
    assert evaluator.verdict(130.0).truth is True


def test_a_gap_from_before_a_condition_held_does_not_interrupt_it() -> None:
    evaluator = Evaluator(parse('disk > 95 for "2m"', ["disk"]))
    evaluator.put("disk", 100.0, 96)
    assert evaluator.verdict(100.0).truth is False
    evaluator.gap(10.0, 20.0)
    assert evaluator.verdict(219.0).truth is False
    assert evaluator.verdict(220.0).truth is True


def test_memory_is_bounded_and_sums_do_not_drift() -> None:
    evaluator = Evaluator(parse('mean(disk, "1h") < 1', ["disk"]))
    evaluator.put("disk", 0.0, 1e17)
    for number in range(1, 200_000):
        evaluator.put("disk", number / 10, 0.1)
    window = evaluator._series["disk"].windows[3_600.0]
    assert len(window._older) + len(window._newer) <= 1_500
    verdict = evaluator.verdict(20_000.0)
    assert verdict.values['mean(disk, "1h")'] == pytest.approx(0.1, rel=1e-12)
    count = 36_000 * 0.002
    assert abs(window.sums(20_000.0)[0] - 36_000) <= count


async def test_the_clock_counts_and_needs_no_values() -> None:
    day = parse('time between "22:00" and "06:00"', _SOURCES)
    # _T0 is 22:13 UTC; the nights of the next two days begin there.
    report = await backtest(day, _SOURCES, (), since=_T0, until=_T0 + 2 * 86_400)
    begins = [each.at.strftime("%d %H:%M") for each in report.would_have_fired]
    assert begins == ["14 22:13", "15 22:00", "16 22:00"]
    door = _sample(3_600, "door", '"open"')
    assert await _fired('door == "open" and time between "22:30" and "23:30"', door, until=86_400) == [3_600]
