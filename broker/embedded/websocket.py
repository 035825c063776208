"""A client of the embedded broker on a WebSocket (MQTT 3.1.1, section 6), over a stream with or without TLS.

The protocol is that of ``websockets``, without its sockets: so what holds for a stream, from the time for the
handshake to the bytes that may wait, holds for a WebSocket.
"""

import asyncio
import logging
from collections.abc import Collection
from http import HTTPStatus
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Event, State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from broker.embedded.peer import CHUNK, HandshakeFailed, StreamPeer
from broker.limits import FRAME_PIECE, FRAMES_PER_S
from contracts.addresses import host_of, is_address
from contracts.rates import TokenBucket

_SUBPROTOCOL: Final = Subprotocol("mqtt")

_SILENT: Final = logging.Logger("broker.embedded.websocket", level=logging.CRITICAL)  # noqa: LOG001 - see below
"""Stands under no other logger: the library would log frames, and with them tokens, when told to debug."""


class WebSocketPeer:
    """A client on a WebSocket.

    Args:
        hosts: Names under which this machine is reached, beside its addresses.
        most: Bytes of one message.
    """

    def __init__(self, stream: StreamPeer, *, hosts: Collection[str], most: int) -> None:
        self.address, self.host = stream.address, stream.host
        self._stream = stream
        self._hosts = hosts
        self._protocol = ServerProtocol(subprotocols=[_SUBPROTOCOL], max_size=most, logger=_SILENT)
        self._data = memoryview(b"")
        self._inbox: list[bytes] = []
        self._ended = False
        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._frames = TokenBucket(burst=FRAMES_PER_S, per_second=FRAMES_PER_S)
        self._loop = asyncio.get_running_loop()

    async def open(self, *, most: int) -> bool:
        """Complete the TLS handshake where there is one, and answer the request; False where it hangs up.

        Raises:
            HandshakeFailed: If there is none for MQTT, or it is by a page of another site.
        """
        if not await self._stream.open(most=most):
            return False
        while self._protocol.state is State.CONNECTING:
            if not await self._take():
                return False
        return True

    def trust(self) -> None:
        self._stream.trust()

    async def read(self) -> bytes:
        """Return the next bytes; none at the end of the stream, or after a text message."""
        while not self._inbox and not self._ended:
            if not await self._take():
                return b""
        data = b"".join(self._inbox)
        self._inbox.clear()
        return data

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the event loop, all of them in one message."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(data)
        self._outbox_size += len(data)

    @property
    def waiting(self) -> int:
        return self._outbox_size + self._stream.waiting

    async def drain(self) -> None:
        """Wait until little is waiting."""
        self._flush()
        await self._stream.drain()

    def abort(self) -> None:
        """Cut the client off at once."""
        self._clear()
        self._stream.abort()

    async def close(self) -> None:
        """Send what is waiting and close; cut the client off where that takes long."""
        self._flush()
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._send()
        await self._stream.close()

    def _answer(self, request: Request) -> None:
        refusal = self._refuse(request)
        response = refusal or self._protocol.accept(request)
        self._protocol.send_response(response)
        self._send()
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            raise HandshakeFailed(f"its WebSocket request was refused ({response.status_code})")

    def _refuse(self, request: Request) -> Response | None:
        """Accept programs and pages of this machine, and refuse pages of other sites."""
        hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
        name = host_of(f"//{hosts[0]}") if len(hosts) == 1 else ""
        # A foreign site can only pretend to be us under a name (DNS rebinding), never under an address.
        if not (is_address(name) or name in self._hosts):
            return self._protocol.reject(HTTPStatus.MISDIRECTED_REQUEST, "This name is not ours.\n")
        if origins and (len(origins) > 1 or host_of(origins[0]) != name):
            return self._protocol.reject(HTTPStatus.FORBIDDEN, "Pages of this site may not connect.\n")
        return None

    async def _take(self) -> bool:
        """Process the next piece; return False at the end of the stream."""
        if not self._data:
            self._data = memoryview(await self._stream.read())
        piece, self._data = self._data[:FRAME_PIECE], self._data[FRAME_PIECE:]
        if not piece:
            return False
        self._protocol.receive_data(bytes(piece))
        if self._protocol.handshake_exc is not None:
            raise HandshakeFailed("it sent no WebSocket request")
        events = self._protocol.events_received()
        self._digest(events)
        if len(events) > 1:
            await asyncio.sleep(self._frames.reserve(len(events)))
        if self._stream.waiting > CHUNK and not self._inbox:
            # Who sends pings and reads no answer has to wait for its answers to be gone.
            await self._stream.drain()
        return True

    def _digest(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Request):
                self._answer(event)
                continue
            assert isinstance(event, Frame)
            if event.opcode in (Opcode.BINARY, Opcode.CONT):
                # Packets may be spread over messages, and messages over frames: only the bytes count.
                if event.data:
                    self._inbox.append(bytes(event.data))
            elif event.opcode is Opcode.TEXT:
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is binary")
                self._ended = True
        self._send()

    def _flush(self) -> None:
        if self._outbox and self._protocol.state is State.OPEN:
            self._protocol.send_binary(b"".join(self._outbox))
            self._send()
        self._clear()

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._stream.write(data)
            else:
                self._ended = True
        self._stream.flush()

    def _clear(self) -> None:
        self._outbox.clear()
        self._outbox_size = 0
