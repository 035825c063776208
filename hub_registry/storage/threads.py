"""A thread in which those who ask for work take turns."""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

T = TypeVar("T")


class FairThread:
    """Runs work in one thread: that of each asker in its order, and one piece of each asker in turn.

    Who asks for much waits for itself. Others wait for the piece that runs, and for one of each asker.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T], *, asker: str = "") -> T:
        done: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(asker, deque()).append((done, work))
        self._thread.submit(self._next)
        return await asyncio.wrap_future(done)

    def _next(self) -> None:
        with self._lock:
            asker, own = self._waiting.popitem(last=False)
            done, work = own.popleft()
            if own:
                self._waiting[asker] = own
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001  it is for who asked
                done.set_exception(error)

    def close(self) -> None:
        """Wait for what runs and what waits."""
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
