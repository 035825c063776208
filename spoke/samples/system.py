"""How the device itself is doing."""

import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import psutil
from pydantic import Field

from strawberry_skills import Skill, Unit, every, skill_method

_MEASURE_S = 0.2
"""A share of the processor is a share over some time; shorter ones jump."""


_MOST_DISKS = 20
_NO_DISKS = frozenset({"squashfs", "tmpfs", "overlay", "iso9660"})


Bytes = Annotated[int, Unit("B")]
Percent = Annotated[float, Unit("%")]


@dataclass
class Load:
    """Load of the processor: use now, and the mean number of processes that wanted it."""

    cpu_percent: Percent
    cores: int
    last_1_minute: float
    last_5_minutes: float
    last_15_minutes: float


@dataclass
class Memory:
    """Main memory in bytes."""

    total: Bytes
    used: Bytes
    available: Bytes
    used_percent: Percent


@dataclass
class Disk:
    """A file system, in bytes."""

    path: str
    total: Bytes
    free: Bytes
    used_percent: Percent


@dataclass
class Process:
    """A running program; memory in bytes."""

    pid: int
    name: str
    user: str
    cpu_percent: Percent
    memory: Bytes


@dataclass
class Machine:
    """What the device is; sizes in bytes.

    Attributes:
        graphics: Drivers of its graphics adapters, where the system tells them.
    """

    name: str
    model: str
    system: str
    architecture: str
    processor: str
    cores: int
    memory: Bytes
    disks: list[Disk]
    graphics: list[str]


class SystemSkill(Skill):
    """Machine, load, memory, disk, processes and uptime of the device."""

    labels = {
        "de": {
            "SystemSkill": "Computer",
            "machine_info": "Über dieses Gerät",
            "processes": "Laufende Programme",
            "order_by": "Sortiert nach",
        },
        "en": {"SystemSkill": "Computer", "machine_info": "About this device"},
    }

    @skill_method(read_only=True)
    def machine_info(self) -> Machine:
        """Return what machine this is: model, system, processor, memory, disks and graphics."""
        found = {part.mountpoint for part in psutil.disk_partitions() if part.fstype not in _NO_DISKS}
        return Machine(
            name=platform.node(),
            model=_first_line("/sys/devices/virtual/dmi/id/product_name", "/proc/device-tree/model"),
            system=_system_name(),
            architecture=platform.machine(),
            processor=_processor(),
            cores=psutil.cpu_count() or 1,
            memory=psutil.virtual_memory().total,
            disks=list(_disks(sorted(found)[:_MOST_DISKS])),
            graphics=sorted(
                {driver.resolve().name for driver in Path("/sys/class/drm").glob("card?/device/driver")}
            ),
        )

    @skill_method(
        read_only=True,
        sentences={
            "en": ["how busy is (the|this) computer", "what is the [system] load"],
            "de": ["wie ausgelastet ist (der|dieser) (Computer|Rechner)"],
        },
        responses={
            "en": "The processor is {result.cpu_percent} busy.",
            "de": "Der Prozessor ist zu {result.cpu_percent} ausgelastet.",
        },
    )
    def load(self) -> Load:
        """Return how busy the processor is."""
        percent = psutil.cpu_percent(interval=_MEASURE_S)
        one, five, fifteen = psutil.getloadavg()
        self.state("cpu", percent, unit="%")
        return Load(percent, psutil.cpu_count() or 1, round(one, 2), round(five, 2), round(fifteen, 2))

    @skill_method(
        read_only=True,
        sentences={
            "en": ["how much memory is (free|left|available|used|in use)"],
            "de": ["wie viel (Speicher|Arbeitsspeicher) ist [noch] frei"],
        },
        responses={
            "en": "{result.used:GB} of {result.total:GB} GB of memory are in use.",
            "de": "{result.used:GB} von {result.total:GB} GB Arbeitsspeicher sind belegt.",
        },
    )
    def memory(self) -> Memory:
        """Return how much main memory there is and how much of it is free."""
        memory = psutil.virtual_memory()
        self.state("memory", memory.percent, unit="%")
        used = memory.total - memory.available
        return Memory(memory.total, used, memory.available, memory.percent)

    @skill_method(
        read_only=True,
        sentences={
            "en": ["how much disk space is (free|left|available)"],
            "de": ["wie viel (Plattenplatz|Festplattenplatz) ist [noch] frei"],
        },
        responses={
            "en": "{result.free} of {result.total} are free on the disk.",
            "de": "{result.free} von {result.total} sind auf der Platte frei.",
        },
    )
    def disk(self, path: Path | None = None) -> Disk:
        """Return how much room a file system has.

        Args:
            path: A folder on it; by default the home folder.
        """
        return _disk(str(path or Path.home()))

    @skill_method(read_only=True)
    def processes(
        self, order_by: Literal["cpu", "memory"] = "cpu", limit: Annotated[int, Field(ge=1, le=100)] = 10
    ) -> list[Process]:
        """List the programs that use the most.

        Args:
            order_by: What they use: ``cpu`` or ``memory``.
            limit: How many to list.
        """
        running = list(psutil.process_iter())
        for process in running:
            _cpu_percent(process)
        # The first reading only starts the measurement.
        self.check_cancelled(wait_s=_MEASURE_S)
        found = [described for process in running if (described := _described(process))]
        found.sort(key=lambda each: each.cpu_percent if order_by == "cpu" else each.memory, reverse=True)
        return found[:limit]

    @skill_method(
        read_only=True,
        sentences={
            "en": ["how long has (the|this) computer been (running|on|up)", "what is the uptime"],
            "de": ["wie lange läuft (der|dieser) (Computer|Rechner) [schon]"],
        },
        responses={
            "en": "The computer has been running for {result}.",
            "de": "Der Computer läuft seit {result}.",
        },
    )
    def uptime(self) -> timedelta:
        """Return how long the device has been running."""
        return timedelta(seconds=round(time.time() - psutil.boot_time()))

    @every("60s")  # often enough for a disk that fills up
    def _publish(self) -> None:
        # A folder or a sensor may be gone for a while.
        with suppress(OSError):
            self.state("cpu", psutil.cpu_percent(interval=_MEASURE_S), unit="%")
            self.state("memory", psutil.virtual_memory().percent, unit="%")
            self.state("disk", psutil.disk_usage(str(Path.home())).percent, unit="%")
            if (temperature := _temperature()) is not None:
                self.state("temperature", temperature, unit="°C", device_class="temperature")


