"""A child process of ``strawberry up``, and the protocol between the two.

The child loads its code while the hub starts, then waits for its parameters: one line of JSON on standard
input. It reports its state in lines of JSON on standard output. The end of its standard input tells it to
stop, also when its parent was killed.
"""

import asyncio
import json
import logging
import os
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from bus.processes import keep_running, kill, open_process, stop
from contracts.errors import StrawberryError
from deploy import limits
from deploy.directory import Home, explained
from deploy.home.running import Reporter, run_until_stopped

_log = logging.getLogger(__name__)


class Child:
    """The parent's side: a process that was started.

    Attributes:
        what: What it is, for the log.
        wait: Returns its exit code once it has ended.
    """

    def __init__(self, process: Process, *, what: str, stop_s: float) -> None:
        self.what = what
        self.wait = process.wait
        self._process = process
        self._stop_s = stop_s
        self._begun = False

    async def begin(self, parameters: dict[str, Any]) -> None:
        """Send it its parameters; from now on it ends in its own order.

        Raises:
            OSError: If it has ended.
        """
        assert self._process.stdin is not None
        self._begun = True
        self._process.stdin.write(json.dumps(parameters).encode() + b"\n")
        await self._process.stdin.drain()

    async def states(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what it reports, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield json.loads(line)

    async def end(self) -> None:
        """End it: gracefully if it has begun, and by force if that takes too long."""
        await stop(self._process, name=self.what, stop_s=self._stop_s, ask=self.ask)

    def ask(self, process: Process) -> None:
        """Ask it to end."""
        if self._begun:
            assert process.stdin is not None
            process.stdin.close()
        else:
            kill(process)


@asynccontextmanager
async def start_child(home: Home, *words: str, what: str, stop_s: float) -> AsyncIterator[Child]:
    """Start a command of ours as a child; end it when the context is left.

    Args:
        words: The command, which takes ``--with-parent``.
        stop_s: How long it may take to end in its own order.
    """
    debug = ["--debug"] if logging.getLogger().isEnabledFor(logging.DEBUG) else []
    environment = {**os.environ, "STRAWBERRY_HOME": str(home.directory)}
    # For commands of the owner; skills run in the spoke, and could read it there.
    environment.pop("STRAWBERRY_TOKEN", None)
    starting = open_process(
        # -P: as in `deploy.service.plan`.
        [sys.executable, "-P", "-m", "deploy.cli.main", *words, "--with-parent", *debug],
        name=what,
        stop_s=stop_s,
        ask=lambda process: child.ask(process),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with starting as process:
        child = Child(process, what=what, stop_s=stop_s)
        yield child


async def keep_child(
    first: Child,
    run: Callable[[Child], Awaitable[str]],
    start: Callable[[], AbstractAsyncContextManager[Child]],
    *,
    wait_s: tuple[float, float],
) -> None:
    """Run a child, and start another one whenever it ends by itself.

    Args:
        run: Runs a child to its end; returns why it ended, empty where the next one is to start at once.
        wait_s: First and longest wait before it is started again.
    """
    started = [first]

    async def run_next() -> str:
        async with nullcontext(started.pop()) if started else start() as child:
            try:
                return await run(child)
            finally:
                # The program that started the first one ends it only later.
                await child.end()

    def warn(ended: str, seconds: float, _: int) -> None:
        _log.warning("%s ended (%s); starting it again in %.1f s", first.what, ended, seconds)

    await keep_running(run_next, warn, wait_s=wait_s, steady_s=wait_s[1], jitter=0)


def start_broker(home: Home) -> AbstractAsyncContextManager[Child]:
    return start_child(home, "broker", "run", what="the embedded broker", stop_s=limits.BROKER_STOP_S)


def run_child(
    serve: Callable[..., Coroutine[Any, Any, None]], *, prepare: Callable[[], None] = lambda: None
) -> int:
    """Run as the child: wait for the parameters, then serve until the parent ends or asks for it.

    Args:
        serve: Gets a `Reporter`, and the parameters by their names.
        prepare: Does what needs no parameters.

    Returns:
        The exit code: 1 after an error, which was reported as the state ``failed``.
    """
    report = _open_channel()
    try:
        prepare()
        # Not through sys.stdin, which would read ahead, and whose lock aborts the interpreter's end.
        with os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as parent:
            line = parent.readline()
        if not line:
            return 0

        async def serve_parent() -> None:
            _stop_with_parent()
            await serve(report, **json.loads(line))

        run_until_stopped(serve_parent())
    except StrawberryError as error:
        report.state("failed", problem=error.message, hint=error.hint)
        return 1
    except OSError as error:
        problem, hint = explained(error)
        report.state("failed", problem=problem, hint=hint)
        return 1
    return 0


def _open_channel() -> Reporter:
    """Reserve standard output for reports: what a skill or a library prints is not for the parent."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
    return Reporter(lambda line: print(line, file=channel, flush=True), as_json=True)


def _stop_with_parent() -> None:
    """Stop once the other end of standard input is closed: then the process that started us is gone."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def wait() -> None:
        # Not through sys.stdin: a daemon thread that holds its lock aborts the interpreter's end.
        while os.read(sys.stdin.fileno(), 1):
            pass
        with suppress(RuntimeError):  # it has stopped by itself, and its loop is closed
            loop.call_soon_threadsafe(task.cancel)

    threading.Thread(target=wait, name="watch parent", daemon=True).start()
