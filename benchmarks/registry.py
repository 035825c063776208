"""What many spokes cost the hub: registering all at once, and being alive."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Final

from sqlalchemy import func
from sqlmodel import select

from benchmarks.brokers import Bus, embedded_bus, mosquitto_bus, peer
from benchmarks.crowd import METHODS, Spoke, enrol, make_spokes, publish
from benchmarks.measure import Effort
from benchmarks.table import Reach, Row, not_measured
from bus.link import Link, open_link
from contracts import topics
from hub_registry.bus.hub_presence import HubPresence
from hub_registry.bus.service import RegistryService
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from hub_registry.storage.tables import RegistrationRow
from identity.envelope import Seal
from identity.keys import KeyPair
from tests.mosquitto import HINT, find_mosquitto

_SPOKES: Final = 1_000
_PATIENCE_S: Final = 120
_ALIVE: Final = 500
_ALIVE_S: Final = 10


@asynccontextmanager
async def _hub(directory: Path, bus: Bus, spokes: list[Spoke]) -> AsyncIterator[tuple[Registry, Link]]:
    """Run a hub that knows these spokes, and a link for them."""
    database = directory / "hub.db"
    settings = RegistrySettings(database=database)
    key = KeyPair.generate()
    await enrol(database, spokes)
    async with open_registry(settings, key=key) as registry:
        presence = HubPresence(Seal(registry.hub_id, key), instance="main")
        async with (
            open_link(bus.link("hub"), will=presence.will) as link,
            open_link(bus.link("spokes")) as outside,
            asyncio.TaskGroup() as tasks,
        ):
            service = RegistryService(registry, link=link, presence=presence)
            there = asyncio.Event()
            await outside.subscribe(topics.HUB_STATUS.filter(), lambda _: there.set())
            serving = tasks.create_task(service.run(), name="registry")
            try:
                # It says so once it has subscribed; what is sent before would only be heard as retained.
                await there.wait()
                yield registry, outside
            finally:
                serving.cancel()


async def _registering(directory: Path, bus: Bus, effort: Effort) -> Row:
    """Measure from the first message until the last method is searchable and all are in the database."""
    spokes = make_spokes(effort.size(_SPOKES))
    total = len(spokes) * METHODS
    async with _hub(directory, bus, spokes) as (registry, link):
        messages = [
            message for spoke in spokes for message in spoke.messages(registry.hub_id, with_skills=True)
        ]
        start = time.perf_counter()
        await publish(link, messages)
        async with asyncio.timeout(_PATIENCE_S):
            while registry.search.waiting or await _stored(registry) < total:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert registry.search.total() == total
        took = time.perf_counter() - start
    name = f"{len(spokes):,} spokes × {METHODS} methods register over {bus.name}, until all are searchable"
    return Row(name, took, "s", Reach(most=15))


async def _stored(registry: Registry) -> int:
    return METHODS * await registry.store.read(
        lambda session: session.exec(select(func.count()).select_from(RegistrationRow)).one()
    )


async def _alive(directory: Path, bus: Bus, effort: Effort) -> Row:
    """Measure the hub's share of one core while spokes send only heartbeats."""
    spokes, seconds = make_spokes(effort.size(_ALIVE)), effort.repeats(_ALIVE_S)
    async with _hub(directory, bus, spokes) as (registry, link):
        await publish(
            link,
            (message for spoke in spokes for message in spoke.messages(registry.hub_id, with_skills=False)),
        )
        beats = {
            "url": bus.url,
            "token": bus.token("heartbeats", "hub"),
            "spokes": len(spokes),
            "seconds": seconds,
        }
        async with peer("heartbeats", beats) as sender:
            wall, cpu = time.perf_counter(), time.process_time()
            await sender.process.wait()
            share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        heard = sum(entry.last_heartbeat is not None for entry in registry.directory.entries())
        assert heard == len(spokes), heard
    name = f"hub CPU with {len(spokes)} spokes at one heartbeat a second over {bus.name}"
    return Row(name, share * 100, "% of a core", Reach(most=15))


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; takes about a minute.

    Args:
        directory: An empty one for brokers and databases.
    """
    made = []
    for number, (measure, open_bus) in enumerate(
        product((_registering, _alive), (mosquitto_bus, embedded_bus))
    ):
        if open_bus is mosquitto_bus and find_mosquitto() is None:
            made.append(not_measured("a thousand spokes over Mosquitto", HINT))
            continue
        place = directory / str(number)
        await asyncio.to_thread(place.mkdir)
        async with open_bus(place) as bus:
            made.append(await measure(place, bus, effort))
    return made
