"""Emptying all that the hub and its devices ever left on a broker."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from bus.link import Link, Message
from chat.tasks import happens
from contracts import topics
from contracts.answers.devices import Purged
from contracts.errors import Disconnected
from hub_registry import limits
from hub_registry.bus.hub_presence import HubPresence

_log = logging.getLogger(__name__)


Purger = Callable[[], Awaitable[Purged]]
"""Empties what the hub published on another broker."""


async def purge_bus(
    link: Link,
    presence: HubPresence,
    *,
    connected: Collection[str],
    further: Sequence[Purger] = (),
) -> Purged:
    """Empty every retained topic of ours, and read back that nothing is left.

    The hub's own status goes too, and does not come back until the hub is started again: neither as its
    goodbye nor as its Last Will. The broker holds the will of the present connection, so the hub first
    connects again without one. Devices that are connected publish again.

    Args:
        connected: Ids of the devices that are there.
        further: What else is to be emptied.

    Raises:
        Disconnected: If there is no broker, or the connection to it is lost; it may be tried again.
    """
    if not link.connected:
        raise Disconnected("the broker is not connected", hint="Try again when it is back.")
    retained = _RetainedTopics(link, presence)
    own = 0 if presence.silent else 1
    presence.silent = True
    try:
        await connect_again(link)
        emptied = set(filter(topics.has_place, await retained.gather(*topics.BRANCHES)))
        await retained.empty(emptied)
        theirs = tuple(branch for device in connected for branch in _branches(device))
        more, left = await retained.clear(*topics.BRANCHES, spare=lambda topic: topic.startswith(theirs))
        await link.send(presence.cleared(), confirmed=True)
    except BaseException:
        # Half purged is not purged: the hub goes on as before.
        presence.silent = False
        link.reconnect()
        raise
    purged = [Purged(len((emptied | more) - left) + own, tuple(sorted(left)), tuple(sorted(connected)))]
    purged += [await purger() for purger in further]
    total = Purged(
        sum(each.emptied for each in purged),
        tuple(topic for each in purged for topic in each.left),
        tuple(device for each in purged for device in each.connected),
    )
    _log.warning(
        "%d retained topics were emptied; the hub is silent until it is started again", total.emptied
    )
    return total


def _branches(device: str) -> tuple[str, ...]:
    return tuple(branch.removesuffix("#") for branch in topics.branches_of(device))


async def connect_again(link: Link) -> None:
    """Connect again, for another Last Will.

    Raises:
        Disconnected: If there is no broker, or none in time.
    """
    if not link.connected:
        raise Disconnected("the broker is not connected", hint="Try again when it is back.")
    again = asyncio.Event()

    async def note() -> None:
        again.set()

    forget = link.on_connected(note)
    try:
        link.reconnect()
        if not await happens(again, within_s=limits.PURGE_RECONNECT_S):
            raise Disconnected(
                "the broker did not accept the hub again in time", hint="Try again when it is back."
            )
    finally:
        forget()


class _RetainedTopics:
    """The retained topics of a broker, seen through one link.

    A broker answers subscriptions in their order. So when a topic has come that is known to be retained, and
    was subscribed to last, all others have come before. The hub's own status is such a topic.

    Others may subscribe to the same filters on the link, as watchers and captures do: the broker is asked
    again.

    Args:
        presence: Of the hub.
    """

    def __init__(self, link: Link, presence: HubPresence) -> None:
        self._link = link
        self._presence = presence
        self._looking = asyncio.Lock()

    async def gather(self, *filters: str) -> set[str]:
        """List the retained topics that match; the hub's own status is not among them.

        Raises:
            Disconnected: If the connection is lost, or the broker does not send all of them in time.
        """
        found: set[str] = set()
        done, lost = asyncio.Event(), asyncio.Event()

        def collect(message: Message) -> None:
            if message.retain and message.payload:
                found.add(message.topic)

        def finish(message: Message) -> None:
            if message.retain:
                done.set()

        def lose() -> None:
            lost.set()
            done.set()

        async with self._looking, AsyncExitStack() as stack:
            if not self._link.connected:
                raise Disconnected("the broker is not connected")
            stack.callback(self._link.on_disconnected(lose))
            await stack.enter_async_context(self._marked())
            for filter_ in filters:
                stack.push_async_callback(await self._link.subscribe(filter_, collect, again=True))
            try:
                async with asyncio.timeout(limits.PURGE_LOOK_S):
                    while not done.is_set():
                        await self._ask_for_marker(finish, done)
            except TimeoutError:
                raise Disconnected("the broker did not send its retained messages in time") from None
            if lost.is_set():
                raise Disconnected("the connection was lost while the broker sent its retained messages")
        found.discard(self._presence.topic)
        return found

    async def _ask_for_marker(self, finish: Callable[[Message], None], done: asyncio.Event) -> None:
        stop = await self._link.subscribe(self._presence.topic, finish, again=True)
        try:
            if not await happens(done, within_s=limits.MARKER_RETRY_S):
                _log.debug("the broker has not sent all that it retains yet")
        finally:
            await stop()

    @asynccontextmanager
    async def _marked(self) -> AsyncIterator[None]:
        """Keep the hub's status retained meanwhile, even if it was emptied by hand."""
        await self._link.send(self._presence.online())
        try:
            yield
        finally:
            if self._presence.silent:
                with suppress(Disconnected):  # the next connect empties it
                    await self._link.send(self._presence.cleared())

    async def empty(self, emptied: Iterable[str]) -> None:
        """Empty these retained topics on the broker.

        Raises:
            Disconnected: While there is no connection.
        """
        for topic in sorted(emptied):
            await self._link.publish(topic, b"", qos=1, retain=True)

    async def clear(
        self, *filters: str, spare: Callable[[str], bool] = lambda _: False
    ) -> tuple[set[str], set[str]]:
        """Empty all of ours that matches, and look again until nothing is left.

        On a broker that others use, too, they may have topics on a branch that is called like one of ours.

        Args:
            spare: Which topics to leave alone; called for each of them each time.

        Returns:
            What was emptied, and what came back however often it was emptied.

        Raises:
            Disconnected: If the connection is lost.
        """
        emptied: set[str] = set()
        left: set[str] = set()
        stubborn = 0
        for _ in range(limits.MOST_PURGE_ROUNDS):
            found = await self.gather(*filters)
            left = {topic for topic in found if topics.has_place(topic) and not spare(topic)}
            stubborn = stubborn + 1 if left <= emptied else 0
            if not left or stubborn > limits.STUBBORN_RETURNS:
                break
            await self.empty(left)
            emptied |= left
        return emptied - left, left
