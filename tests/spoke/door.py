"""A port that can be closed and opened again, with no connection lost on the way in."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Self

from bus.ports import listen
from chat.tasks import open_tasks
from tests.hub_registry.spokes import eventually
from tests.ports import free_port

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Door:
    """Takes connections on a port of this machine while it is open.

    ``asyncio.start_server`` leaves the socket of a client open that comes in the moment in which it closes.

    Args:
        serve: Serves one connection, which ends with it.
    """

    def __init__(self, serve: Serve) -> None:
        self.port = free_port()
        self._serve = serve
        self._listener: socket.socket | None = None
        self._inside: set[asyncio.StreamWriter] = set()
        self._entering = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(open_tasks())
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.emptied()
        await self._stack.aclose()

    @property
    def is_open(self) -> bool:
        return self._listener is not None

    def open(self) -> None:
        """Take connections, on the same port each time."""
        if self._listener is None:
            self._listener = listen("127.0.0.1", self.port, purpose="a test")
            asyncio.get_running_loop().add_reader(self._listener, self._take, self._listener)

    def close(self) -> None:
        """Refuse connections; those that are open go on."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._inside:
            writer.transport.abort()

    async def emptied(self) -> None:
        """Wait until every connection has ended."""
        await eventually(lambda: not self._inside and not self._entering)

    def _take(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):
            client, _ = listener.accept()
            client.setblocking(False)
            self._entering += 1
            self._tasks.create_task(self._enter(client), name="connection")

    async def _enter(self, client: socket.socket) -> None:
        try:
            protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._served)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, client)
        except BaseException:
            self._entering -= 1
            client.close()
            raise

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._entering -= 1
        self._inside.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
            self._inside.discard(writer)
