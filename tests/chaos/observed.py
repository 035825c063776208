"""A process that can be looked into: on SIGUSR1 it writes down what it holds.

Run as a module it is the ``strawberry`` command, seen in this way.
"""

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PATIENCE_S = 60.0
_LOOK_S = 0.02

_THREADS = 64 + (os.cpu_count() or 1) + 4
"""Those of the skills and of the event loop: both pools grow to a number as they are needed, and stay."""
_FILES = 16
"""Files that come and go with the database."""
_MEMORY_SHARE = 1.25
_MEMORY_MB = 12.0
"""What an allocator may keep after a storm of calls: a quarter, and this much."""


@dataclass(frozen=True)
class Sight:
    """What one process holds at rest.

    Attributes:
        tasks: Its asyncio tasks by name; empty for a process that is none of ours.
        sockets: Its connections, by the port that they are to or, where others connect to it, at.
        threads: How many.
        children: How many processes it has started that still run.
        files: Open file descriptors, sockets included.
        memory_mb: What only this process has.
    """

    tasks: Counter[str]
    sockets: Counter[str]
    threads: int
    children: int
    files: int
    memory_mb: float


def observe(file: Path) -> None:
    """Have this process write its tasks into a file at each SIGUSR1; to be called in the main thread."""

    def write(*_: object) -> None:
        try:
            names = [_plain(task.get_name()) for task in asyncio.all_tasks()]
            # NiceGUI's one task begins with the pages, some time after the hub is ready.
            tasks = [name for name in names if "prune_tab_storage" not in name]
        except RuntimeError:
            # Not running yet, or no longer.
            return
        ready = file.with_suffix(".tmp")
        ready.write_text(json.dumps({"tasks": tasks, "threads": threading.active_count()}))
        ready.replace(file)

    signal.signal(signal.SIGUSR1, write)


def look_into(pid: int, file: Path | None) -> Sight:
    """Look into a process; ours write to ``file``, others have none."""
    told: dict[str, Any] = {"tasks": []} if file is None else _ask(pid, file)
    process = psutil.Process(pid)
    open_ = process.net_connections("tcp")
    served = {each.laddr.port for each in open_ if each.status == psutil.CONN_LISTEN}
    sockets = Counter(
        f"at {each.laddr.port}" if each.laddr.port in served else f"to {each.raddr.port}"
        for each in open_
        if each.raddr
    )
    return Sight(
        tasks=Counter(told["tasks"]),
        sockets=sockets,
        threads=process.num_threads(),
        children=len(process.children()),
        files=process.num_fds(),
        memory_mb=round(process.memory_full_info().uss / 2**20, 1),
    )


def growth(before: Sight, now: Sight) -> list[str]:
    """Say what a process holds now that it did not hold before."""
    grown = [f"{count} more tasks {name!r}" for name, count in (now.tasks - before.tasks).items()]
    grown += [f"{count} more sockets {name}" for name, count in (now.sockets - before.sockets).items()]
    for what, had, has, more in (
        ("threads", before.threads, now.threads, _THREADS),
        ("children", before.children, now.children, 0),
        ("files", before.files, now.files, _FILES),
        ("MB", before.memory_mb, now.memory_mb, before.memory_mb * (_MEMORY_SHARE - 1) + _MEMORY_MB),
    ):
        if has > had + more:
            grown.append(f"{has} {what} in place of {had}")
    return grown


def _ask(pid: int, file: Path) -> dict[str, Any]:
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        if time.monotonic() > deadline:
            raise AssertionError(f"process {pid} did not say what it holds")
        time.sleep(_LOOK_S)
    told: dict[str, Any] = json.loads(file.read_text())
    return told


def _plain(name: str) -> str:
    """A task without a name of its own is called by its number."""
    return name.rstrip("0123456789")


if __name__ == "__main__":
    observe(Path(os.environ["STRAWBERRY_HOME"]) / f"sight-{os.getpid()}.json")
    from deploy.cli.main import main

    raise SystemExit(main())
