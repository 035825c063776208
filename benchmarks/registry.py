"""What many spokes cost the hub: registering all at once, and being alive."""

import asyncio
import hashlib
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import func
from sqlmodel import select

from benchmarks.table import Row
from broker.envelope import Seal
from broker.keys import KeyPair
from broker.link import Link, LinkSettings, open_link
from contracts import topics
from contracts.presence import DeviceStatus, Heartbeat
from contracts.registration import Method, Registration
from hub_registry.accounts import Accounts
from hub_registry.hub_presence import HubPresence
from hub_registry.registry import Registry, open_registry
from hub_registry.service import RegistryService
from hub_registry.settings import RegistrySettings
from hub_registry.store import open_store
from hub_registry.tables import DeviceRow, SkillRow, now
from tests.mosquitto import Mosquitto

_SPOKES: Final = 1_000
_SKILLS: Final = 4
_METHODS: Final = 5
_PATIENCE_S: Final = 120
_ALIVE: Final = 500
_ALIVE_S: Final = 10


@dataclass(frozen=True)
class _Spoke:
    id: str
    key: KeyPair

    def online(self, seal: Seal, registrations: dict[str, bytes]) -> bytes:
        digests = {name: hashlib.sha256(payload).hexdigest() for name, payload in registrations.items()}
        status = DeviceStatus(state="online", epoch=1_000, connection=1, seq=1, skills=digests)
        return seal.seal(topics.STATUS.build(device=self.id), status)

    def messages(self, hub_id: str, *, with_skills: bool) -> Iterator[tuple[str, bytes]]:
        """Sign what it sends when it comes online."""
        seal, payloads = Seal(hub_id, self.key), {}
        for made in self._registrations() if with_skills else ():
            topic = topics.SKILL.build(device=self.id, skill=made.skill)
            payloads[made.skill] = seal.seal(topic, made)
            yield topic, payloads[made.skill]
        yield topics.STATUS.build(device=self.id), self.online(seal, payloads)

    def _registrations(self) -> Iterator[Registration]:
        # Every method of every spoke differs, which is the hardest case for the search.
        for skill in range(_SKILLS):
            yield Registration(
                skill=f"Skill{skill}Of{self.id.title()}",
                doc="Controls one of the things in this room.",
                methods=[_method(f"set_{self.id}_{skill}_{number}") for number in range(_METHODS)],
            )


def _method(name: str) -> Method:
    return Method(
        name=name,
        signature=f"{name}(level: int = 30, room: str | None = None) -> bool",
        doc="Set the level of a thing.\n\nArgs:\n    level: From 0 to 100.\n    room: Where it stands.\n",
        parameters={
            "type": "object",
            "properties": {"level": {"type": "integer"}, "room": {"type": ["string", "null"]}},
            "additionalProperties": False,
        },
        positional=["level", "room"],
        result={"type": "boolean"},
    )


@asynccontextmanager
async def _hub(directory: Path, url: str, spokes: list[_Spoke]) -> AsyncIterator[tuple[Registry, Link]]:
    """A hub that knows these spokes, and a link for them."""
    settings = RegistrySettings(database=directory / "hub.db")
    key = KeyPair.generate()
    async with open_store(settings.database) as store:
        owner = (await Accounts(store).first_admin()).id
        rows = [
            DeviceRow(
                id=spoke.id,
                owner=owner,
                display_name=spoke.id,
                key=spoke.id,
                public_key=spoke.key.public.jwk(),
                key_id=spoke.key.kid,
                created_at=now(),
            )
            for spoke in spokes
        ]
        await store.write(lambda session: session.add_all(rows))
    async with open_registry(settings, key=key) as registry:
        presence = HubPresence(Seal(registry.hub_id, key), instance="main")
        async with (
            open_link(LinkSettings(url=url, client_id="hub"), will=presence.will) as link,
            open_link(LinkSettings(url=url, client_id="spokes")) as outside,
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


def _spokes(count: int) -> list[_Spoke]:
    return [_Spoke(f"spoke{number}", KeyPair.generate()) for number in range(count)]


async def _publish(link: Link, messages: Iterable[tuple[str, bytes]]) -> None:
    for topic, payload in messages:
        await link.publish(topic, payload, retain=True)


async def _registering(directory: Path) -> Row:
    """From the first message until the last method is searchable and all are in the database."""
    spokes, total = _spokes(_SPOKES), _SPOKES * _SKILLS * _METHODS
    with Mosquitto(directory) as broker:
        async with _hub(directory, broker.url, spokes) as (registry, link):
            messages = [
                message for spoke in spokes for message in spoke.messages(registry.hub_id, with_skills=True)
            ]
            start = time.perf_counter()
            await _publish(link, messages)
            async with asyncio.timeout(_PATIENCE_S):
                while await _stored(registry) < total or registry.search.search(limit=1).more < total - 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            took = time.perf_counter() - start
    name = f"{_SPOKES:,} spokes with {_SKILLS * _METHODS} methods each register, until all are searchable"
    return Row(name, took, None, None, "s", "≤ 15 s")


async def _stored(registry: Registry) -> int:
    return await registry.store.read(
        lambda session: session.exec(select(func.count()).select_from(SkillRow)).one()
    )


async def _alive(directory: Path) -> Row:
    """The hub's share of one core while spokes only say that they live."""
    spokes = _spokes(_ALIVE)
    with Mosquitto(directory) as broker:
        async with _hub(directory, broker.url, spokes) as (registry, link):
            await _publish(
                link,
                (
                    message
                    for spoke in spokes
                    for message in spoke.messages(registry.hub_id, with_skills=False)
                ),
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.registry", broker.url, stdout=asyncio.subprocess.PIPE
            )
            assert process.stdout is not None
            await process.stdout.readline()
            wall, cpu = time.perf_counter(), time.process_time()
            await process.wait()
            share = (time.process_time() - cpu) / (time.perf_counter() - wall)
            heard = sum(entry.last_heartbeat is not None for entry in registry.directory.entries())
            assert heard == _ALIVE, heard
    name = f"hub CPU with {_ALIVE} spokes at one heartbeat a second"
    return Row(name, share * 100, None, None, "% of a core", "≤ 15 %")


async def _beat(url: str) -> None:
    """Send every spoke's heartbeat once a second, spread over the second, from a process of its own."""
    async with open_link(LinkSettings(url=url, client_id="heartbeats")) as link:
        print("ready", flush=True)
        start = time.perf_counter()
        for number in range(_ALIVE * _ALIVE_S):
            payload = Heartbeat(seq=number, uptime_s=number).model_dump_json().encode()
            topic = topics.HEARTBEAT.build(device=f"spoke{number % _ALIVE}")
            await link.publish(topic, payload, qos=0, retain=True)
            await asyncio.sleep(max(0.0, start + number / _ALIVE - time.perf_counter()))


async def rows(directory: Path) -> list[Row]:
    """Measure; takes about half a minute.

    Args:
        directory: An empty one for brokers and databases.
    """
    made = []
    for name, measure in (("registering", _registering), ("alive", _alive)):
        place = directory / name
        await asyncio.to_thread(place.mkdir)
        made.append(await measure(place))
    return made


if __name__ == "__main__":
    asyncio.run(_beat(sys.argv[1]))
