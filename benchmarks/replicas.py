"""``POST /api/skills/call`` through three replicas beside one, on the same machine and database."""

import asyncio
import statistics
from pathlib import Path
from typing import Final

import psutil

from benchmarks.http_calls import SKILL, load
from benchmarks.measure import Effort
from benchmarks.table import Row, not_measured
from tests import postgresql
from tests.chaos.cluster import Replicated
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.ports import free_port

_NAMES: Final = "abc"
_IN_FLIGHT: Final = 48
_CALLS: Final = 2_400
_ONE_BY_ONE: Final = 300
_ROUNDS: Final = 3
_SETTINGS: Final = "[http]\nrequests_per_minute = 1_000_000\n"


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; all processes keep their files in the directory."""
    for found, hint in ((postgresql.programs(), postgresql.HINT), (find_mosquitto(), HINT)):
        if found is None:
            return [not_measured("calls over HTTP through three replicas", hint)]
    await asyncio.to_thread((directory / "broker").mkdir)
    with (
        postgresql.Server(port=free_port(), options="") as server,
        Mosquitto(directory / "broker") as broker,
        Replicated(directory / "house", broker_url=broker.url, debug=False) as house,
    ):
        house.database_url, house.more_settings = server.create("home"), _SETTINGS
        await asyncio.to_thread(house.start_replica, "a")
        await asyncio.to_thread(house.add_spoke, "Bench PC", {"echo.py": SKILL})
        for name in _NAMES[1:]:
            await asyncio.to_thread(house.start_replica, name)
        token = (house.home / "hub" / "cli.token").read_text()
        urls = [f"http://127.0.0.1:{port}/api/skills/call" for port in house.ports.values()]
        alone = [await load(url, token, 1, effort.repeats(_ONE_BY_ONE)) for url in urls]
        cpu = _cpu_s(house)
        await _together(urls[:1], token, effort.repeats(_CALLS))
        each_ms = {
            name: (after - cpu[name]) / effort.repeats(_CALLS) * 1000 for name, after in _cpu_s(house).items()
        }
        measured: dict[int, list[float]] = {1: [], len(urls): []}
        for _ in range(_ROUNDS):
            for count, rates in measured.items():
                rates.append(await _together(urls[:count], token, effort.repeats(_CALLS)))
    what = "POST /api/skills/call over Mosquitto and PostgreSQL"
    others = sum(each_ms.values()) - each_ms["a"]
    return [
        Row(f"{what}: processor time of the replica for one", each_ms["a"], "ms"),
        Row("  … of spoke, and of the other replicas, which hear the bus", others, "ms"),
        Row(f"{what}, one at a time, p50: a follower beside the leader", alone[1], "ms", reference=alone[0]),
        Row(
            f"{what}, {_IN_FLIGHT} in flight: three replicas beside one",
            statistics.median(measured[len(urls)]),
            "/s",
            reference=statistics.median(measured[1]),
        ),
    ]


def _cpu_s(house: Replicated) -> dict[str, float]:
    """Return the processor time that each process has taken so far."""
    times = {name: psutil.Process(process.pid).cpu_times() for name, process in house.processes.items()}
    return {name: each.user + each.system for name, each in times.items()}


async def _together(urls: list[str], token: str, count: int) -> float:
    """Spread calls over the replicas; return how many a second."""
    share = len(urls)
    return sum(await asyncio.gather(*(load(url, token, _IN_FLIGHT // share, count // share) for url in urls)))
