"""Loops that live as long as a block."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background(**loops: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.TaskGroup]:
    """Run the named loops during the block, and cancel them, and whatever was added, at its end.

    A loop that raises ends the block. A single error is raised as itself, not as a group.

    Yields:
        The group that owns the loops; more tasks may be added to it.
    """
    tasks: list[asyncio.Task[None]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(loop, name=f"sandbox {name}") for name, loop in loops.items()]
            try:
                yield group
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise
