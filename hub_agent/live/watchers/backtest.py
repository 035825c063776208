"""Back-tests: when a watcher would have fired on data that was recorded."""

import asyncio
import heapq
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypedDict

from contracts.wire import Json, rfc3339
from hub_agent.live.captures.captures import Captures
from hub_agent.live.captures.recording import Followed
from hub_agent.live.topics import Feed, Gap, Sample
from hub_agent.live.watchers.firing import Firing, Source, replay
from hub_agent.live.watchers.predicates import Evaluator, Predicate
from hub_agent.settings import WatcherSettings
from hub_registry.access.accounts import User

_MAX_FIRINGS: Final = 1_000
"""Firings that are listed; who fires more often needs another bound, not a longer list."""
_NAME: Final = "watchers"
"""Of the recording that is made for the watchers themselves."""
_ROUNDED_S: Final = 0.002
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


class Recordings:
    """What is recorded of the values of watchers: for themselves, in captures, and in memory.

    Args:
        settings: How much is recorded for the watchers.
    """

    def __init__(self, feed: Feed, captures: Captures, settings: WatcherSettings) -> None:
        self._feed = feed
        self._captures = captures
        self._settings = settings
        self._kept: set[Followed] = set()

    async def keep(self, sources: Iterable[Source]) -> None:
        """Record these values from now on, and no others.

        Raises:
            StrawberryError: If they cannot be recorded.
        """
        wanted = {Followed(source.topic, source.link) for source in sources}
        wanted = wanted if self._settings.record_days else set()
        if wanted != self._kept:
            await self._captures.record(
                _NAME,
                wanted,
                keep_days=self._settings.record_days,
                keep_bytes=self._settings.record_mb * 1_000_000,
            )
            self._kept = wanted

    def capture(self, user: User, capture: str) -> Iterable[Sample | Gap]:
        """Return what one capture has; iterating it blocks.

        Raises:
            NotFound: If this person has no such capture.
        """
        return self._captures.read(user, capture)

    def since(self, since: float, sources: Iterable[Source]) -> Iterable[Sample | Gap]:
        """Return what all recordings and memory have of these values, in order; iterating it blocks."""
        kept = {Followed(source.topic, source.link) for source in sources}
        recent: list[Sample | Gap] = []
        for each in kept:
            recent += self._feed.history(each.topic, each.link, since=since)
        for link in {each.link for each in kept}:
            recent += self._feed.gaps(link, since=since)
        recent.sort(key=_begins)
        # A recording is written once a second, and may have begun later than the hub.
        return _each_once(heapq.merge(self._captures.recorded(kept, since), recent, key=_begins))


def _begins(item: Sample | Gap) -> float:
    return item.at if isinstance(item, Sample) else item.since


def _each_once(items: Iterable[Sample | Gap]) -> Iterator[Sample | Gap]:
    """Leave out what is both in a recording and in memory; a recorded time is a little rounded."""
    last: dict[tuple[str, str], Sample] = {}
    for item in items:
        if isinstance(item, Sample):
            before = last.get((item.link, item.topic))
            if before is not None and before.payload == item.payload and item.at - before.at < _ROUNDED_S:
                continue
            last[item.link, item.topic] = item
        yield item


def joined(gaps: Sequence[Missing]) -> list[dict[str, Json]]:
    """Return gaps as they are shown, with those joined that overlap: each recording has its own."""
    together: list[list[float]] = []
    for gap in sorted(gaps, key=lambda gap: gap["since"]):
        until = math.inf if gap["until"] is None else gap["until"]
        if together and gap["since"] <= together[-1][1]:
            together[-1][1] = max(together[-1][1], until)
        else:
            together.append([gap["since"], until])
    return [
        {"since": _rfc3339(since), "until": _rfc3339(until) if until < math.inf else None}
        for since, until in together
    ]


def _rfc3339(at: float) -> str:
    return rfc3339(datetime.fromtimestamp(at, UTC))