def _temperature() -> float | None:
    """Return the temperature of the processor; where none says that it is its, the highest there is."""
    read = getattr(psutil, "sensors_temperatures", None)  # Linux and FreeBSD
    found = {} if read is None else read()
    named = [each for name in ("coretemp", "k10temp", "cpu_thermal") for each in found.get(name, ())]
    values = [each.current for each in named or [one for group in found.values() for one in group]]
    return round(max(values), 1) if values else None


def _disk(folder: str) -> Disk:
    usage = psutil.disk_usage(folder)
    return Disk(folder, usage.total, usage.free, usage.percent)


def _disks(folders: Iterable[str]) -> Iterator[Disk]:
    for folder in folders:
        # An empty drive, a network folder that is gone, or a mount that only root may look into.
        with suppress(OSError):
            yield _disk(folder)


def _first_line(*files: str) -> str:
    for file in files:
        with suppress(OSError):
            return Path(file).read_text("utf-8", "replace").strip("\0\n ")
    return ""


def _system_name() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{platform.system()} {platform.release()}"


def _processor() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
    return platform.processor()


def _cpu_percent(process: psutil.Process) -> float:
    try:
        return process.cpu_percent()
    except psutil.Error:
        return 0.0


def _described(process: psutil.Process) -> Process | None:
    """Describe a process; None if it has ended meanwhile, or is none of our business."""
    try:
        with process.oneshot():
            return Process(
                process.pid,
                process.name(),
                process.username(),
                process.cpu_percent(),
                process.memory_info().rss,
            )
    except (psutil.Error, KeyError):
        return None
