"""Back-tests: when a watcher would have fired on data that was recorded."""

import asyncio
import heapq
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from agent_core.times import utc
from contracts.answers.live import ShownGap
from contracts.answers.watchers import Fired, Report
from contracts.errors import StrawberryError
from contracts.wire import rfc3339
from hub_agent.settings import WatcherSettings
from hub_live import limits
from hub_live.captures.captures import Captures
from hub_live.captures.files.numbers import Lines, rested
from hub_live.captures.files.reading import each_once
from hub_live.topics import Feed, Gap, Sample, field
from hub_live.topics.samples import TopicChoice
from hub_live.topics.values import described_gap
from hub_live.watchers.decisions.evaluation import Evaluations
from hub_live.watchers.decisions.firing import fires, replay
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.decisions.steps import Steps
from hub_live.watchers.definition import WatchedValue, sources_of
from hub_live.watchers.phases import is_watching
from hub_live.watchers.predicates import UTC_CLOCK, Clock, Evaluator, Predicate, parse
from hub_live.watchers.tables import WatcherRow
from hub_registry.access.bearer import Bearer

_NAME: Final = "watchers"
"""Of the recording that is made for the watchers themselves."""

_log = logging.getLogger(__name__)


async def backtest(
    predicate: Predicate,
    sources: Mapping[str, WatchedValue],
    recorded: Iterable[Sample | Gap],
    clock: Clock = UTC_CLOCK,
    *,
    since: float = 0.0,
    until: float | None = None,
) -> Report:
    """Run a predicate over recorded data in a thread.

    Args:
        sources: Of the names of the predicate; what was recorded of other topics is passed over.
        recorded: In the order of time; it is iterated in the thread.
        since: When the recording begins, for a predicate of the clock alone.
        until: When the recording ends, if that is after the last sample.
    """
    cancelled = threading.Event()
    try:
        return await asyncio.to_thread(
            _run, predicate, sources, rested(recorded, cancelled), clock, since, until
        )
    finally:
        cancelled.set()


def _run(
    predicate: Predicate,
    sources: Mapping[str, WatchedValue],
    recorded: Iterable[Sample | Gap],
    clock: Clock,
    since: float,
    until: float | None,
) -> Report:
    gaps: list[Gap] = []
    links = {sources[name].link for name in predicate.names}
    lines, places = Lines(), dict[tuple[str, str], list[tuple[str, str | None]]]()
    for name in sorted(predicate.names):
        source = sources[name]
        places.setdefault((source.link, source.topic), []).append((name, source.path))

    def noted() -> Iterator[Sample | Gap]:
        for each in recorded:
            if isinstance(each, Gap) and each.link in links:
                gaps.append(each)
            elif isinstance(each, Sample):
                for name, path in places.get((each.link, each.topic), ()):
                    lines.put(name, each.at, field(each.value, path))
            yield each

    first: list[Fired] = []
    fired = evaluated = unknown = 0
    armed, reason = True, ""
    for at, verdict in replay(Evaluator(predicate, clock), sources, noted(), since=since, until=until or 0.0):
        evaluated += 1
        is_firing, armed = fires(verdict, armed=armed)
        if verdict.truth is None:
            unknown += 1
            reason = verdict.reason
        elif is_firing:
            fired += 1
            if fired <= limits.MOST_FIRINGS:
                first.append(Fired(at=utc(at), values=dict(verdict.values)))
    return Report(
        would_have_fired=first,
        fired=fired,
        evaluated=evaluated,
        unknown=unknown,
        reason=reason,
        gaps=_joined(gaps),
        lines=lines.drawn(),
    )


async def decide(
    report: Report, row: WatcherRow, sources: Mapping[str, WatchedValue], evaluations: Evaluations
) -> Report:
    """Return a report with decisions of the model on the first times that a watcher would have fired."""
    fired, steps = list(report.would_have_fired), Steps(evaluations)
    for number, each in enumerate(fired[: limits.MOST_DECIDED]):
        seen = {
            name: Seen(source, each.values[name], 0.0) if name in each.values else Seen(source)
            for name, source in sources.items()
        }
        if row.then:
            decision = steps.would_do(row, seen)
        else:
            decision = await evaluations.would_decide(row, seen, at=rfc3339(each.at))
        fired[number] = each.model_copy(update={"decision": decision})
    return report.model_copy(update={"would_have_fired": fired})


