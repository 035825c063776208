"""One program of a node, with all processes that it starts."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

import psutil

from bus.processes import open_process, tied
from spoke import limits

_MARK: Final = "STRAWBERRY_NODE"
"""Variable by which the processes of a node are recognized, however they detached themselves."""
_INHERITED: Final = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
        # Programs of Windows do not start without these.
        *("SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
    )
)
"""Variables of the spoke that its nodes get. Any other may be a token or a key."""
TOO_FAST: Final = "... some lines came too fast and are not shown ..."
"""Is in a followed log where lines are missing."""
_LEFT_OUT: Final = f"\n{TOO_FAST}\n".encode()


class Log:
    """What a program writes: the newest megabyte or two, in two files.

    Attributes:
        end: Position behind the last byte. Positions hold until the spoke ends.
        news: Set with the next write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._older = path.with_suffix(".old.log")
        self.end = sum(each.stat().st_size for each in (self._older, path) if each.exists())
        self.news = asyncio.Event()

    def write(self, content: bytes) -> None:
        """Add what was written; a full disk loses it."""
        with suppress(OSError):
            with self.path.open("ab") as file:
                file.write(content)
                is_full = file.tell() > limits.NODE_LOG_BYTES
            self.end += len(content)
            if is_full:
                self.path.replace(self._older)
        self.news.set()
        self.news = asyncio.Event()

    def read(self, position: int) -> bytes:
        """Return what was written from a position on; it begins with a note where some is no longer kept."""
        missing, content = self.end - position, b""
        for path in (self.path, self._older):
            with suppress(OSError), path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - missing))
                content = file.read(missing) + content
                missing = self.end - position - len(content)
        return _LEFT_OUT + content if missing > 0 else content

    def tail(self, lines: int) -> list[str]:
        """Return the last lines."""
        content = b""
        for path in (self._older, self.path):
            with suppress(OSError):
                content += path.read_bytes()
        return content.decode("utf-8", "replace").splitlines()[-lines:] if lines else []


@asynccontextmanager
async def started(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    mark: str,
    stop_s: float,
    unit: str | None = None,
    properties: Sequence[str] = (),
    stdin: int = asyncio.subprocess.DEVNULL,
    stderr: int = asyncio.subprocess.STDOUT,
) -> AsyncIterator[Process]:
    """Run a program within the block; when it is left, no process of it is left either.

    Args:
        mark: Recognizes its processes.
        stop_s: Seconds until what does not end is killed.
        unit: Name of a systemd scope to run it in, where there is a systemd; see `has_systemd`.
        properties: Of the scope, as ``TasksMax=64``.

    Raises:
        OSError: If it cannot be started.
    """
    scope = _scope(unit, properties) if unit is not None else ()
    words = [*scope, *tied(command, folder=folder)]
    running = open_process(
        words,
        cwd=folder,
        env={**_inherited(), **env, _MARK: mark},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )
    async with running as process:
        try:
            yield process
        finally:
            # Cancelled or not, it is ended; the time that this takes is bounded.
            await asyncio.shield(end_marked(mark, stop_s=stop_s))


def _inherited() -> dict[str, str]:
    """Return the variables that a program gets from the spoke: none that may hold a token or a key."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _INHERITED or name.startswith("LC_")
    }


async def end_marked(mark: str, *, stop_s: float) -> None:
    """Ask all processes with a mark to end, and kill those that still run after some seconds."""
    await asyncio.to_thread(_end_marked, mark, stop_s)


def _end_marked(mark: str, stop_s: float) -> None:
    left = _marked(mark)
    for process in left:
        with suppress(psutil.Error):
            process.terminate()
    _wait(left, stop_s)
    # What it started meanwhile goes, too.
    left = _marked(mark)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    _wait(left, limits.KILLED_S)


def _wait(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Wait until processes have ended; psutil would take the exit code of a child from asyncio."""
    until = time.monotonic() + seconds
    while any(map(_is_alive, processes)) and time.monotonic() < until:
        time.sleep(limits.PROCESS_POLL_S)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _marked(mark: str) -> list[psutil.Process]:
    return [each for each in psutil.process_iter() if _has_mark(each, mark)]


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(_MARK) == mark
    except (psutil.Error, OSError, RuntimeError):
        # Of another user, or it ends.
        return False


def use_of(pid: int) -> tuple[int, int]:
    """Return how many processes there are from this one on, and the memory of all of them."""
    processes = memory = 0
    with suppress(psutil.Error):
        main = psutil.Process(pid)
        for each in (main, *main.children(recursive=True)):
            with suppress(psutil.Error):
                used = each.memory_info()
                processes += 1
                memory += used.rss - getattr(used, "shared", 0)
    return processes, memory


def threads_of_user() -> int:
    user, threads = os.getuid(), 0
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.uids().real == user:
                threads += each.num_threads()
    return threads


@cache
def has_systemd() -> bool:
    """Return whether a systemd takes programs of this user into scopes of their own."""
    if not sys.platform.startswith("linux") or shutil.which("systemd-run") is None:
        return False
    try:
        tried = subprocess.run(
            [*_scope(None), "true"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=limits.PROCESS_LOOK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def _scope(unit: str | None, properties: Sequence[str] = ()) -> list[str]:
    named = [f"--unit={unit}"] if unit is not None else []
    named += [f"--property={each}" for each in properties]
    manager = [] if os.geteuid() == 0 and "XDG_RUNTIME_DIR" not in os.environ else ["--user"]
    return ["systemd-run", *manager, "--scope", "--quiet", "--collect", *named, "--"]
