"""The feed: everything of the hub that follows topics hears them here, each message once."""

import asyncio
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import islice
from typing import cast

from sqlmodel import Session, select

from bus.link import Link
from chat.tasks import happens, open_tasks, supervise
from contracts.access import covers, is_for_people
from contracts.answers.live import LinkName
from contracts.errors import NotFound, StorageError
from contracts.listeners import Listeners
from contracts.topics import check_filter, check_topic, is_exact
from contracts.wire import Json
from hub_agent.bus.home_link import HomeLink
from hub_agent.tables import HeardRow
from hub_live import limits
from hub_live.topics.decoding import Decoding, encode
from hub_live.topics.samples import Gap, Sample, SampleMemory
from hub_live.topics.source import Follower, LinkSource, Listener, TopicLink
from hub_registry.storage.store import Store

_log = logging.getLogger(__name__)


class Feed:
    """Messages of the bus and of the home broker, and the last value of each topic. Made by `open_feed`."""

    def __init__(
        self, sources: Mapping[LinkName, LinkSource], *, memory: SampleMemory, home: HomeLink | None
    ) -> None:
        # When a gap begins, and again when it ends.
        self.on_gap: Listeners[Callable[[Gap], None]] = Listeners()
        self._sources = sources
        for source in sources.values():
            source.on_gap = self.on_gap
        self._memory = memory
        self._home = home
        self._asked: OrderedDict[tuple[LinkName, str], tuple[Follower, asyncio.TimerHandle]] = OrderedDict()

    def latest(self, topic: str, link: LinkName = "bus") -> Sample | None:
        """Return the last sample of a topic that is followed; None where none was heard."""
        ring = self._memory.get(link, topic)
        return ring.samples[-1] if ring is not None and ring.samples else None

    def known(self, filter_: str, link: LinkName = "bus") -> list[Sample]:
        """Return the last sample of each topic that is followed and that a filter matches."""
        check_filter(filter_)
        known = [filter_] if is_exact(filter_) else self._memory.topics(link)
        matching = [topic for topic in known if covers(filter_, topic)]
        return [sample for topic in sorted(matching) if (sample := self.latest(topic, link)) is not None]

    def history(self, topic: str, link: LinkName = "bus", *, since: float | None = None) -> Sequence[Sample]:
        """Return the samples of a topic that is followed, oldest first, as far back as memory goes.

        Args:
            since: Unix seconds; None for all.
        """
        ring = self._memory.get(link, topic)
        if ring is None:
            return ()
        return [sample for sample in ring.samples if since is None or sample.at >= since]

    def refill(self, recorded: Iterable[Sample | Gap]) -> None:
        """Remember what an earlier run has heard of topics, and when it heard nothing; oldest first."""
        known: dict[tuple[LinkName, str], deque[Sample]] = {}
        missed: dict[LinkName, list[Gap]] = {}
        for each in recorded:
            if each.link not in self._sources:
                continue  # The home broker was there when it was recorded.
            if isinstance(each, Sample):
                known.setdefault((each.link, each.topic), deque(maxlen=limits.MOST_REFILLED)).append(each)
            else:
                missed.setdefault(each.link, []).append(each)
        for link, gaps in missed.items():
            first = next((gap.since for gap in self._source(link).gaps), math.inf)
            self._source(link).gaps.extendleft(gap for gap in reversed(gaps) if gap.since < first)
        for (link, topic), samples in known.items():
            if not self._memory.refill(self._memory.make(link, topic), samples):
                self._source(link).forget_routes()

    def per_minute(self, topic: str, link: LinkName = "bus") -> float | None:
        """Return how many messages of a topic came in a minute lately; None where too few are known."""
        ring = self._memory.get(link, topic)
        recent = list(islice(reversed(ring.samples), limits.RATE_MESSAGES)) if ring is not None else []
        if len(recent) < 2:
            return None
        # Up to now, and not to the last one: a topic that falls silent has fewer and fewer.
        return round(60 * (len(recent) - 1) / max(time.time() - recent[-1].at, 0.001), 2)

    def gaps(self, link: LinkName = "bus", *, since: float | None = None) -> Sequence[Gap]:
        """Return the gaps that lasted until then or begin later, oldest first; none without such a link.

        The first one may be the time before this start in which the hub did not run.
        """
        gaps = self._sources[link].gaps if link in self._sources else ()
        return [gap for gap in gaps if since is None or gap.until is None or gap.until >= since]

    def heard_until(self, links: Collection[LinkName], at: float) -> None:
        """Move the start of the last gap to the end of a recording, where it was of one link only."""
        gaps = self._source(*links).gaps if len(links) == 1 else ()
        if gaps and gaps[-1].since < at < (gaps[-1].until or math.inf):
            gaps[-1] = replace(gaps[-1], since=at)

    @contextmanager
    def follow(
        self,
        filter_: str,
        listener: Listener,
        *,
        link: LinkName = "bus",
        sees: Callable[[str], bool] | None = None,
    ) -> Iterator[None]:
        """Hand every message that matches a filter to a plain function while the context is open.

        What was heard before is not handed over; see `latest` and `known`. A first follower gets what the
        broker retains soon after. The listener runs in the event loop, in the order of arrival, and must
        not block: while it runs nothing is read, and the broker holds messages back.

        Args:
            sees: Whether a topic may be handed over; see `hub_live.topics.values.visible_to`.

        Raises:
            InvalidTopic: If that is not a topic filter.
            NotFound: If there is no home broker.
        """
        check_filter(filter_)
        source = self._source(link)
        follower = Follower(filter_, listener, sees)
        source.add(follower)
        try:
            yield
        finally:
            source.remove(follower)

    async def fetch(self, filter_: str, link: LinkName = "bus") -> list[Sample]:
        """Return the last sample of each topic that a filter matches, also of topics that were not followed.

        Those are followed for a while from now; at first only what the broker retains is known of them.

        Raises:
            InvalidTopic: If that is not a topic filter.
            NotFound: If there is no home broker.
        """
        check_filter(filter_)
        source = self._source(link)
        was_followed = source.subscribes(filter_)
        heard = asyncio.Event()
        self._ask(source, filter_)
        if not was_followed and source.link.connected:
            with self.follow(
                filter_, lambda _: heard.set() if is_exact(filter_) else None, link=link, sees=_kept(link)
            ):
                await source.settled()
                await happens(heard, within_s=limits.RETAINED_WAIT_S)
        return self.known(filter_, link)

    async def settled(self, link: LinkName = "bus") -> None:
        """Wait until the broker has confirmed all subscriptions, or is known to be away."""
        await self._source(link).settled()

    def refusal(self, filter_: str, link: LinkName = "bus") -> str | None:
        """Return why nothing is heard of a filter, or None where the link does not refuse it."""
        if (source := self._sources.get(link)) is None:
            return None
        refused = {**source.withheld, **source.refused}
        return next((reason for each, reason in refused.items() if covers(each, filter_)), None)

    def withhold(self, link: LinkName, topics: Mapping[str, str]) -> None:
        """Set the topics that are not received from now on, each with the reason."""
        self._source(link).withheld = topics

    def forget_rights(self) -> None:
        """Check the rights of all followers again: the owners of devices have changed."""
        for source in self._sources.values():
            source.forget_routes()

    async def publish(
        self, topic: str, payload: Json | bytes, *, link: LinkName = "bus", retain: bool = False, qos: int = 0
    ) -> None:
        """Publish a message; rights are for the caller to check.

        Args:
            payload: Bytes and text as they are, anything else as JSON.

        Raises:
            InvalidTopic: If that is not a topic to publish on.
            Disconnected: While there is no connection.
            NotFound: If there is no home broker.
        """
        check_topic(topic)
        data = encode(payload)
        source = self._source(link)
        if link == "home" and retain and self._home is not None:
            # What the hub retains there is recorded, so that it can be emptied.
            await self._home.publish(topic, data, confirmed=qos > 0)
        else:
            await source.link.publish(topic, data, qos=qos, retain=retain, confirmed=qos > 0)

    def require(self, link: LinkName) -> None:
        """Check that there is such a link.

        Raises:
            NotFound: If there is no home broker.
        """
        self._source(link)

    def _source(self, link: LinkName) -> LinkSource:
        source = self._sources.get(link)
        if source is None:
            raise NotFound(
                "no home broker is configured",
                hint="Values of devices, and of Home Assistant once First steps connect it, need none. "
                "The page Home Assistant connects it.",
            )
        return source

    def _ask(self, source: LinkSource, filter_: str) -> None:
        """Follow a filter for a while."""
        key = (source.name, filter_)
        if key in self._asked:
            follower, timer = self._asked.pop(key)
            timer.cancel()
        else:
            follower = Follower(filter_, _ignore, _kept(source.name))
            source.add(follower)
        kept_s = limits.ASKED_KEPT_S if is_exact(filter_) else limits.ASKED_KEPT_WILD_S
        timer = asyncio.get_running_loop().call_later(kept_s, self._stop_asking, key)
        self._asked[key] = (follower, timer)
        if len(self._asked) > limits.ASKED_KEPT:
            self._stop_asking(next(iter(self._asked)))

    def _stop_asking(self, key: tuple[LinkName, str]) -> None:
        if key in self._asked:
            follower, timer = self._asked.pop(key)
            timer.cancel()
            self._sources[key[0]].remove(follower)

    def stop_asking(self) -> None:
        """Unsubscribe from the topics that were followed only to answer a question."""
        for key in list(self._asked):
            self._stop_asking(key)


