"""WebSockets of an HTTP server, with a deadline for clients that do not read, and a limit of their frames.

Imported with the first socket: servers without any do without it.
"""

import asyncio
from asyncio.transports import BaseTransport
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from chat.http import limits
from chat.http.limits import SOCKET_FRAMES, SOCKET_FRAMES_PER_S
from contracts.rates import TokenBucket


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol, which disconnects a client that does not read, or sends too many frames.

    Args:
        deadline_s: See `chat.http.connections.ConnectionBounds`.
    """

    _timer: asyncio.TimerHandle | None = None
    _unread = 0

    def __init__(self, *, deadline_s: float, **given: Any) -> None:
        super().__init__(**given)
        self._deadline_s = deadline_s
        self._frames = TokenBucket(burst=SOCKET_FRAMES, per_second=SOCKET_FRAMES_PER_S)

    def connection_made(self, transport: BaseTransport) -> None:
        """Start the deadline."""
        super().connection_made(transport)
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what the client sent, a piece after the other."""
        for at in range(0, len(data), limits.FRAMES_PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[at : at + limits.FRAMES_PIECE_BYTES])

    def handle_events(self) -> None:
        """Pass on the frames of a piece."""
        if not self._frames.take(len(self.conn.events)):
            self.transport.abort()
            return
        super().handle_events()

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # A handshake that was refused is complete; uvicorn would log an error for each.
            self.handshake_complete = True

    def _check(self) -> None:
        # While writing is paused nothing is added, so what stays as it is was not read; a transport that is
        # closing stays open until it was.
        waits = not self.writable.is_set() or self.transport.is_closing()
        unread = self.transport.get_write_buffer_size() if waits else 0
        if unread and unread == self._unread:
            self.transport.abort()
            return
        self._unread = unread
        self._timer = self.loop.call_later(self._deadline_s, self._check)
