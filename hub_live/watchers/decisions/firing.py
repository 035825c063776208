"""When a watcher fires, by the verdicts on its predicate: the one rule of live watchers and of back-tests."""

import math
from collections.abc import Iterable, Iterator, Mapping

from contracts.answers.live import LinkName
from hub_live import limits
from hub_live.topics import Gap, Sample, field
from hub_live.watchers.definition import WatchedValue
from hub_live.watchers.predicates import Evaluator, Verdict


def fires(verdict: Verdict, *, armed: bool) -> tuple[bool, bool]:
    """Return whether a watcher fires, and whether it does when its predicate is true next.

    It fires when the predicate becomes true, and again only after it was false. Unknown is neither: a
    predicate that is true, then unknown, then true was perhaps true all the time, so it does not fire twice.
    One that is true for a moment only, as by ``changed(door)``, fires each time.
    """
    if verdict.truth is None:
        return False, armed
    return armed and verdict.truth, verdict.momentary or not verdict.truth


def replay(
    evaluator: Evaluator,
    sources: Mapping[str, WatchedValue],
    recorded: Iterable[Sample | Gap],
    *,
    since: float = 0.0,
    until: float = 0.0,
) -> Iterator[tuple[float, Verdict]]:
    """Put what was recorded into a predicate, as it came; yield each verdict with its time.

    Args:
        recorded: Of any topics, in the order of time.
        since: From when on it is looked at also between the values; without names, from when on at all.
        until: When the recording ends, if that is after the last sample.
    """
    names: dict[tuple[LinkName, str], list[tuple[str, str | None]]] = {}
    for name, source in sources.items():
        names.setdefault((source.link, source.topic), []).append((name, source.path))
    last = math.inf if evaluator.predicate.names else since
    for each in recorded:
        # What ends at the very moment in which a value comes is seen together with the value.
        if isinstance(each, Gap):
            yield from _ticks(evaluator, max(last, since), each.since)
            concerned = [name for name, source in sources.items() if source.link == each.link]
            evaluator.gap(each.since, each.until, concerned)
            last = max(last, each.since)
        elif targets := names.get((each.link, each.topic)):
            yield from _ticks(evaluator, max(last, since), each.at)
            for name, path in targets:
                evaluator.put(name, each.at, field(each.value, path), retained=each.retained)
            yield each.at, evaluator.verdict(each.at)
            last = each.at
    yield from _ticks(evaluator, max(last, since), until)


def _ticks(evaluator: Evaluator, since: float, until: float) -> Iterator[tuple[float, Verdict]]:
    at = since + limits.TICK_S
    while evaluator.depends_on_time and at < until:
        if (verdict := evaluator.tick(at)) is not None:
            yield at, verdict
        step = max(limits.TICK_S, (at - since) / limits.SILENCE_PARTS)
        at += min(step, limits.CLOCK_S) if evaluator.has_clock else step
