"""What many spokes cost the hub: registering all at once, and being alive."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import func
from sqlmodel import select

from benchmarks.crowd import METHODS, Spoke, enrol, make_spokes, publish
from benchmarks.measure import Effort
from benchmarks.table import Reach, Row, not_measured
from broker.envelope import Seal
from broker.keys import KeyPair
from broker.link import Link, LinkSettings, open_link
from contracts import topics
from contracts.presence import Heartbeat
from hub_registry.hub_presence import HubPresence
from hub_registry.registry import Registry, open_registry
from hub_registry.service import RegistryService
from hub_registry.settings import RegistrySettings
from hub_registry.tables import SkillRow
from tests.mosquitto import HINT, Mosquitto, find_mosquitto

_SPOKES: Final = 1_000
_PATIENCE_S: Final = 120
_ALIVE: Final = 500
_ALIVE_S: Final = 10


@asynccontextmanager
async def _hub(directory: Path, url: str, spokes: list[Spoke]) -> AsyncIterator[tuple[Registry, Link]]:
    """A hub that knows these spokes, and a link for them."""
    settings = RegistrySettings(database=directory / "hub.db")
    key = KeyPair.generate()
    await enrol(settings.database, spokes)
    async with open_registry(settings, key=key) as registry:
        presence = HubPresence(Seal(registry.hub_id, key), instance="main")
        async with (
            open_link(LinkSettings(urls=(url,), client_id="hub"), will=presence.will) as link,
            open_link(LinkSettings(urls=(url,), client_id="spokes")) as outside,
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


async def _registering(directory: Path, effort: Effort) -> Row:
    """From the first message until the last method is searchable and all are in the database."""
    spokes = make_spokes(effort.size(_SPOKES))
    total = len(spokes) * METHODS
    with Mosquitto(directory) as broker:
        async with _hub(directory, broker.url, spokes) as (registry, link):
            messages = [
                message for spoke in spokes for message in spoke.messages(registry.hub_id, with_skills=True)
            ]
            start = time.perf_counter()
            await publish(link, messages)
            async with asyncio.timeout(_PATIENCE_S):
                while await _stored(registry) < total or registry.search.search(limit=1).more < total - 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            took = time.perf_counter() - start
    name = f"{len(spokes):,} spokes × {METHODS} methods register, until all are searchable"
    return Row(name, took, "s", Reach(most=15))


async def _stored(registry: Registry) -> int:
    return await registry.store.read(
        lambda session: session.exec(select(func.count()).select_from(SkillRow)).one()
    )


async def _alive(directory: Path, effort: Effort) -> Row:
    """The hub's share of one core while spokes only say that they live."""
    spokes, seconds = make_spokes(effort.size(_ALIVE)), effort.repeats(_ALIVE_S)
    with Mosquitto(directory) as broker:
        async with _hub(directory, broker.url, spokes) as (registry, link):
            await publish(
                link,
                (
                    message
                    for spoke in spokes
                    for message in spoke.messages(registry.hub_id, with_skills=False)
                ),
            )
            sizes = (str(len(spokes)), str(seconds))
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.registry",
                broker.url,
                *sizes,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            await process.stdout.readline()
            wall, cpu = time.perf_counter(), time.process_time()
            await process.wait()
            share = (time.process_time() - cpu) / (time.perf_counter() - wall)
            heard = sum(entry.last_heartbeat is not None for entry in registry.directory.entries())
            assert heard == len(spokes), heard
    name = f"hub CPU with {len(spokes)} spokes at one heartbeat a second"
    return Row(name, share * 100, "% of a core", Reach(most=15))


async def _beat(url: str, spokes: int, seconds: int) -> None:
    """Send every spoke's heartbeat once a second, spread over the second, from a process of its own."""
    async with open_link(LinkSettings(urls=(url,), client_id="heartbeats")) as link:
        print("ready", flush=True)
        start = time.perf_counter()
        for number in range(spokes * seconds):
            payload = Heartbeat(seq=number, uptime_s=number).model_dump_json().encode()
            topic = topics.HEARTBEAT.build(device=f"spoke{number % spokes}")
            await link.publish(topic, payload, qos=0, retain=True)
            await asyncio.sleep(max(0.0, start + number / spokes - time.perf_counter()))


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; takes about half a minute.

    Args:
        directory: An empty one for brokers and databases.
    """
    if find_mosquitto() is None:
        return [not_measured("a thousand spokes on one hub", HINT)]
    made = []
    for name, measure in (("registering", _registering), ("alive", _alive)):
        place = directory / name
        await asyncio.to_thread(place.mkdir)
        made.append(await measure(place, effort))
    return made


if __name__ == "__main__":
    asyncio.run(_beat(sys.argv[1], spokes=int(sys.argv[2]), seconds=int(sys.argv[3])))
