"""The context that tools of a turn get, and the stream of a turn's events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass

from contracts.chat import TurnError, TurnEvent, TurnFinal

_logger = logging.getLogger(__name__)

Emit = Callable[[TurnEvent], None]
"""Passes an event of the turn on to its client."""


@dataclass(frozen=True)
class TurnContext:
    """What a tool may know of the turn that it is called in.

    Attributes:
        turn: Id of the turn.
        paused: Makes a context manager in which the turn's clock stands still.
    """

    turn: str
    emit: Emit
    paused: Callable[[], AbstractContextManager[object]]


async def streamed(
    work: Callable[[Emit], Coroutine[None, None, None]], *, name: str
) -> AsyncGenerator[TurnEvent, None]:
    """Yield what a piece of work emits, up to its ``TurnFinal`` or ``TurnError``.

    Args:
        work: Emits one of the two as its last event; where it is cancelled or fails, that is done here.
        name: Of the task that it runs in.
    """
    queue: asyncio.Queue[TurnEvent] = asyncio.Queue()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_ending(work, queue.put_nowait, name), name=name)
        try:
            while True:
                event = await queue.get()
                yield event
                if isinstance(event, TurnFinal | TurnError):
                    break
        except GeneratorExit:
            # The caller closes the generator; a TaskGroup would wrap the exception.
            return
        finally:
            task.cancel()


async def _ending(work: Callable[[Emit], Coroutine[None, None, None]], emit: Emit, name: str) -> None:
    """Run work so that a final event comes also where it is cancelled or fails."""
    try:
        await work(emit)
    except asyncio.CancelledError:
        emit(TurnError(code="cancelled", message="the turn was cancelled"))
        raise
    except Exception:
        _logger.exception("%s failed", name)
        emit(TurnError(code="internal", message="an internal error occurred", hint="The log says what."))
