"""Times in which a watcher received nothing."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from agent_core.prompt import Household
from agent_core.times import local_time, utc
from contracts.errors import StorageError
from contracts.phrases import Phrase
from hub_live import limits
from hub_live.topics import Feed, Gap
from hub_live.watchers.decisions.evaluation import Evaluations
from hub_live.watchers.decisions.kinds import GAP
from hub_live.watchers.tables import DecisionRow
from hub_live.watchers.values.watched import Watched

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gaps:
    """Names the gaps of a watcher, and tells its owner of them."""

    feed: Feed
    evaluations: Evaluations
    household: Household

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
        return Phrase("{since} to {until}", since=since, until=self._clock(gap.until))

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
        return local_time(at, self.household.time_zone)


def is_short(gap: Gap) -> bool:
    return gap.until is not None and gap.until - gap.since <= limits.SHORT_GAP_S
