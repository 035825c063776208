"""Back-tests: when a watcher would have fired on data that was recorded."""

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypedDict

from contracts.wire import Json
from hub_agent.live.topics import Gap, Sample
from hub_agent.live.watchers.firing import Firing, Source, replay
from hub_agent.live.watchers.predicates import Evaluator, Predicate

_MAX_FIRINGS: Final = 1_000
"""Firings that are listed; who fires more often needs another bound, not a longer list."""
_SLICE: Final = 1_000
_REST_S: Final = 0.0005
"""After each slice the thread rests, so that the hub's loop need not wait for the interpreter's lock."""


class WouldHaveFired(TypedDict):
    """One time that a watcher would have fired; Unix seconds."""

    at: float
    values: Mapping[str, Json]


class Missing(TypedDict):
    """A time in which nothing was recorded; Unix seconds."""

    since: float
    until: float | None


class Report(TypedDict):
    """The outcome of a back-test.

    Attributes:
        would_have_fired: The first thousand.
        fired: How many there are.
        samples: How many recorded values of the watcher's topics there are.
        evaluated: How often the predicate was evaluated.
        unknown: How often it was unknown.
        reason: Why it was unknown the last time.
    """

    would_have_fired: list[WouldHaveFired]
    fired: int
    evaluated: int
    unknown: int
    reason: str
    gaps: list[Missing]


async def backtest(
    predicate: Predicate,
    sources: Mapping[str, Source],
    recorded: Iterable[Sample | Gap],
    *,
    until: float | None = None,
) -> Report:
    """Run a predicate over recorded data in a thread.

    Args:
        sources: Of the names of the predicate; what was recorded of other topics is passed over.
        recorded: In the order of time; it is iterated in the thread.
        until: When the recording ends, if that is after the last sample.
    """
    cancelled = threading.Event()
    try:
        return await asyncio.to_thread(_run, predicate, sources, _sliced(recorded, cancelled), until)
    finally:
        cancelled.set()


def _run(
    predicate: Predicate, sources: Mapping[str, Source], recorded: Iterable[Sample | Gap], until: float | None
) -> Report:
    gaps: list[Missing] = []
    links = {sources[name].link for name in predicate.names}

    def noted() -> Iterator[Sample | Gap]:
        for each in recorded:
            if isinstance(each, Gap) and each.link in links:
                gaps.append({"since": each.since, "until": each.until})
            yield each

    report = Report(would_have_fired=[], fired=0, evaluated=0, unknown=0, reason="", gaps=gaps)
    firing = Firing()
    evaluated = unknown = 0
    for at, verdict in replay(Evaluator(predicate), sources, noted(), until=until):
        evaluated += 1
        if verdict.truth is None:
            unknown += 1
            report["reason"] = verdict.reason
        elif firing.fires(verdict):
            report["fired"] += 1
            if report["fired"] <= _MAX_FIRINGS:
                report["would_have_fired"].append({"at": at, "values": verdict.values})
    report["evaluated"], report["unknown"] = evaluated, unknown
    return report


def _sliced(recorded: Iterable[Sample | Gap], cancelled: threading.Event) -> Iterator[Sample | Gap]:
    """Yield what was recorded with rests between slices, until cancelled."""
    for number, each in enumerate(recorded, start=1):
        if number % _SLICE == 0:
            if cancelled.is_set():
                return
            time.sleep(_REST_S)
        yield each
