"""What a spoke costs: its memory, also with a voice, the time until the hub has its skills; and the tray."""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psutil

from benchmarks.measure import Effort, median_ms, run_nothing
from benchmarks.table import Reach, Row, not_measured
from contracts import topics
from spoke.settings import SpokeSettings
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.spoke.home import DEVICE, BusSide, StandInHub, on_bus, serving, wait_for
from voice.settings import VoiceSettings

_STARTS: Final = 5
_SETTLE_S: Final = 1.0
_CALLS: Final = 200
_STEADY_S: Final = 5.0
_STEADY_MB: Final = 0.5

_SPOKE: Final = """
import asyncio, sys
from pydantic import SecretStr
from spoke.app import open_spoke
from spoke.settings import SpokeSettings

async def main():
    settings = SpokeSettings.model_validate_json(sys.argv[1])
    async with open_spoke(settings, token=SecretStr(sys.argv[2])):
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
            home, token = directory / "home", hub.invite().get_secret_value()
            return [
                *await _measure(home, hub, bus, token, starts=effort.repeats(_STARTS)),
                await _listening(home, hub, bus, token),
                await _tray(home),
            ]


async def _listening(home: Path, hub: StandInHub, bus: BusSide, token: str) -> Row:
    work = "memory of a spoke that listens"
    if find_spec("pocketsphinx") is None:
        return not_measured(work, "pip install 'strawberry-home[voice]'")
    microphone = home / "microphone"
    os.mkfifo(microphone)
    loudspeaker = f"file:{home / 'spoken.wav'}"
    voice = VoiceSettings(enabled=True, microphone=f"file:{microphone}", loudspeaker=loudspeaker)
    async with _spoke(home, hub.url, token, voice) as process:
        await _registered(bus)
        return Row(work, await _settled_mb(process), "MB")


async def _tray(home: Path) -> Row:
    work = "memory of strawberry tray"
    if find_spec("PySide6") is None:
        return not_measured(work, "pip install 'strawberry-home[desktop]'")
    window = {"QT_QPA_PLATFORM": "offscreen", "STRAWBERRY_HOME": str(home)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.cli.main", "tray", "--no-tray"),
        env=os.environ | window,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        return Row(work, await _settled_mb(process), "MB")
    finally:
        process.kill()
        await process.wait()


async def _settled_mb(process: asyncio.subprocess.Process) -> float:
    """Wait until models are loaded and windows are drawn: the memory does not change any more."""
    before, now = 0.0, _resident_mb(process)
    while abs(now - before) > _STEADY_MB:
        await asyncio.sleep(_STEADY_S)
        before, now = now, _resident_mb(process)
    return now


async def _measure(home: Path, hub: StandInHub, bus: BusSide, token: str, *, starts: int) -> list[Row]:
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
async def _spoke(
    home: Path, url: str, token: str, voice: VoiceSettings | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    settings = SpokeSettings(home=home, hub_url=url, samples=True, voice=voice or VoiceSettings())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SPOKE, settings.model_dump_json(), token, stderr=asyncio.subprocess.DEVNULL
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
