"""Handlers of what a page hears: called with an event, and one at a time."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from nicegui import ui
from nicegui.awaitable_response import AwaitableResponse
from nicegui.slot import Slot

T = TypeVar("T")

Handler = Callable[[], Awaitable[Any] | Any]
Show = Callable[[], Awaitable[None]]
"""Reads something and shows it."""


def one_at_a_time(read: Show) -> Show:
    """Make a function that reads and shows something run once at a time, and once more if called meanwhile.

    So an older answer never replaces a newer one.
    """
    running, waits = asyncio.Lock(), False

    async def run() -> None:
        nonlocal waits
        if waits:
            return
        waits = True
        try:
            await running.acquire()
        finally:
            waits = False
        try:
            await read()
        finally:
            running.release()

    return run


async def tell(on_event: Callable[[T], Any], event: T, slot: Slot) -> None:
    with slot:
        await handled(partial(on_event, event))


async def handled(handler: Handler) -> None:
    result = handler()
    # To await a dialog, which ``close`` returns, would open it again; a page that is left answers no script.
    if inspect.isawaitable(result) and not isinstance(result, (ui.element, AwaitableResponse)):
        await result
