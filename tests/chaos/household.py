"""A broker, a hub and up to twenty spokes, each a process, and a supervisor that starts again what dies."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.chaos.load import JOURNAL_SKILL, NO_ANSWER, NOT_HEARD, Answered
from tests.chaos.observed import Sight, growth, look_into
from tests.chaos.schedule import Blow
from tests.e2e.house import House
from tests.e2e.secured import Secured

BACK_S = 180.0
"""How long all may take to be back on a busy machine; never what is asserted."""

_LOOK_S = 0.2
_DYING_S = 10.0
"""A process that is killed may take connections until the system has cleared it away."""
_TRACEBACK = "Traceback (most recent call last)"


class Victim(Protocol):
    """A process that is killed and frozen, and started again."""

    @property
    def pid(self) -> int:
        """Of its latest process."""

    def start(self) -> None:
        """Start it again; does not wait for it."""

    def died_by_itself(self) -> str | None:
        """Give the end of its log if it has ended without having been killed."""

    def sight(self) -> Path | None:
        """Where it writes down what it holds, where it is one of ours."""


@dataclass
class Command:
    """A ``strawberry`` command."""

    house: House
    name: str
    home: Path

    @property
    def pid(self) -> int:
        return self.house.processes[self.name].pid

    def start(self) -> None:
        # The one that was killed leaves no zombie.
        self.house.processes[self.name].wait()
        self.house.start_again(self.name)

    def died_by_itself(self) -> str | None:
        if self.house.processes[self.name].poll() in (None, -signal.SIGKILL):
            return None
        return self.house.log(self.name)[-4000:]

    def sight(self) -> Path:
        return self.home / f"sight-{self.pid}.json"


@dataclass
class Foreign:
    """A Mosquitto that was set up for the hub."""

    broker: Secured

    @property
    def pid(self) -> int:
        return self.broker.pid

    def start(self) -> None:
        self.broker.stop(signal.SIGKILL)
        self.broker.begin()

    def died_by_itself(self) -> str | None:
        return None if self.broker.ended in (None, -signal.SIGKILL) else self.broker.log()

    def sight(self) -> None:
        return None


@dataclass(repr=False)
class Household:
    """All of it.

    Attributes:
        victims: Every process by name: ``broker``, ``hub`` and the ids of the spokes.
        spokes: Their homes by id.
        killed: When the hub was killed, by the monotonic clock.
    """

    house: House
    victims: dict[str, Victim]
    spokes: dict[str, Path]
    killed: list[float] = field(default_factory=list)

    async def suffer(self, blows: Sequence[Blow]) -> None:
        """Strike as planned, and bring each victim back as planned; nothing else is done by hand."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for blow in blows:
                await asyncio.sleep(began + blow.at_s - time.monotonic())
                tasks.create_task(self._strike(blow), name=str(blow))

    async def _strike(self, blow: Blow) -> None:
        victim = self.victims[blow.victim]
        log = victim.died_by_itself()
        assert log is None, f"{blow.victim} ended by itself:\n{log}"
        os.kill(victim.pid, blow.signal)
        if (blow.victim, blow.signal) == ("hub", signal.SIGKILL):
            self.killed.append(time.monotonic())
        await asyncio.sleep(blow.away_s)
        if blow.signal is signal.SIGSTOP:
            os.kill(victim.pid, signal.SIGCONT)
        else:
            victim.start()

    def unexplained(self, answered: Sequence[Answered]) -> list[str]:
        """Give the calls that the hub left without an answer though nobody had killed it."""
        return [
            str(call)
            for call in answered
            if (call.code == NOT_HEARD and not any(at <= call.ended for at in self.killed))
            or (
                call.code == NO_ANSWER
                and not any(call.began - _DYING_S <= at <= call.ended for at in self.killed)
            )
        ]

    async def all_online(self) -> None:
        """Wait until the hub sees every spoke with all its skills."""
        await eventually(self._missing, what="every spoke to be online")

    def _missing(self) -> object:
        if not self.house.healthy():
            return "the hub"
        rows = {row["id"]: row for row in self.house.ask("/api/devices")}
        missing = {
            name: rows[name]["state"]
            for name in self.spokes
            if rows[name]["state"] != "online" or rows[name]["awaited"]
        }
        for name in missing:
            log = self.victims[name].died_by_itself()
            assert log is None, f"{name} ended by itself:\n{log}"
        return missing

    def look(self) -> dict[str, Sight]:
        """Look into every process."""
        return {name: look_into(victim.pid, victim.sight()) for name, victim in self.victims.items()}

    def growth(self, before: Mapping[str, Sight]) -> list[str]:
        """Say what any process holds that it, or the one before it, did not hold before."""
        return [f"{name}: {what}" for name, now in self.look().items() for what in growth(before[name], now)]

    def tracebacks(self) -> list[str]:
        """Give what stands in the logs that nobody expected: tracebacks, with what led to each."""
        return [
            f"{log.name}: {text[max(0, text.find(_TRACEBACK) - 500) :][:4000]}"
            for log in self.house.directory.glob("*.log")
            if _TRACEBACK in (text := log.read_text(errors="replace"))
        ]


async def eventually(missing: Callable[[], object], *, what: str, patience: float = BACK_S) -> None:
    """Look until nothing is missing.

    Raises:
        AssertionError: With what was missing to the end.
    """
    deadline = time.monotonic() + patience
    while found := await asyncio.to_thread(missing):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience:.0f} s for {what}: {found}")
        await asyncio.sleep(_LOOK_S)


def add_spokes(house: House, number: int, *, skills: Path) -> dict[str, Path]:
    """Add so many devices to the hub and start their spokes; return their homes."""
    homes: dict[str, Path] = {}
    for index in range(number):
        added: Mapping[str, Any] = house.ask("/api/devices", {"name": f"Spoke {index}", "trusted": True})
        homes[added["id"]] = home = house.directory / added["id"]
        words = ("spoke", "run", "--hub", house.url, "--skills", str(skills))
        house.start(added["id"], *words, home=home, HUB_DEVICE_TOKEN=added["token"])
    return homes


def write_skills(directory: Path) -> Path:
    """Write the skills that every spoke has; give their folder."""
    directory.mkdir()
    (directory / "journal.py").write_text(JOURNAL_SKILL)
    return directory


def tell(*lines: object) -> None:
    """Say what is shown where the test fails."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
