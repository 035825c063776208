"""The socket of one client of the embedded broker."""

import asyncio
import socket
from contextlib import suppress
from typing import Final

_CHUNK: Final = 64 * 1024
_CLOSE_S: Final = 1.0
"""Seconds a client has to take the last bytes before it is cut off."""


class Peer:
    """A client on a TCP stream.

    Attributes:
        address: Where it comes from, for logs.
    """

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


def _address(peername: tuple[str, int] | None) -> str:
    return f"{peername[0]}:{peername[1]}" if peername else "unknown address"


def prepare_socket(sock: socket.socket | None) -> None:
    """Send small packets at once, and find out in the end when a silent client is gone."""
    if sock is not None:
        # Nagle's algorithm and delayed acknowledgements together cost 40 ms a round trip.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
