"""One broker as the feed hears it: subscriptions that followers share, and the dispatch of messages."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import chain
from typing import Final, Protocol

from bus.link import Message
from contracts import topics
from contracts.access import covers
from contracts.answers.live import LinkName
from contracts.errors import Forbidden, StrawberryError
from contracts.listeners import Listeners
from contracts.rates import complaint_limit
from contracts.topics import is_exact
from contracts.wire import Json
from hub_live import limits
from hub_live.topics.samples import Gap, Ring, Sample, SampleMemory

Listener = Callable[[Sample], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, slots=True)
class Follower:
    """A filter, and who gets its samples.

    Attributes:
        sees: Whether a topic may be shown to this follower; asked once for each topic, not for each message,
            and again after `LinkSource.forget_routes`.
    """

    filter: str
    listener: Listener
    sees: Callable[[str], bool] | None


@dataclass(eq=False, slots=True)
class _Route:
    """Where the messages of one topic go.

    Attributes:
        through: The subscription that counts: a broker may send a copy for each that matches.
    """

    topic: str
    ring: Ring
    through: str | None
    listeners: tuple[Listener, ...]


_NOWHERE: Final = _Route("", Ring(), None, ())


class TopicLink(Protocol):
    """The part of a link that a source needs; see `bus.link.Link`."""

    @property
    def connected(self) -> bool:
        """Return whether it is connected."""

    async def subscribe(
        self, filter_: str, handler: Callable[[Message], None], /
    ) -> Callable[[], Awaitable[None]]:
        """Hand messages to a handler; return what ends that."""

    async def publish(
        self, topic: str, payload: bytes, /, *, qos: int = 1, retain: bool = False, confirmed: bool = True
    ) -> None:
        """Publish a message."""

    def on_connected(self, callback: Callable[[], Awaitable[None]], /) -> Callable[[], None]:
        """Await a function after each connect; return its undoing."""

    def on_disconnected(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call a function after each loss of the connection; return its undoing."""


