"""Running something until it is told to stop."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

Stop = asyncio.Event


def run_until_stopped(main: Callable[[Stop], Awaitable[None]]) -> None:
    """Run ``main`` with an event that SIGINT (Ctrl-C) and SIGTERM set; ``main`` then ends in its own time.

    A second signal does not wait.
    """

    async def run() -> None:
        stop = Stop()
        loop = asyncio.get_running_loop()

        def told() -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            stop.set()

        if sys.platform == "win32":
            # The Proactor loop has no signal handlers of its own; the interpreter's runs between callbacks.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(told))
        else:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, told)
        await main(stop)

    asyncio.run(run())
