"""Child processes: tied to this process, kept running, and ended in a bounded time."""

import asyncio
import errno
import logging
import os
import shutil
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bus import child, limits
from contracts.rates import Backoff

_log = logging.getLogger(__name__)

_SIGKILL: Final = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL
_CHUNK: Final = 64 * 1024
LONG: Final = 10_000
"""Bytes of a line that is passed on before its end."""


def tied(
    command: Sequence[str],
    *,
    folder: Path = Path(),
    ends_by: signal.Signals = signal.SIGTERM,
    open_files: int = 0,
) -> list[str]:
    """Return a command whose program ends with the calling thread, also if this process is killed (Linux).

    Elsewhere it is the command itself: a program of ours ends with its standard input, others stay.

    Args:
        folder: Where it will run.
        ends_by: Signal that it gets then.
        open_files: How many files it shall be able to open, as far as the system allows; 0 for the default.

    Raises:
        FileNotFoundError: If there is no such program.
    """
    program, *arguments = command
    if shutil.which(str(folder / program) if os.sep in program else program) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    if sys.platform != "linux":
        return [program, *arguments]
    given = (str(os.getpid()), str(int(ends_by)), str(open_files))
    return [sys.executable, "-I", "-S", child.__file__, *given, program, *arguments]


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to a child; nothing happens if it has ended."""
    if process.returncode is None:
        with suppress(OSError):
            # Process.send_signal polls first, and may so take the exit code away from asyncio's own wait.
            os.kill(process.pid, number)


def terminate(process: Process) -> None:
    send_signal(process, signal.SIGTERM)


def kill(process: Process) -> None:
    send_signal(process, _SIGKILL)


@asynccontextmanager
async def open_process(
    command: Sequence[str],
    *,
    name: str = "",
    stop_s: float = 0.0,
    ask: Callable[[Process], None] = terminate,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = DEVNULL,
    stdout: int = DEVNULL,
    stderr: int | None = None,
    limit: int = _CHUNK,
) -> AsyncIterator[Process]:
    """Run a program within the block; when it is left, the process has ended, cancelled or not.

    It has a session of its own: Ctrl-C goes to this process only, which ends it in its own order.

    Args:
        name: What it is, for the log.
        stop_s: Seconds that it has to end by itself until it is killed; 0 to kill it at once.
        ask: Makes it end by itself.

    Raises:
        OSError: If it cannot be started.
    """
    # Shielded: one that is cancelled as it starts would be left over.
    starting = asyncio.gather(
        asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            limit=limit,
            start_new_session=True,
        )
    )

    async def end() -> None:
        (process,) = await starting
        await stop(process, name=name, stop_s=stop_s, ask=ask)

    try:
        (process,) = await asyncio.shield(starting)
        yield process
    finally:
        await _complete(end())


async def stop(
    process: Process, *, name: str = "", stop_s: float = 0.0, ask: Callable[[Process], None] = terminate
) -> None:
    """End a child; the arguments are those of `open_process`."""
    if process.returncode is None and stop_s:
        ask(process)
        try:
            async with asyncio.timeout(stop_s):
                await process.communicate()
            return
        except TimeoutError:
            _log.warning("%s did not stop in %.0f s and is killed", name, stop_s)
    kill(process)
    # A pipe that is not read to its end is never closed.
    with suppress(TimeoutError):
        async with asyncio.timeout(limits.LAST_OUTPUT_S):
            await process.communicate()


async def _complete(work: Coroutine[Any, Any, None]) -> None:
    """Do something to its end although this task is cancelled meanwhile."""
    working = asyncio.gather(work, return_exceptions=True)
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait((working,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def keep_running(
    run: Callable[[], Awaitable[str | None]],
    ended: Callable[[str, float, int], None],
    *,
    wait_s: tuple[float, float],
    steady_s: float,
    jitter: float = 0.5,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run something again whenever it ends, later and later while it ends early.

    Args:
        run: Runs it to its end, and returns why it ended: empty where it is to run again at once, None where
            it is not.
        ended: Called before each wait with the reason, the seconds, and how many times in a row it has ended
            early.
        wait_s: First and longest wait.
        steady_s: What has run for longer has not ended early.
        jitter: As for `Backoff`.
        sleep: Waits; it may come back earlier.
    """
    backoff, early = Backoff(*wait_s, jitter=jitter), 0
    while True:
        began = time.monotonic()
        if (reason := await run()) is None:
            return
        early = 0 if time.monotonic() - began > steady_s else early + 1
        if early == 0:
            backoff.reset()
        if reason:
            seconds = backoff.next()
            ended(reason, seconds, early)
            await sleep(seconds)


async def output_of(stream: asyncio.StreamReader | None) -> AsyncIterator[bytes]:
    """Yield what a program writes, until it has ended or closed its output."""
    assert stream is not None
    while chunk := await stream.read(_CHUNK):
        yield chunk


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """Yield the lines of an output as they end; a long one in pieces."""
    left = b""
    async for chunk in chunks:
        *whole, left = (left + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(left) > LONG:
            yield left.decode("utf-8", "replace")
            left = b""
    if left:
        yield left.decode("utf-8", "replace")