@dataclass(eq=False)
class LinkSource:
    """The followers of one link.

    Subscriptions are made by `run`, so that followers come and go in plain functions.

    Attributes:
        decode: Makes values from payloads.
        gaps: The latest gaps, oldest first; the last one may still last.
        on_gap: Called when a gap begins and when it ends.
        heard: When a message last arrived, or the connection was made, Unix seconds.
        refused: The filters that the broker refuses, with its reason.
        withheld: Topics of which nothing is heard, with the reason.
    """

    name: LinkName
    link: TopicLink
    _: KW_ONLY
    memory: SampleMemory
    decode: Callable[[str, bytes], Json]

    def __post_init__(self) -> None:
        self.gaps: deque[Gap] = deque(maxlen=limits.MOST_LINK_GAPS)
        self.on_gap: Listeners[Callable[[Gap], None]] = Listeners()
        self.heard = 0.0
        self.refused: dict[str, str] = {}
        self.withheld: Mapping[str, str] = {}
        # By filter, those of single topics apart: a home has thousands of them, and few with wildcards.
        self._exact: dict[str, list[Follower]] = {}
        self._wild: dict[str, list[Follower]] = {}
        # By filter, in the order of subscription, with the function that ends it.
        self._subscribed: dict[str, Callable[[], Awaitable[None]] | None] = {}
        self._routes: dict[str, _Route] = {}
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._complaints = complaint_limit()

    def add(self, follower: Follower) -> None:
        """Hand messages to a follower from now on."""
        self._followers(follower.filter).setdefault(follower.filter, []).append(follower)
        self._change(follower.filter)

    def remove(self, follower: Follower) -> None:
        """Hand no more messages to a follower."""
        followers = self._followers(follower.filter)
        followers[follower.filter].remove(follower)
        if not followers[follower.filter]:
            del followers[follower.filter]
        self._change(follower.filter)

    def _followers(self, filter_: str) -> dict[str, list[Follower]]:
        return self._exact if is_exact(filter_) else self._wild

    def subscribes(self, filter_: str) -> bool:
        """Return whether all that a filter matches is subscribed."""
        return all(
            any(covers(each, own) and stop is not None for each, stop in self._subscribed.items())
            for own in _at_broker(self.name, filter_)
        )

    async def settled(self) -> None:
        await self._settled.wait()

    async def run(self) -> None:
        """Keep the subscriptions as the followers need them, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            followed = [*self._wild, *self._exact]
            wanted = _fewest(own for each in followed for own in _at_broker(self.name, each))
            new = [each for each in wanted if each not in self._subscribed]
            for start in range(0, len(new), limits.SUBSCRIPTIONS_AT_ONCE):
                await asyncio.gather(*map(self._subscribe, new[start : start + limits.SUBSCRIPTIONS_AT_ONCE]))
            for filter_ in [each for each in self._subscribed if each not in wanted]:
                stop = self._subscribed.pop(filter_)
                self._forget_routes(filter_)
                if stop is not None:
                    await stop()
                self._forget_below(filter_)
            if not self._changed.is_set():
                self._settled.set()

    async def close(self) -> None:
        for stop in filter(None, self._subscribed.values()):
            await stop()

    def begin_gap(self, since: float) -> None:
        self._note(Gap(self.name, since))

    async def found(self) -> None:
        """End a gap: there is a connection again."""
        self.heard = time.time()
        if self.gaps and self.gaps[-1].until is None:
            self._note(Gap(self.name, self.gaps.pop().since, time.time()))

    def lost(self) -> None:
        # The connection may have been lost a while ago.
        self.begin_gap(max(self.heard, time.time() - limits.LOSS_UNNOTICED_S))

    def _note(self, gap: Gap) -> None:
        self.gaps.append(gap)
        for listener in self.on_gap:
            listener(gap)

    def forget_routes(self) -> None:
        """Check again who may see what, with the next message of each topic."""
        self._routes.clear()

    def _change(self, filter_: str) -> None:
        self._forget_routes(filter_)
        self._settled.clear()
        self._changed.set()

    def _forget_routes(self, filter_: str) -> None:
        """Forget how the topics of a filter are dispatched: it is found out again with their next message."""
        if is_exact(filter_):
            self._routes.pop(filter_, None)
        else:
            self._routes.clear()

    def _forget_below(self, filter_: str) -> None:
        """Forget what was last heard of topics that are not heard any more: it may be wrong by now."""
        known = [filter_] if is_exact(filter_) else list(self.memory.topics(self.name))
        for topic in known:
            if covers(filter_, topic) and not self._following(topic):
                self.memory.forget(self.name, topic)

    async def _subscribe(self, filter_: str) -> None:
        self._subscribed[filter_] = None
        self._forget_routes(filter_)
        try:
            self._subscribed[filter_] = await self.link.subscribe(filter_, partial(self._arrived, filter_))
            self.refused.pop(filter_, None)
        except Forbidden as error:
            del self._subscribed[filter_]
            self.refused[filter_] = error.message
            _log.error("%s", error)

    def _arrived(self, through: str, message: Message) -> None:
        route = self._routes.get(message.topic)
        if route is None:
            route = self._route(message.topic)
        if route.through != through:
            # A further copy, or a topic that no follower may see.
            return
        self.heard = at = time.time()
        sample = Sample(self.name, route.topic, at, message.payload, message.retain, self.decode)
        if not self.memory.add(route.ring, sample):
            self._routes.clear()
        for listener in route.listeners:
            try:
                listener(sample)
            except StrawberryError as error:
                if self._complaints.take(route.topic):
                    _log.warning("a follower of %.200r failed: %.500s", route.topic, error)
            except Exception:  # noqa: BLE001 - the other followers get it all the same
                if self._complaints.take(route.topic):
                    _log.exception("a follower of %.200r failed", route.topic)

    def _following(self, topic: str) -> list[Follower]:
        wild = (followers for filter_, followers in self._wild.items() if covers(filter_, topic))
        return [*self._exact.get(topic, ()), *chain.from_iterable(wild)]

    def _route(self, topic: str) -> _Route:
        through: str | None = topic
        # One that the broker has not confirmed yet counts only where there is no other.
        if self._subscribed.get(topic) is None:
            wild = [each for each in self._subscribed if not is_exact(each) and covers(each, topic)]
            own = topic if topic in self._subscribed else None
            through = next((each for each in wild if self._subscribed[each] is not None), own)
            through = through or next(iter(wild), None)
        listeners = tuple(
            each.listener for each in self._following(topic) if each.sees is None or each.sees(topic)
        )
        if len(self._routes) >= limits.MOST_ROUTES:
            # Each result of a call has a topic of its own.
            self._routes.clear()
        route = _NOWHERE
        if listeners:
            route = _Route(topic, self.memory.make(self.name, topic), through, listeners)
        self._routes[topic] = route
        return route


def _at_broker(link: LinkName, filter_: str) -> tuple[str, ...]:
    """Return the filters to subscribe for one of a follower: on the bus the hub has no right to ``#``.

    The registry subscribes to filters of the bus, too, and what the broker retains comes with the first
    subscription to a filter only. So those with ``+`` get ``/#`` behind them: it matches the same, and more.
    """
    first, slash, rest = filter_.partition("/")
    if link != "bus":
        return (filter_,)
    if first == "#":
        return topics.BRANCHES
    if not is_exact(filter_) and not filter_.endswith("#"):
        rest += "/#"
    if first != "+":
        return (f"{first}{slash}{rest}",)
    return tuple(f"{branch.partition('/')[0]}{slash}{rest}" for branch in topics.BRANCHES)


def _fewest(filters: Iterable[str]) -> dict[str, None]:
    """Return filters without those that another one covers, in their order."""
    unique = dict.fromkeys(filters)
    wild = [each for each in unique if not is_exact(each)]
    return dict.fromkeys(
        filter_
        for filter_ in unique
        if not any(other != filter_ and covers(other, filter_) for other in wild)
    )
