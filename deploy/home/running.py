"""Running a server process: what it reports, its end by a signal, its restart, and the watch on its loop."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn

from deploy import limits
from deploy.directory import Home
from deploy.logs.terminal import discard_output, visible
from deploy.service.notify import ServiceManager
from deploy.settings.options import LanOptions

if TYPE_CHECKING:
    from deploy.home.lan import Lan

_log = logging.getLogger(__name__)
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Both of glibc's ``malloc.h``."""


class Reporter:
    """Reports states: in words for a person, or as one JSON object a line for a program.

    Args:
        write: Prints a line at once.
        as_json: Whether to print JSON.
        manager: The service manager, which is notified of ``ready``.
    """

    def __init__(
        self, write: Callable[[str], None], *, as_json: bool = False, manager: ServiceManager | None = None
    ) -> None:
        self._write = write
        self._as_json = as_json
        self._manager = manager or ServiceManager()

    @property
    def is_supervised(self) -> bool:
        return self._manager.address is not None

    def say(self, *lines: str) -> None:
        if not self._as_json:
            self._print(visible("\n".join(lines)))

    def state(self, state: str, *lines: str, **fields: Any) -> None:
        """Report a state.

        Args:
            lines: How a person reads it.
            fields: What a program reads besides the name of the state.
        """
        if self._as_json:
            self._print(visible(json.dumps({"state": state, **fields}, ensure_ascii=False)))
        elif lines:
            self.say(*lines)

    def _print(self, text: str) -> None:
        # A server goes on where the reader of its output went away (`strawberry up | head -3`), its terminal
        # was closed, or the disk is full.
        try:
            self._write(text)
        except OSError:
            discard_output()

    def waiting(self, line: str, *, status: str, **fields: Any) -> None:
        """Report that it serves as far as it can, and what it waits for."""
        self.state("waiting", line, **fields)
        # A service manager must not start it again for that.
        self._manager.ready(status)

    def ready(self, line: str, *, status: str, **fields: Any) -> None:
        """Report that everything serves now.

        Args:
            status: Short text for ``systemctl status``.
        """
        self.state("ready", line, **fields)
        self._manager.ready(status)


class Restart:
    """Whether this process is to be followed by another one of the same command.

    Attributes:
        manager: The service manager, which the other one reports to.
    """

    def __init__(self, manager: ServiceManager) -> None:
        self.manager = manager
        self._wanted = asyncio.Event()
        self._is_stopped = False

    def request(self) -> None:
        self._wanted.set()

    def prevent(self) -> None:
        """Start nothing again, whatever is requested: the process is to stop."""
        self._is_stopped = True

    async def requested(self) -> None:
        await self._wanted.wait()

    def follow(self) -> None:
        """Become the other process, if one was requested; what ran has ended by now."""
        if not self._is_stopped and self._wanted.is_set():
            sys.stdout.flush()
            sys.stderr.flush()
            self.become_again()

    def become_again(self) -> None:
        """Become the other process at once, whatever runs; do nothing if this one is to stop."""
        if self._is_stopped:
            return
        self.manager.give_back(os.environ)
        # -P: as in `deploy.service.plan`; the command itself was no module, and had no such directory either.
        os.execv(sys.executable, [sys.executable, "-P", "-m", "deploy.cli.main", *sys.argv[1:]])  # noqa: S606


