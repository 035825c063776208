"""The socket of one client of the embedded broker, with or without TLS."""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Final, Protocol

from broker.limits import CLOSE_S
from bus.link.tls_failure import refused_client
from contracts.errors import InvalidMessage

CHUNK: Final = 64 * 1024


class HandshakeFailed(InvalidMessage):
    """A client that did not get as far as MQTT: its TLS or its WebSocket request was no good."""


class Peer(Protocol):
    """A byte stream to a client that was accepted, and does nothing before it is opened.

    Attributes:
        address: Where it comes from, for logs.
        host: The same without its port.
    """

    address: str
    host: str

    async def open(self, *, most: int) -> bool:
        """Complete what comes before MQTT; False where the client hangs up without a word.

        Args:
            most: Bytes that are taken until `trust` is called; more end the stream.

        Raises:
            HandshakeFailed: If the client does not do its part.
        """

    def trust(self) -> None:
        """Accept any number of bytes: the client has logged in."""

    async def read(self) -> bytes:
        """Return the next bytes; none at the end of the stream."""

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the event loop, all of them together."""

    @property
    def waiting(self) -> int:
        """Bytes that wait in memory."""

    async def drain(self) -> None:
        """Wait until little is waiting."""

    def abort(self) -> None:
        """Cut the client off at once."""

    async def close(self) -> None:
        """Send what is waiting and close; cut the client off where that takes long."""


class StreamPeer:
    """A client on a TCP stream."""

    def __init__(self, sock: socket.socket, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> None:
        self.host = address[0]
        self.address = f"{address[0]}:{address[1]}"
        self._socket = sock
        self._tls = tls
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._most: int | None = None
        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._loop = asyncio.get_running_loop()

    async def open(self, *, most: int) -> bool:
        """Complete the TLS handshake, where there is one; False where the client hangs up.

        Raises:
            HandshakeFailed: If the client cannot agree with us.
        """
        if self._socket.fileno() < 0:
            return False  # it was cut off before its turn
        prepare_socket(self._socket)
        self._most = most
        self._reader = asyncio.StreamReader(loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(self._reader, loop=self._loop)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, self._socket, ssl=self._tls
            )
        except ssl.SSLError as error:
            raise HandshakeFailed(refused_client(error)) from None
        except OSError:
            return False
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, self._loop)
        return True

    def trust(self) -> None:
        # The client has logged in: any number of bytes is accepted.
        self._most = None

    async def read(self) -> bytes:
        """Return the next bytes; none at the end of the stream, or when a stranger sent too many."""
        assert self._reader is not None
        try:
            data = await self._reader.read(CHUNK)
        except OSError:
            return b""
        if self._most is not None:
            self._most -= len(data)
            if self._most < 0:
                return b""
        return data

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the event loop, all of them in one system call."""
        if not self._outbox:
            self._loop.call_soon(self.flush)
        self._outbox.append(data)
        self._outbox_size += len(data)

    @property
    def waiting(self) -> int:
        """Bytes that wait in memory."""
        assert self._writer is not None
        return self._outbox_size + self._writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until little is waiting."""
        assert self._writer is not None
        self.flush()
        with suppress(OSError):
            await self._writer.drain()

    def flush(self) -> None:
        """Send what was written now."""
        if self._outbox and self._writer is not None and not self._writer.transport.is_closing():
            self._writer.write(b"".join(self._outbox))
        self._clear()

    def abort(self) -> None:
        """Cut the client off at once."""
        self._clear()
        if self._writer is not None:
            self._writer.transport.abort()
        elif self._reader is None:
            self._socket.close()
        else:
            # A transport has it, which sees the end of the stream in the middle of its handshake.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Send what is waiting and close; cut the client off where that takes long."""
        if self._writer is None:
            self.abort()
            return
        self.flush()
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    def _clear(self) -> None:
        self._outbox.clear()
        self._outbox_size = 0


def prepare_socket(sock: socket.socket) -> None:
    """Send small packets at once, and find out in the end when a silent client is gone."""
    with suppress(OSError):  # it has hung up already, which the next read tells
        # Nagle's algorithm and delayed acknowledgements together cost 40 ms a round trip.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
