"""Threads for code that blocks."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Job = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class Workers:
    """Threads that are started when needed and kept for the next job.

    The standard library's pool waits for its threads when the process exits; a skill that never returns
    would keep the spoke from ending. These are daemons. How many there are is bounded by whoever submits.

    Args:
        name: Beginning of the threads' names.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._started = 0
        self._numbers = itertools.count(1)

    def submit(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a function in a thread. It must not raise ``StopIteration``.

        Returns:
            A future of the running loop. Cancelling it does not stop the function.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            is_new = self._idle == 0
            if is_new:
                self._started += 1
            else:
                self._idle -= 1
        self._jobs.put((function, future, loop))
        if is_new:
            name = f"{self._name}-{next(self._numbers)}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        return future

    def close(self) -> None:
        """Let the threads end once they are idle."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future, loop = job
            result, error = None, None
            try:
                result = function()
            except BaseException as raised:  # noqa: BLE001 - it is handed to whoever waits
                error = raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
            # A thread that waits must not keep the last job's objects alive.
            del job, function, future, loop, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
