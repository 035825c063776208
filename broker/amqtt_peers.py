"""The two kinds of connection a client can come by: a TCP (or TLS) stream, or a WebSocket."""

import asyncio
import socket
from contextlib import suppress
from typing import Final, Protocol

from websockets import ConnectionClosed
from websockets.asyncio.server import ServerConnection

_CHUNK: Final = 64 * 1024
_CLOSE_S: Final = 1.0
"""Seconds a client has to take the last bytes before it is cut off."""


class Peer(Protocol):
    """A byte stream to a client.

    Attributes:
        address: Where it comes from, for logs.
    """

    address: str

    async def read(self) -> bytes:
        """Give the next bytes; none at the end of the stream."""

    def write(self, data: bytes) -> None:
        """Send bytes; what the client does not take waits in memory."""

    @property
    def waiting(self) -> int:
        """Bytes that wait in memory."""

    async def drain(self) -> None:
        """Wait until little is waiting."""

    async def pump(self) -> None:
        """Do the sending, where that takes a task of its own, until cancelled."""

    def abort(self) -> None:
        """Cut the client off at once."""

    async def close(self) -> None:
        """Send what is waiting and close; cut the client off where that takes long."""


class TcpPeer:
    """A client on a TCP stream, with or without TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._loop = asyncio.get_running_loop()
        self.address = _address(writer.get_extra_info("peername"))
        prepare_socket(writer.get_extra_info("socket"))

    async def read(self) -> bytes:
        """Give the next bytes; none at the end of the stream."""
        try:
            return await self._reader.read(_CHUNK)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the event loop, all of them in one system call."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(data)
        self._outbox_size += len(data)

    @property
    def waiting(self) -> int:
        """Bytes that wait in memory."""
        return self._outbox_size + self._writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until little is waiting."""
        self._flush()
        with suppress(OSError):
            await self._writer.drain()

    async def pump(self) -> None:
        """Nothing to do: the transport sends by itself."""

    def abort(self) -> None:
        """Cut the client off at once."""
        self._clear()
        self._writer.transport.abort()

    async def close(self) -> None:
        """Send what is waiting and close; cut the client off where that takes long."""
        self._flush()
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    def _flush(self) -> None:
        if self._outbox and not self._writer.transport.is_closing():
            self._writer.write(b"".join(self._outbox))
        self._clear()

    def _clear(self) -> None:
        self._outbox.clear()
        self._outbox_size = 0


class WebSocketPeer:
    """A client on a WebSocket (MQTT 3.1.1, section 6)."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self.address = _address(connection.remote_address)
        prepare_socket(connection.transport.get_extra_info("socket"))

    async def read(self) -> bytes:
        """Give the next bytes; none at the end of the stream, or after a text frame."""
        try:
            message = await self._connection.recv()
        except (ConnectionClosed, OSError):
            return b""
        return message if isinstance(message, bytes) else b""

    def write(self, data: bytes) -> None:
        """Send bytes as soon as the pump gets to it."""
        self._outbox.append(data)
        self._outbox_size += len(data)
        self._emptied.clear()
        self._filled.set()

    @property
    def waiting(self) -> int:
        """Bytes that wait in memory."""
        return self._outbox_size + self._connection.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until little is waiting."""
        await self._emptied.wait()

    async def pump(self) -> None:
        """Send what is written until cancelled or closed."""
        with suppress(ConnectionClosed, OSError):
            while True:
                await self._filled.wait()
                await self._flush()

    def abort(self) -> None:
        """Cut the client off at once."""
        self._outbox.clear()
        self._emptied.set()
        self._connection.transport.abort()

    async def close(self) -> None:
        """Send what is waiting and close; cut the client off where that takes long."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._flush()
                await self._connection.close()
        except (ConnectionClosed, OSError, TimeoutError):
            self.abort()

    async def _flush(self) -> None:
        self._filled.clear()
        data, self._outbox = b"".join(self._outbox), []
        if data:
            await self._connection.send(data)
            self._outbox_size -= len(data)
        if not self._outbox:
            self._emptied.set()


def _address(peername: tuple[str, int] | None) -> str:
    return f"{peername[0]}:{peername[1]}" if peername else "unknown address"


def prepare_socket(sock: socket.socket | None) -> None:
    """Send small packets at once, and find out in the end when a silent client is gone."""
    if sock is not None:
        # Nagle's algorithm and delayed acknowledgements together cost 40 ms a round trip.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
