"""Tasks that end with their block, what becomes of one that fails, and waiting for an event."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from chat import limits
from contracts.rates import Backoff

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def happens(event: asyncio.Event, *, within_s: float | None) -> bool:
    """Wait for an event, at most for some seconds, None for any; return whether it is set."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


class _Closing(Exception):
    """Makes a group cancel what still runs."""


class _Contained(asyncio.TaskGroup):
    """Tasks that fail alone: what one raises is logged, with its name."""

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        async def contained() -> Any:
            try:
                return await coro
            except Exception:  # noqa: BLE001  one task must not end what serves the home
                _log.exception("the task %r failed", options.get("name"))

        task = super().create_task(contained(), **options)
        # One that is cancelled before it begins has never awaited it.
        task.add_done_callback(lambda _: coro.close())
        return task


def supervise(
    tasks: asyncio.TaskGroup, run: Callable[[], Awaitable[None]], *, name: str
) -> asyncio.Task[Any]:
    """Run lasting work as a task; where it fails, log that and run it again after a growing wait."""

    async def supervised() -> None:
        backoff = Backoff(*limits.TASK_RETRY_S, jitter=0)
        while True:
            begun = time.monotonic()
            try:
                await run()
                return
            except Exception:  # noqa: BLE001  one task must not end what serves the home
                if time.monotonic() - begun > limits.TASK_RETRY_S[1]:
                    backoff.reset()
                wait_s = backoff.next()
                _log.exception("the task %r failed and starts again in %.0f s", name, wait_s)
            await asyncio.sleep(wait_s)

    return tasks.create_task(supervised(), name=name)


@asynccontextmanager
async def open_tasks(*, contained: bool = False) -> AsyncIterator[asyncio.TaskGroup]:
    """Own tasks for the length of a block: at its end those that still run are cancelled.

    What the block or a single task raises is raised as it is, not in a group, so that the caller can tell a
    busy port from a bug.

    Args:
        contained: Whether a task that fails is logged; otherwise it ends the block.
    """
    failure: BaseException | None = None
    try:
        async with _Contained() if contained else asyncio.TaskGroup() as group:
            try:
                yield group
            except BaseException as error:  # noqa: BLE001  it is raised again below
                failure = error
            raise _Closing
    except BaseExceptionGroup as errors:
        if isinstance(failure, asyncio.CancelledError):
            # From Python 3.13 on, the group cancels its task again; the caller's clean-up must not see that.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        _, others = errors.split(_Closing)
        if others is not None:
            raise (others.exceptions[0] if len(others.exceptions) == 1 else others) from None
    if failure is not None:
        raise failure


async def finished(work: Coroutine[Any, Any, T], *, within_s: float, name: str) -> T:
    """Return what a coroutine returns; where its caller is cancelled, it first has some seconds to end."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            outcome.set_result(await work)
        except Exception as error:  # noqa: BLE001  it is the caller's
            outcome.set_exception(error)
        finally:
            outcome.cancel()

    async with open_tasks() as tasks:
        running = tasks.create_task(run(), name=name)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            await asyncio.wait([running], timeout=within_s)
            raise
