"""Tasks that end with their block, and waiting for an event."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


async def happens(event: asyncio.Event, *, within_s: float) -> bool:
    """Wait for an event, at most for some seconds; return whether it is set."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


class _Closing(Exception):
    """Makes a group cancel what still runs."""


@asynccontextmanager
async def open_tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """Own tasks for the length of a block: at its end those that still run are cancelled.

    A task that fails ends the block. What the block or a single task raises is raised as it is, not
    in a group, so that the caller can tell a busy port from a bug.
    """
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
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
