"""A server process that is followed by another one of the same command, in its place."""

import asyncio
import os
import sys

from deploy.service.notify import ServiceManager


class Restart:
    """Whether this process is to be followed by another one of the same command.

    Attributes:
        manager: The service manager, which the other one reports to.
    """

    def __init__(self, manager: ServiceManager) -> None:
        self.manager = manager
        self._wanted = asyncio.Event()

    def request(self) -> None:
        """End what runs in its order, then start again."""
        self._wanted.set()

    async def requested(self) -> None:
        """Wait until it is requested."""
        await self._wanted.wait()

    def follow(self) -> None:
        """Become the other process, if one was requested; what ran has ended by now."""
        if not self._wanted.is_set():
            return
        self.manager.give_back(os.environ)
        sys.stdout.flush()
        sys.stderr.flush()
        # -P: as in `deploy.service.plan`; the command itself was no module, and had no such directory either.
        os.execv(sys.executable, [sys.executable, "-P", "-m", "deploy.cli.main", *sys.argv[1:]])  # noqa: S606
