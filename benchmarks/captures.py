"""A capture of ten thousand messages a second, beside a bare paho client that writes the same lines.

What it takes is counted in time of a processor, so that it holds on a machine with other work.
"""

import asyncio
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import crowd
from benchmarks.brokers import Bus, mosquitto_bus, peer
from benchmarks.bus_peer import DEVICE, FLOODED, state
from benchmarks.measure import Effort
from benchmarks.table import Reach, Row, not_measured
from bus.link import open_link
from hub_agent.settings import BusSettings, HubSettings
from hub_live.captures import CaptureSpec, open_captures
from hub_live.captures.files.series import Series
from hub_live.captures.files.writer import FileLimits, Writer
from hub_live.events import Events
from hub_live.topics import LastHeard, Sample, open_feed
from hub_registry.registry import open_registry
from hub_registry.settings import RegistrySettings
from identity.keys import KeyPair
from tests.mosquitto import HINT, find_mosquitto

_PER_S: Final = 10_000
_SECONDS: Final = 20
_SAMPLES: Final = 100_000
_BATCH: Final = 5_000
"""What gathers in half a second."""
_ROUNDS: Final = 3
_QUIET_S: Final = 5.0
"""When nothing more has come for so long, the rest is lost."""


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; takes a minute."""
    if find_mosquitto() is None:
        return [not_measured("a capture of 10,000 messages a second over Mosquitto", HINT)]
    count = _PER_S * effort.repeats(_SECONDS)
    alone = [_alone(directory / f"alone{number}", effort.size(_SAMPLES)) for number in range(_ROUNDS)]
    async with mosquitto_bus(directory) as bus:
        plain = await _plain(bus, directory, count)
        made = await _capture(bus, directory, count, plain)
    ours, lines = (statistics.median(each) for each in zip(*alone, strict=True))
    return [
        *made,
        Row(
            "the writer alone, samples for each second of a core, beside a plain write of each line",
            ours,
            "/s",
            Reach(ratio_least=0.3),
            reference=lines,
        ),
    ]


def _alone(directory: Path, count: int) -> tuple[float, float]:
    """Return how many samples the writer writes, and how many of their lines a plain write takes."""
    samples = [
        Sample("bus", f"devices/bench/state/A/p{n % 10}", 1e9 + n / _PER_S, state(n)) for n in range(count)
    ]
    writer = Writer(Series.within([directory], "alone.jsonl"), "jsonl", FileLimits(max_bytes=1 << 30))
    cpu = time.process_time()
    for start in range(0, count, _BATCH):
        writer.write(samples[start : start + _BATCH])
    writer.close()
    ours = time.process_time() - cpu
    lines = (directory / "alone.jsonl").read_bytes().splitlines(keepends=True)
    cpu = time.process_time()
    with (directory / "plain").open("wb", buffering=0) as file:
        for line in lines:
            file.write(line)
        os.fsync(file.fileno())
    return count / ours, count / (time.process_time() - cpu)


async def _capture(bus: Bus, directory: Path, count: int, plain: float) -> list[Row]:
    settings = HubSettings(home=directory, bus=BusSettings(url=bus.url))
    # What a device that has not joined publishes is shown to no person.
    await crowd.enrol(directory / "hub.db", [crowd.Spoke(DEVICE, KeyPair.generate())])
    async with (
        open_registry(RegistrySettings(database=directory / "hub.db"), key=KeyPair.generate()) as registry,
        open_link(bus.link("hub")) as link,
        open_feed(link, None, LastHeard(registry.store, instance="main")) as feed,
        open_captures(
            settings, registry, feed=feed, link=link, events=Events(registry.store, link)
        ) as captures,
    ):
        spec = CaptureSpec.model_validate({"topics": [FLOODED], "path": "flood.jsonl"})
        await captures.start(registry.admin, spec)
        await feed.settled()
        process = psutil.Process()
        memory, cpu = process.memory_info().rss, time.process_time()
        grown = recorded = 0
        async with peer("flood", _flood(bus, count)) as sender:
            heard = time.monotonic()
            while recorded < count and time.monotonic() - heard < _QUIET_S:
                await asyncio.sleep(0.25)
                grown = max(grown, process.memory_info().rss - memory)
                info = await captures.get(registry.admin, "flood")
                if info.messages != recorded or sender.process.returncode is None:
                    recorded, heard = info.messages, time.monotonic()
            used = time.process_time() - cpu
            assert sender.process.stdout is not None
            took = float((await sender.process.stdout.readline()) or "nan")
        stopped = await captures.stop(registry.admin, "flood")
    lines = sum(file.read_bytes().count(b"\n") for file in (directory / "captures").iterdir())
    assert lines == recorded + stopped.gaps, (lines, recorded, stopped.gaps)
    name = f"a jsonl capture at {count / took:,.0f} messages a second over Mosquitto"
    return [
        Row(f"{name}, lost of {count:,}", count - recorded, "messages", Reach(most=0)),
        Row(
            f"{name}, for each second of a core",
            recorded / used,
            "/s",
            Reach(ratio_least=0.3),
            reference=plain,
        ),
        Row(f"{name}, memory grown", grown / 1024**2, "MB", Reach(most=100)),
    ]


async def _plain(bus: Bus, directory: Path, count: int) -> float:
    """Return how many messages paho hears and writes, for each second of a core."""
    settings = {
        "port": bus.port,
        "protocol": int(bus.protocol),
        "file": str(directory / "plain.jsonl"),
        "count": count,
    }
    async with peer("write", settings) as writer, peer("flood", _flood(bus, count)) as sender:
        await sender.process.wait()
        assert writer.process.stdout is not None
        async with asyncio.timeout(60):
            result: dict[str, Any] = json.loads(await writer.process.stdout.readline())
    return float(result["written"] / result["cpu_s"])


def _flood(bus: Bus, count: int) -> dict[str, Any]:
    return {"url": bus.url, "count": count, "per_s": _PER_S}