@dataclass(frozen=True)
class LastHeard:
    """The last time at which each link of this hub process had a connection; the time after it is a gap."""

    store: Store
    _: KW_ONLY
    instance: str

    async def read(self) -> dict[LinkName, float]:
        """Return the Unix time for each link that was ever heard."""

        def work(session: Session) -> dict[LinkName, float]:
            rows = session.exec(select(HeardRow).where(HeardRow.instance == self.instance))
            return {cast(LinkName, row.link): row.at for row in rows}

        return await self.store.read(work)

    async def write(self, links: Collection[LinkName]) -> None:
        """Note that these links have a connection now."""
        at = time.time()

        def work(session: Session) -> None:
            for link in links:
                session.merge(HeardRow(instance=self.instance, link=link, at=at))

        try:
            if links:
                await self.store.write(work)
        except StorageError as error:
            _log.error("the end of this run may be reported as a longer gap: %s", error)

    async def run(self, connected: Callable[[], Collection[LinkName]]) -> None:
        """Note which links have a connection, now and then until cancelled."""
        while True:
            await self.write(connected())
            await asyncio.sleep(limits.HEARD_STORED_S)


@asynccontextmanager
async def open_feed(
    bus: Link,
    home: HomeLink | None,
    heard: LastHeard,
    *,
    decoding: Decoding | None = None,
    others: Mapping[LinkName, TopicLink] | None = None,
) -> AsyncIterator[Feed]:
    """Hear the bus and the home broker for as long as the context is open.

    Args:
        heard: Until when the run before this one heard the links.
        decoding: Makes values of payloads; by default without patterns of topics.
        others: Links that are no brokers.
    """
    decode = decoding or Decoding()
    memory = SampleMemory(limits.FEED_BYTES)
    links: dict[LinkName, TopicLink] = {"bus": bus, **(others or {})}
    if home is not None:
        links["home"] = home.link
    before = await heard.read()
    sources = {name: LinkSource(name, link, memory=memory, decode=decode) for name, link in links.items()}
    async with AsyncExitStack() as stack:
        for source in sources.values():
            stack.push_async_callback(source.close)
        tasks = await stack.enter_async_context(open_tasks(contained=True))
        for name, source in sources.items():
            stack.callback(source.link.on_disconnected(source.lost))
            stack.callback(source.link.on_connected(source.found))
            now = time.time()
            if name in before or not source.link.connected:
                source.begin_gap(min(before.get(name, now), now))
            if source.link.connected:
                await source.found()
            supervise(tasks, source.run, name=f"topics of {name}")

        def connected() -> list[LinkName]:
            return [name for name, link in links.items() if link.connected]

        supervise(tasks, partial(heard.run, connected), name="last heard")
        feed = Feed(sources, memory=memory, home=home)
        stack.callback(feed.stop_asking)
        try:
            yield feed
        finally:
            await asyncio.shield(heard.write(connected()))


def _kept(link: LinkName) -> Callable[[str], bool] | None:
    # Each result of a call has a topic of its own.
    return is_for_people if link == "bus" else None


def _ignore(_: Sample) -> None:
    """Ignore a sample: it is in the ring."""
