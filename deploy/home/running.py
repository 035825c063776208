"""Running something on a port until it is told to stop."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn

from contracts.errors import PortTaken
from deploy.service.notify import ServiceManager

Ready = Callable[[str], None]
"""Is told in words that something serves from now on."""


def unheard(_: str) -> None:
    """Be told that something is ready where nobody wants to know."""


def run_until_stopped(main: Coroutine[Any, Any, None], *, manager: ServiceManager | None = None) -> None:
    """Run ``main`` to its end; SIGINT (Ctrl-C) and SIGTERM cancel it, which is a clean end.

    What ``main`` has entered is left in order. A second signal cancels that, too.

    Args:
        manager: Is shown that the event loop turns, and told when the end begins.
    """
    informed = manager or ServiceManager()

    async def run() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            informed.stopping()
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            if sys.platform == "win32":
                # The Proactor loop has no signal handlers; the interpreter's runs between callbacks.
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
            else:
                loop.add_signal_handler(number, stop)
        with contextlib.suppress(asyncio.CancelledError):
            async with informed.kept_informed():
                await main

    asyncio.run(run())


async def forever() -> NoReturn:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody has that future")


@contextlib.contextmanager
def chosen_by(option: str) -> Iterator[None]:
    """Let a port that is taken name the option that chooses another."""
    try:
        yield
    except PortTaken as error:
        raise PortTaken(
            error.message, hint=f"Stop that program, or choose another port with {option} N."
        ) from None
