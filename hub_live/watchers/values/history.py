"""Values that a watcher has seen: for its predicate, for a model, and for people."""

import asyncio
import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contracts.answers.live import LinkName
from hub_live import limits
from hub_live.topics import Feed, Sample
from hub_live.topics import field as field_of
from hub_live.topics.values import visible_to
from hub_live.watchers.decisions.firing import replay
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.definition import sources_of
from hub_live.watchers.tables import WatcherRow
from hub_live.watchers.values.watched import Watched
from hub_registry.devices.directory import Directory


@dataclass(frozen=True)
class History:
    """Reads what is remembered of the topics, where the owner of a watcher may see it."""

    feed: Feed
    directory: Directory

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
        return visible_to(self.directory, row.owner, link)
