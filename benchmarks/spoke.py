"""What a headless spoke costs: its memory, and the time until the hub has its skills."""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psutil

from benchmarks.measure import Effort, median_ms, run_nothing
from benchmarks.table import Reach, Row, not_measured
from contracts import topics
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.spoke.home import DEVICE, BusSide, StandInHub, on_bus, serving, wait_for

_STARTS: Final = 5
_SETTLE_S: Final = 1.0
_CALLS: Final = 200

_SPOKE: Final = """
import asyncio, sys
from pathlib import Path
from pydantic import SecretStr
from spoke.app import open_spoke
from spoke.settings import SpokeSettings

async def main():
    settings = SpokeSettings(home=Path(sys.argv[1]), hub_url=sys.argv[2], samples=True)
    async with open_spoke(settings, token=SecretStr(sys.argv[3])):
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; broker and spoke keep their files in the directory."""
    if find_mosquitto() is None:
        return [not_measured("a headless spoke", HINT)]
    with Mosquitto(directory) as mosquitto, serving(StandInHub(brokers=[mosquitto.url])) as hub:
        async with on_bus(hub, mosquitto.url) as bus:
            await bus.say_online("bench")
            return await _measure(directory / "home", hub, bus, starts=effort.repeats(_STARTS))


async def _measure(home: Path, hub: StandInHub, bus: BusSide, *, starts: int) -> list[Row]:
    token = hub.invite().get_secret_value()
    started: list[float] = []
    idle = busy = 0.0
    # The first start joins as well and is not counted.
    for number in range(starts + 1):
        began = time.perf_counter()
        async with _spoke(home, hub.url, token) as process:
            await _registered(bus)
            if number:
                started.append(time.perf_counter() - began)
            if number == starts:
                await asyncio.sleep(_SETTLE_S)
                idle = _resident_mb(process)
                for _ in range(_CALLS):
                    await bus.call("calculate", "6 * 7", skill="CalculatorSkill", read_only=True)
                busy = _resident_mb(process)
    interpreter = await median_ms(run_nothing, repeats=starts)
    start = statistics.median(started) * 1000
    work = "spoke's process start to registered, beside python -c pass"
    return [
        Row("memory of a headless spoke with the samples", idle, "MB", Reach(most=80)),
        Row(f"  after {_CALLS} calls", busy, "MB", Reach(most=80)),
        Row(work, start, "ms", Reach(most=2_000), reference=interpreter),
    ]


@asynccontextmanager
async def _spoke(home: Path, url: str, token: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SPOKE, str(home), url, token, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def _registered(bus: BusSide) -> None:
    """Wait for every registration that the newest manifest names."""
    bus.seen.clear()
    bus.statuses.clear()
    status = await bus.online()
    awaited = [topics.SKILL.build(device=DEVICE, skill=skill) for skill in status.skills]
    await wait_for(lambda: all(bus.payloads(topic) for topic in awaited), "the registrations")


def _resident_mb(process: asyncio.subprocess.Process) -> float:
    return float(psutil.Process(process.pid).memory_info().rss) / 1_000_000
