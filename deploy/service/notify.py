"""Tells the service manager how this process is (sd_notify), with the standard library alone.

systemd names a socket in ``NOTIFY_SOCKET`` and takes datagrams of ``NAME=value`` lines there.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn, Self

from chat.tasks import open_tasks
from deploy import limits

_log = logging.getLogger(__name__)


@dataclass
class ServiceManager:
    """The manager that started this process; tells nothing where none did.

    Attributes:
        address: Its socket: a path, or ``@name`` for an abstract one; None where there is none.
        watchdog_s: After how long a silence it starts this process again; None where it does not look.
        is_starting: Whether this process was not ready yet.
    """

    address: str | None = None
    watchdog_s: float | None = None
    is_starting: bool = True

    @classmethod
    def take(cls, environment: MutableMapping[str, str] = os.environ) -> Self:
        """Remove it from the environment, so that no child process can report in its name."""
        address = environment.pop("NOTIFY_SOCKET", None)
        period = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", "")
        is_meant = not process or process == str(os.getpid())
        watchdog_s = int(period) / 1_000_000 if period.isdigit() and int(period) and is_meant else None
        return cls(address or None, watchdog_s)

    def give_back(self, environment: MutableMapping[str, str]) -> None:
        """Put it into the environment again, for the program that this process becomes."""
        if self.address is not None:
            environment["NOTIFY_SOCKET"] = self.address
        if self.watchdog_s is not None:
            environment["WATCHDOG_USEC"] = str(round(self.watchdog_s * 1_000_000))

    def ready(self, status: str) -> None:
        """Report that the service is ready."""
        self.is_starting = False
        self._send("READY=1", _status(status))

    def status(self, text: str) -> None:
        self._send(_status(text))

    def stopping(self) -> None:
        self._send("STOPPING=1", _status("ending what runs"))

    @asynccontextmanager
    async def kept_informed(self) -> AsyncIterator[None]:
        """Show the manager that the event loop turns, for as long as the context is open."""
        async with open_tasks() as tasks:
            if self.address is not None:
                tasks.create_task(self._beat(), name="watchdog")
            yield

    async def _beat(self) -> NoReturn:
        every = (
            self.watchdog_s / limits.BEATS_PER_WATCHDOG
            if self.watchdog_s is not None
            else limits.STARTING_BEAT_S
        )
        while True:
            more = [f"EXTEND_TIMEOUT_USEC={limits.MORE_TIME_S * 1_000_000:.0f}"] if self.is_starting else []
            self._send("WATCHDOG=1", *more)
            await asyncio.sleep(min(every, limits.STARTING_BEAT_S) if self.is_starting else every)

    def _send(self, *lines: str) -> None:
        if self.address is None or sys.platform == "win32":
            return
        # An abstract socket has a zero byte where its name in the environment has an @ (unix(7)).
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sender:
            # A manager that does not read must not hold up the event loop.
            sender.setblocking(False)
            try:
                sender.sendto("\n".join(lines).encode(), address)
            except OSError as error:
                _log.debug("the service manager does not listen: %s", error)


def _status(text: str) -> str:
    # A line end would begin another assignment.
    return f"STATUS={' '.join(text.split())}"