@dataclass(eq=False)
class Recordings:
    """Recorded values of watchers: their own recording, captures, and memory.

    Attributes:
        captures: Those of all people; one of them may be tested on.
        settings: How much is recorded for the watchers.
    """

    feed: Feed
    captures: Captures
    settings: WatcherSettings
    _kept: set[TopicChoice] | None = None

    async def keep(self, rows: Iterable[WatcherRow]) -> None:
        """Record what those of these watchers see that are watching, and nothing else, from now on."""
        seen = (source for row in filter(is_watching, rows) for source in sources_of(row).values())
        wanted = _topics(seen) if self.settings.record_days else set()
        if wanted == self._kept:
            return
        try:
            await self.captures.record(
                _NAME,
                wanted,
                keep_days=self.settings.record_days,
                keep_bytes=self.settings.record_mb * 1_000_000,
            )
            self._kept = wanted
        except StrawberryError as error:
            _log.error("what watchers see is not recorded: %s", error)

    async def recall(self, rows: Iterable[WatcherRow]) -> None:
        """Put back into memory what the windows of predicates held when the hub was stopped.

        Only where reading the recordings is a matter of seconds.
        """
        longest, seen = 0.0, list[WatchedValue]()
        for row in filter(is_watching, rows):
            with suppress(StrawberryError):  # its start tells
                kept = parse(row.predicate, row.topics).keep_s if row.predicate else {}
                longest = max(longest, *kept.values()) if kept else longest
                seen += sources_of(row).values() if kept else ()
        if not longest:
            return
        recorded = self.captures.recorded(_topics(seen), time.time() - min(longest, limits.RECALLED_S))
        try:
            found = await asyncio.to_thread(_in_time, recorded)
        except TimeoutError:
            _log.warning("what watchers saw before the start is not read again: that takes too long")
        else:
            self.feed.refill(found)

    def read(
        self, by: Bearer, sources: Iterable[WatchedValue], *, since: float, capture: str = ""
    ) -> Iterable[Sample | Gap]:
        """Return what all recordings and memory have of these values, in order; iterating it blocks.

        Args:
            since: Unix seconds.
            capture: Id of the one capture to read instead.
        """
        if capture:
            return self.captures.read(by.user, capture, of_all=by.is_admin)
        kept = _topics(sources)
        recent: list[Sample | Gap] = []
        for each in kept:
            heard = self.feed.history(each.topic, each.link, since=since)
            recent += [sample for sample in heard if not sample.recorded]
        for link in {each.link for each in kept}:
            recent += self.feed.gaps(link, since=since)
        recent.sort(key=_begins)
        # A recording is written once a second, and may have begun later than the hub.
        return each_once(heapq.merge(self.captures.recorded(kept, since), recent, key=_begins))


def _topics(sources: Iterable[WatchedValue]) -> set[TopicChoice]:
    return {TopicChoice(topic=source.topic, link=source.link) for source in sources}


def _in_time(recorded: Iterable[Sample | Gap]) -> list[Sample | Gap]:
    until, found = time.monotonic() + limits.RECALL_S, list[Sample | Gap]()
    for each in recorded:
        found.append(each)
        if time.monotonic() > until:
            raise TimeoutError
    return found


def _begins(item: Sample | Gap) -> float:
    return item.at if isinstance(item, Sample) else item.since


def _joined(gaps: Sequence[Gap]) -> list[ShownGap]:
    """Return gaps as they are shown, with those joined that overlap: each recording has its own."""
    together: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.since):
        last = together[-1] if together else None
        if last is None or (last.until is not None and gap.since > last.until):
            together.append(gap)
        elif last.until is not None and (gap.until is None or gap.until > last.until):
            together[-1] = replace(last, until=gap.until)
    return [described_gap(gap) for gap in together]
