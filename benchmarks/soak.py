"""``make soak``: a home of real processes that is used for half an hour, and what it holds as time goes by.

A person talks, calls and confirms, programs run, and a device publishes values and comes and goes. At the end
what the hub holds should be level: one that grows by the minute fills the machine in a week.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.measure import sandbox_directory
from contracts import topics
from sandbox_host import install
from tests.adversary.device import Credentials, HostileDevice
from tests.adversary.person import Person, home_of_a_person, person_of
from tests.e2e.house import House

_SAMPLES: Final = 15
"""Lines of the table, besides the first one."""
_PAUSE_S: Final = 0.25
"""Between two acts of the person, unless the command line says another."""
_AUDIT_S: Final = 900
"""How long the hub of the soak keeps records of calls, so that some grow old in an hour."""
_VALUES: Final = 50
"""Values that the device publishes before it leaves and comes back."""
_MB: Final = 1024 * 1024
_PRIVATE: Final = sys.platform == "linux"
"""Whether the system tells which pages a process has written and shares with no other."""


@dataclass(frozen=True)
class Sample:
    """What a home holds at one moment.

    Attributes:
        hub_mb: See `memory_mb`; so are those of the spoke and of the broker.
        turns: Rows of the conversations, which stay until somebody deletes them.
        audit: Records of calls, which are kept for some time.
        traces: Where the time of turns went, of which the newest are kept.
        rows: Of all other tables of the hub's database.
        files: In the data directory, however deep.
    """

    minutes: float
    acts: int
    hub_mb: float
    spoke_mb: float
    broker_mb: float
    descriptors: int
    threads: int
    turns: int
    audit: int
    traces: int
    rows: int
    database_mb: float
    files: int

    def line(self) -> str:
        """Return the sample as a line of a Markdown table."""
        return (
            "| "
            + " | ".join(f"{each:,.1f}" if isinstance(each, float) else f"{each:,}" for each in self)
            + " |"
        )

    def __iter__(self) -> Iterator[float | int]:
        return iter(vars(self).values())


_HEAD: Final = (
    "| minutes | acts | hub, MB | spoke, MB | broker, MB | hub's descriptors | its threads "
    "| turns | audit | traces | other rows | hub.db, MB | files |"
)


async def soak(directory: Path, seconds: float, pause_s: float) -> None:
    """Use a home for so long, and print what it holds."""
    await install(sandbox_directory())
    print("Memory is", "private (dirty pages)." if _PRIVATE else "resident (RSS).", end="\n\n")
    print(_HEAD, "|" + "---|" * len(Sample.__dataclass_fields__), sep="\n", flush=True)
    settings = f"[audit]\nkeep_days = {_AUDIT_S / 86_400}\n"
    home = home_of_a_person(directory / "house", sandbox_directory(), debug=False, settings=settings)
    with home as (house, spoke):
        credentials = await asyncio.to_thread(Credentials.enrol, house, "Sensor Pi")
        async with person_of(house, spoke) as person, asyncio.TaskGroup() as tasks:
            used = [
                tasks.create_task(_use(person, pause_s), name="person"),
                tasks.create_task(_publish(credentials), name="sensor"),
            ]
            begun = time.monotonic()
            for number in range(_SAMPLES + 1):
                await asyncio.sleep(max(0.0, begun + seconds * number / _SAMPLES - time.monotonic()))
                print(_sample(house, person, time.monotonic() - begun).line(), flush=True)
            for task in used:
                task.cancel()
    failed = [act for act in person.acts if act.problem]
    print(f"\n{len(failed)} of {len(person.acts)} acts failed", *{act.problem for act in failed}, sep="\n")


async def _use(person: Person, pause_s: float) -> None:
    for number in itertools.count():
        await person.act(number)
        if number % 20 == 0:
            await person.http.post("/api/exec", json={"code": "sum(range(100))"})
        await asyncio.sleep(pause_s)


async def _publish(credentials: Credentials) -> None:
    topic = topics.STATE.build(device=credentials.id, skill="SensorSkill", property="temperature")
    for _ in itertools.count():
        await asyncio.to_thread(_visit, credentials, topic)


def _visit(credentials: Credentials, topic: str) -> None:
    with HostileDevice(credentials, epoch=int(time.time() * 1000)) as device:
        device.come_online()
        for number in range(_VALUES):
            device.bus.publish(
                topic, f'{{"v":1,"kind":"state","value":{20 + number % 9}}}'.encode(), retain=True
            )
            time.sleep(0.1)


def _sample(house: House, person: Person, seconds: float) -> Sample:
    hub, broker, spoke = (
        psutil.Process(house.processes[name].pid) for name in ("hub", "broker", person.spoke.id)
    )
    file = house.home / "hub" / "hub.db"
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("turn_words")
        ]
        rows = {name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables}
    return Sample(
        minutes=seconds / 60,
        acts=len(person.acts),
        hub_mb=memory_mb(hub),
        spoke_mb=memory_mb(spoke),
        broker_mb=memory_mb(broker),
        descriptors=hub.num_fds(),
        threads=hub.num_threads(),
        turns=rows.pop("turn"),
        audit=rows.pop("audit"),
        traces=rows.pop("turn_trace"),
        rows=sum(rows.values()),
        database_mb=file.stat().st_size / _MB,
        files=sum(len(files) for _, _, files in os.walk(house.home)),
    )


def memory_mb(process: psutil.Process) -> float:
    """Return what a process has written; pages of files come and go with other processes and the system."""
    if not _PRIVATE:
        return float(process.memory_info().rss) / _MB
    return sum(each.private_dirty for each in process.memory_maps()) / _MB


def main() -> None:
    """Use a home for as long as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("seconds", nargs="?", type=float, default=1_800)
    parser.add_argument("--pause", type=float, default=_PAUSE_S, help="seconds between two acts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(soak(Path(directory), options.seconds, options.pause))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
