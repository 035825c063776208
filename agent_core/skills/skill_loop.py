"""The event loop of one skill, in a thread of its own: what blocks there stops that skill alone."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import linecache
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class SkillLoop:
    """Runs the coroutines of one skill. Its thread begins with the first of them.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._asked_at: float | None = None
        self._pending = 0

    def submit(
        self, work: Coroutine[Any, Any, T], *, name: str, context: contextvars.Context | None = None
    ) -> "Work[T]":
        """Run a coroutine; what it gives comes to the calling loop."""
        running = Work(self._started(), work, name=name, context=context)
        self._pending += 1

        def leave(_: object) -> None:
            self._pending -= 1

        running.add_done_callback(leave)
        return running

    def call(self, function: Any, *args: Any) -> None:
        """Call a function in the loop, from any thread."""
        self._started().call_soon_threadsafe(function, *args)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=[self._loop], name=self._name, daemon=True)
            self._thread.start()
        return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            for task in (left := asyncio.all_tasks(loop)):
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            loop.close()

    def silent_for(self, *, busy: bool = False) -> float:
        """Return for how many seconds it has not answered, and ask it where something runs in it.

        Args:
            busy: Whether it has tasks of its own.
        """
        if self._loop is None:
            return 0.0
        if self._asked_at is not None:
            return time.monotonic() - self._asked_at
        if self._pending or busy:
            self._asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._answer)
        return 0.0

    def _answer(self) -> None:
        self._asked_at = None

    def place(self, folder: Path | None) -> str:
        """Return the line that runs in its thread: of the skill's folder where there is one."""
        frame = sys._current_frames().get(self._thread.ident or 0) if self._thread is not None else None
        root, last = str(folder.resolve()) if folder is not None else "", None
        while frame is not None:
            if root and frame.f_code.co_filename.startswith(root):
                last = frame
                break
            last, frame = last or frame, frame.f_back
        if last is None:
            return ""
        file, line = last.f_code.co_filename, last.f_lineno
        return f"{Path(file).name}, line {line}: {linecache.getline(file, line).strip()}".rstrip(": ")

    def close(self) -> None:
        """End the thread once it is free; one that blocks for ever ends with the process."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop, self._asked_at = None, None


@dataclass(eq=False)
class OwnedTasks:
    """Tasks of one loop that end together."""

    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        # Without the context: it may be that of a call, whose rights end with it.
        task = asyncio.get_running_loop().create_task(work, name=name, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end(self) -> None:
        """Cancel all of them, and wait until they have ended."""
        for task in (tasks := list(self._tasks)):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def contained(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that cannot end the loop in which it runs."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"it raised {type(error).__name__}") from error


class Work(asyncio.Future[T]):
    """A coroutine that runs in another loop: done when it is, however it ended.

    Cancelling it would only stop the waiting: ``stop`` ends the coroutine.
    """

    def __init__(
        self,
        there: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T],
        *,
        name: str,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._there = there
        self._task: asyncio.Task[T] | None = None
        there.call_soon_threadsafe(self._begin, work, name, context or contextvars.copy_context())

    def stop(self) -> None:
        """Cancel the coroutine at its next ``await``."""
        self._there.call_soon_threadsafe(self._stop)

    def _begin(self, work: Coroutine[Any, Any, T], name: str, context: contextvars.Context) -> None:
        self._task = self._there.create_task(contained(work), name=name, context=context)
        # One that is stopped before it begins has never been awaited.
        self._task.add_done_callback(lambda _: work.close())
        self._task.add_done_callback(self._ended)

    def _stop(self) -> None:
        # After _begin: a loop calls what it is given in order.
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        settle(self, task)


def settle(future: asyncio.Future[T], ended: asyncio.Future[T] | concurrent.futures.Future[T]) -> None:
    """Let a future of another thread's loop end as something here has ended."""

    def end() -> None:
        if future.done():
            return
        if ended.cancelled():
            future.cancel()
        elif (error := ended.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(ended.result())

    # That loop may be closed by now: then nothing waits for it.
    with contextlib.suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(end)