def run_until_stopped(
    main: Coroutine[Any, Any, None],
    *,
    restart: Restart | None = None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Run ``main`` to its end; SIGINT (Ctrl-C), SIGTERM and SIGHUP cancel it, which is a clean end.

    What ``main`` has entered is left in order. A second signal cancels that, too. A process whose event loop
    does not turn for 30 s writes where it hangs into the log and ends hard.

    Args:
        restart: Followed where the process ends at once, because a task or the event loop hangs; a signal
            prevents it. Its service manager gets signs of life and is notified when the end begins.
        on_stop: Called with the first signal.
    """
    again = restart or Restart(ServiceManager())

    async def run() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            is_first = not task.cancelling()
            again.prevent()
            again.manager.stopping()
            task.cancel()
            if is_first:
                on_stop()

        def handle(number: signal.Signals) -> None:
            loop.add_signal_handler(number, stop)
            # The handler above is a callback of the loop; this one also runs while the loop hangs.
            signal.signal(number, lambda *_: again.prevent())

        for number in (signal.SIGINT, signal.SIGTERM):
            if sys.platform == "win32":
                # The Proactor loop has no signal handlers; the interpreter's runs between callbacks.
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
            else:
                handle(number)
        # The terminal was closed. `nohup` ignores that, and so does what it starts.
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            handle(signal.SIGHUP)
        watching = _watched(again, may_follow=restart is not None)
        with contextlib.suppress(asyncio.CancelledError), watching:
            async with again.manager.kept_informed():
                await main
        with contextlib.suppress(asyncio.CancelledError):
            # Of a second cancellation that came as the last thing ended, the task itself would be cancelled.
            await asyncio.sleep(0)
        if await _stuck_tasks() or await _stuck_threads():
            # The end of the event loop would wait for them without a limit.
            code = 1
            try:
                sys.stdout.flush()
                logging.shutdown()
                again.follow()
                code = 0
            except OSError as error:
                _log.error("this process could not start again: %s", error)
            finally:
                os._exit(code)

    _share_heaps()
    asyncio.run(run())


def _share_heaps() -> None:
    """Let threads share two heaps of glibc, and keep large blocks out, unless the environment says otherwise.

    By default up to eight for each core are made. They fill with holes: 20 MB of a hub, and more each hour.
    Two still had as many, as the threshold of a block with pages of its own rises with each that is freed.
    """
    wanted = {
        "MALLOC_ARENA_MAX": (_M_ARENA_MAX, 2),
        "MALLOC_MMAP_THRESHOLD_": (_M_MMAP_THRESHOLD, 128 * 1024),
    }
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(AttributeError):  # Other C libraries have none.
            for variable, option in wanted.items():
                if variable not in os.environ:
                    ctypes.CDLL(None).mallopt(*option)


async def _stuck_tasks() -> bool:
    """Cancel the tasks that are left, and return whether one does not end: a skill may ignore it."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(left, timeout=limits.STUCK_TASKS_S)
    stuck = [task.get_name() for task in left if not task.done()]
    if stuck:
        _log.warning("ending although this still runs: %s", ", ".join(stuck))
    return bool(stuck)


async def _stuck_threads() -> bool:
    """Wait for work in threads, and return whether some does not end: it may hang in a library."""
    loop = asyncio.get_running_loop()
    ending = loop.create_task(loop.shutdown_default_executor())
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait((ending,), timeout=limits.STUCK_THREADS_S)
    if not ending.done():
        _log.warning("ending although work in a thread still runs")
    return not ending.done()


@contextlib.contextmanager
def _watched(restart: Restart, *, may_follow: bool) -> Iterator[None]:
    """End this process when its event loop hangs, while the context is open.

    Args:
        may_follow: Whether it starts again itself; a child process is started again by its parent.
    """
    loop, thread, left = asyncio.get_running_loop(), threading.get_ident(), threading.Event()

    def watch() -> None:
        turned, silent = threading.Event(), 0
        turned.set()
        # Ticks are counted, not the clock, which also runs while this process does not.
        while not left.wait(limits.WATCH_TICK_S):
            if turned.is_set():
                silent = 0
                turned.clear()
                with contextlib.suppress(RuntimeError):  # the loop was closed just now
                    loop.call_soon_threadsafe(turned.set)
                continue
            silent += 1
            is_starting = may_follow and restart.manager.is_starting
            if silent >= (limits.STARTING_TICKS if is_starting else limits.HUNG_TICKS):
                follows = may_follow and not _is_told_to_stop(loop)
                _end_hung(thread, restart if follows else None, silent * limits.WATCH_TICK_S)

    threading.Thread(target=watch, name="watch the event loop", daemon=True).start()
    try:
        yield
    finally:
        left.set()


def _is_told_to_stop(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a signal waits that Python cannot handle, because the thread hangs in a library.

    The interpreter has written its number to the socket that wakes the loop.
    """
    with contextlib.suppress(AttributeError, OSError):
        waiting: bytes = loop._ssock.recv(limits.WAKING_BYTES, socket.MSG_PEEK)  # type: ignore[attr-defined]
        return any(number in waiting for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    return False


def _end_hung(thread: int, restart: Restart | None, silent_s: float) -> NoReturn:
    """Log where a thread is, and end this process or become the next one."""
    frames = islice(traceback.walk_stack(sys._current_frames()[thread]), limits.STACK_FRAMES)
    where = ", from ".join(
        f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}" for frame, line in frames
    )
    said = "the event loop has not turned for %.0f s, so this process is ended; it hangs at %s"
    saying = threading.Thread(target=_log.critical, args=(said, silent_s, where), daemon=True)
    saying.start()
    saying.join(limits.HUNG_LOG_S)
    try:
        if restart is not None:
            restart.become_again()
    finally:
        os._exit(1)


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import many modules without garbage collection.

    Collections search hundreds of thousands of new objects that all stay: an eighth of the time of a start.
    What was imported is left out of later collections, too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def enter_lan(
    stack: AsyncExitStack, home: Home, options: LanOptions, *, report: Reporter, names: Sequence[str] = ()
) -> "Lan | None":
    """Open the way in for other machines; None where there is to be none.

    Args:
        names: Under which they know this machine, besides its own.

    Raises:
        ConfigError: If the certificates cannot be used.
    """
    if options.exposure == "loopback":
        return None
    from deploy.home.lan import open_lan  # slow to import

    return await open_lan(stack, home, options, say=report.say, names=names)


async def forever() -> NoReturn:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("that future is never resolved")
