"""Values that a watcher has seen, and the times in which it received nothing."""

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_core.times import local_time, utc
from contracts.answers.live import LinkName
from contracts.errors import StorageError
from contracts.phrases import Phrase
from hub_live import limits
from hub_live.topics import Feed, Gap, Sample
from hub_live.topics import field as field_of
from hub_live.topics.values import visible_to
from hub_live.watchers.decisions.evaluation import Evaluations
from hub_live.watchers.decisions.firing import replay
from hub_live.watchers.decisions.kinds import GAP
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.definition import sources_of
from hub_live.watchers.tables import DecisionRow, WatcherRow
from hub_live.watchers.values.watched import Watched

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class History:
    """Reads what is remembered of the topics, where the owner of a watcher may see it, and of their gaps."""

    feed: Feed
    evaluations: Evaluations

    def seen(self, watched: Watched) -> dict[str, Seen]:
        """Return what a model is shown of the values."""
        now = time.time()
        shown: dict[str, Seen] = {}
        for name, source in watched.sources.items():
            samples = self.of(watched, source.topic, source.link)[-limits.RECENT_VALUES - 1 :]
            values = [(now - each.at, field_of(each.value, source.path)) for each in samples]
            if values:
                (age, value), recent = values[-1], tuple(values[:-1])
                shown[name] = Seen(source, value, age, recent)
            else:
                shown[name] = Seen(source)
        return shown

    async def fetch(self, row: WatcherRow) -> dict[str, Seen]:
        """Return the present values of a watcher; topics that are not followed yet are asked for."""
        sources = sources_of(row)
        await asyncio.gather(
            *(self.feed.fetch(each.topic, each.link) for each in sources.values() if not each.ask)
        )
        return self.seen(Watched(row, sources, None, None))

    def prime(self, watched: Watched) -> None:
        """Feed the predicate with what is remembered already; what it was true of then is over."""
        places = {(source.link, source.topic) for source in watched.sources.values()}
        known = {place: self.of(watched, place[1], place[0]) for place in places}
        watched.heard |= {name for name, each in watched.sources.items() if known[each.link, each.topic]}
        if watched.evaluator is not None:
            recorded = heapq.merge(*known.values(), key=lambda sample: sample.at)
            # A second between two values matters only to whether a condition has held since.
            since = time.time() - watched.evaluator.predicate.for_s
            for _ in replay(watched.evaluator, watched.sources, recorded, since=since):
                pass

    def of(self, watched: Watched, topic: str, link: LinkName) -> Sequence[Sample]:
        return self.feed.history(topic, link) if self.sees(watched.row, link)(topic) else ()

    def sees(self, row: WatcherRow, link: LinkName) -> Callable[[str], bool]:
        return visible_to(self.evaluations.registry.directory, row.owner, link)

    def missed_by(self, watched: Watched) -> list[str]:
        """Return the last times in which data was missed since a model decided, for people."""
        last = watched.last
        since = watched.row.created_at if last is None or watched.has_failed else last.at
        links = {source.link for source in watched.sources.values()}
        gaps = [gap for link in links for gap in self.feed.gaps(link, since=since.timestamp())]
        return [self._period(gap) for gap in gaps if not is_short(gap)][-limits.MOST_GAPS :]

    def _period(self, gap: Gap) -> str:
        since = self._clock(gap.since)
        if gap.until is None:
            return Phrase("since {since}, until now", since=since)
        until = self._clock(gap.until)
        if since == until:
            return Phrase("{since}, for {n} s", since=since, n=round(gap.until - gap.since))
        return Phrase("{since} to {until}", since=since, until=until)

    async def tell(self, missed: Sequence[Watched], gap: Gap) -> None:
        """Record a gap in the histories of these watchers, and tell each owner once."""
        reason = Phrase("nothing was received from {since}", since=self._period(gap))
        try:
            for watched in missed:
                entry = DecisionRow(
                    watcher=watched.row.name,
                    at=utc(gap.until or gap.since),
                    decision=GAP.name,
                    reason=reason,
                )
                await self.evaluations.store.record(watched.row, entry)
        except StorageError as error:
            _log.error("a gap of the watchers is not in their history: %s", error)
        for owner in {watched.row.owner for watched in missed}:
            names = [watched.row.name for watched in missed if watched.row.owner == owner]
            await self.evaluations.announcer.gap(owner, names, reason)

    def _clock(self, at: float) -> str:
        return local_time(at, self.evaluations.clock.household.time_zone)


def is_short(gap: Gap) -> bool:
    return gap.until is not None and gap.until - gap.since <= limits.SHORT_GAP_S
