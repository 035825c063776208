"""What a broker retains, as somebody else than the hub sees it."""

import asyncio

from bus.link import Link
from contracts import topics
from tests.hub_registry.spokes import eventually


async def retained(link: Link) -> set[str]:
    """List all retained topics of ours."""
    found: set[str] = set()
    marker = topics.WATCHER.build(user="ann", watcher="marker")
    done = asyncio.Event()

    def collect(message) -> None:
        if message.retain and message.payload:
            found.add(message.topic)

    await link.publish(marker, b"{}", retain=True, confirmed=True)
    stops = [await link.subscribe(branch, collect) for branch in topics.BRANCHES]
    # Brokers answer subscriptions in their order, so all else has come before the marker.
    stops.append(await link.subscribe(marker, lambda message: done.set() if message.retain else None))
    await asyncio.wait_for(done.wait(), 30)
    for stop in stops:
        await stop()
    await link.publish(marker, b"", retain=True, confirmed=True)
    return found - {marker}


async def settled(link: Link, expected: set[str]) -> None:
    """Wait until exactly this is retained."""

    async def as_expected() -> bool:
        return await retained(link) == expected

    await eventually(as_expected)
