"""Emptying all that the hub and its devices ever left on a broker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from bus.link import Link
from contracts import topics
from contracts.errors import Disconnected
from hub_registry.bus.hub_presence import HubPresence
from hub_registry.bus.retained import Purged, RetainedTopics

_log = logging.getLogger(__name__)

_RECONNECT_S: Final = 15.0

Purger = Callable[[], Awaitable[Purged]]
"""Empties what the hub published on another broker."""


async def purge_bus(
    link: Link,
    presence: HubPresence,
    retained: RetainedTopics,
    *,
    connected: Collection[str],
    further: Sequence[Purger] = (),
) -> Purged:
    """Empty every retained topic of ours, and read back that nothing is left.

    The hub's own status goes too, and does not come back until the hub is started again: neither as its
    goodbye nor as its Last Will. The broker holds the will of the present connection, so the hub connects
    anew without one first. What is true of the devices is theirs to say: those that are connected publish
    again.

    Args:
        connected: Ids of the devices that are there.
        further: What else is to be emptied.

    Raises:
        Disconnected: If there is no broker, or the connection to it is lost; it may be tried again.
    """
    if not link.connected:
        raise Disconnected("there is no broker to empty topics of", hint="Try again when it is back.")
    own = 0 if presence.silent else 1
    presence.silence()
    try:
        await _connect_anew(link)
        emptied = set(filter(topics.has_place, await retained.gather(*topics.BRANCHES)))
        await retained.empty(emptied)
        theirs = tuple(branch for device in connected for branch in _branches(device))
        more, left = await retained.clear(*topics.BRANCHES, spare=lambda topic: topic.startswith(theirs))
        nothing = presence.nothing()
        await link.publish(nothing.topic, nothing.payload, qos=nothing.qos, retain=True, confirmed=True)
    except BaseException:
        # Half purged is not purged: the hub goes on as before.
        presence.speak()
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


async def _connect_anew(link: Link) -> None:
    if not link.connected:
        raise Disconnected(
            "there is no broker whose topics could be emptied", hint="Try again when it is back."
        )
    anew = asyncio.Event()

    async def note() -> None:
        anew.set()

    forget = link.on_connected(note)
    try:
        link.reconnect()
        async with asyncio.timeout(_RECONNECT_S):
            await anew.wait()
    except TimeoutError:
        raise Disconnected(
            "the broker did not let the hub in again in time", hint="Try again when it is back."
        ) from None
    finally:
        forget()
