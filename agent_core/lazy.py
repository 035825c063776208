"""Lazy resources: opened when they are first needed."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

from contracts.errors import StrawberryError

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Lazy(Generic[T]):
    """A resource that is opened at its first use, in a task of its own, and closed with the task group.

    A resource that could not be opened is tried again at the next use, and so is one that failed later.

    Args:
        opener: Opens it.
        tasks: Owns it while it is open.
        name: Of the resource, for messages.
    """

    def __init__(
        self, opener: Callable[[], AbstractAsyncContextManager[T]], *, tasks: asyncio.TaskGroup, name: str
    ) -> None:
        self._opener = opener
        self._tasks = tasks
        self._name = name
        self._opened: asyncio.Future[T] | None = None
        self._task: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """Return the resource; open it if it is not open.

        Raises:
            StrawberryError: If it cannot be opened.
        """
        return await asyncio.shield(self.start())

    @property
    def opened(self) -> T | None:
        """The resource, if it is open."""
        future = self._opened
        if future is None or not future.done() or future.cancelled() or future.exception() is not None:
            return None
        return future.result()

    def start(self) -> asyncio.Future[T]:
        """Start opening, so that the first use does not wait."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            # Retrieved here: a failure that is not waited for is raised at the next use.
            self._opened.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._task = self._tasks.create_task(self._keep(self._opened), name=self._name)
        return self._opened

    def close(self) -> None:
        """Close the resource before the task group ends; nothing may use it any more."""
        if self._task is not None:
            self._task.cancel()
        if self._opened is not None:
            self._opened.cancel()  # a task that never began does not do it

    async def _keep(self, opened: asyncio.Future[T]) -> None:
        try:
            async with self._opener() as resource:
                opened.set_result(resource)
                await asyncio.get_running_loop().create_future()
        except StrawberryError as error:
            self._fail(opened, error)
        except Exception:  # noqa: BLE001  what needs it fails; the rest goes on
            _log.exception("the %s failed", self._name)
            self._fail(opened, StrawberryError("the {what} failed; the log says why", what=self._name))
        finally:
            opened.cancel()

    def _fail(self, opened: asyncio.Future[T], error: StrawberryError) -> None:
        self._opened = None
        if not opened.done():
            opened.set_exception(error)
