"""Connections to an HTTP server: a bounded number, with a deadline for requests and handshakes.

uvicorn waits for a request, for the rest of one and for a TLS handshake without a limit, and accepts any
number of clients. Anyone in the network could so use up all file handles of the process, also those that the
broker and the database in it need.

This and `chat.http.sockets` use parts of uvicorn that are not documented, and no other module does:
``tests/chat/test_uvicorn.py`` fails where they change.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bus.ports import accept
from chat.http.errors import error_response

MAX_HEAD: Final = 64 * 1024
"""Bytes of the line and headers of a request, and of what may follow its body."""

_TOO_LONG: Final = f"Its address and headers may have {MAX_HEAD:,} bytes in all."
_FEW: Final = 8
"""Connections that ended and are not looked for."""
MAX_HEADERS: Final = 100
"""Headers of a request; browsers and proxies send some twenty."""


@dataclass(frozen=True)
class ConnectionBounds:
    """What clients may use of one server.

    Attributes:
        most: Connections at once. With what brokers and databases have open they stay below the 1,024 file
            handles of many systems; a home has some ten clients at a time, and a thousand spokes that all
            come back wait for a moment in the queue of the system.
        deadline_s: Time for a handshake; a request may take between once and twice that, and so may a client
            that reads nothing of an answer that waits for it.
        idle_s: Time between two requests, longer than a person takes to read an answer and go on.
    """

    most: int = 400
    deadline_s: float = 10.0
    idle_s: int = 75


class DeadlineProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which disconnects a client that does not send its request, or read its answer.

    What uvicorn leaves unbounded is bounded: the head of a request, the trailers behind its body, and
    requests that are sent before the answer to the one before. Of these the first is answered, and the
    connection then closed, as a server may do with pipelined requests (RFC 9112, 9.3.2).

    Attributes:
        deadline_s: See `ConnectionBounds`.
        address: Of the client.
        takes_sockets: Whether WebSockets are served.
    """

    address = ""
    takes_sockets = False
    deadline_s = ConnectionBounds.deadline_s
    _timer: asyncio.TimerHandle | None = None
    _seen: object = None
    _unread = 0
    _is_socket = False
    _in_head = True
    _undelivered = 0
    _is_last = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline."""
        super().connection_made(transport)
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def awaited(self) -> object | None:
        """Return what the client has yet to send: a request or the rest of one; None on the server's turn."""
        if self._is_socket:
            return None
        if self.cycle is None:
            return self
        return self.cycle if self.cycle.response_complete or self.cycle.more_body else None

    def _should_upgrade_to_ws(self) -> bool:
        return self.takes_sockets

    def data_received(self, data: bytes) -> None:
        """Parse what the client sent."""
        if self._is_last:
            return
        self._undelivered += len(data)
        super().data_received(data)
        if self._undelivered > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("Request head too large.")

    def on_message_begin(self) -> None:
        """Begin a request, unless the one before is not answered."""
        if self.cycle is not None and not (self.cycle.response_complete or self._is_answered()):
            self._is_last = True
            self.cycle.keep_alive = False
            raise ValueError("a pipelined request")
        self._in_head = True
        super().on_message_begin()

    def _is_answered(self) -> bool:
        # The client has all of an answer whose length it knows; uvicorn waits for its end.
        return self.cycle.chunked_encoding is False and self.cycle.expected_content_length == 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; drop a trailer, which would change a request that was checked already."""
        if not self._in_head:
            return
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._in_head, self._undelivered = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand over a part of the body."""
        self._undelivered = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._undelivered = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; an answer that is under way ends first, or breaks off."""
        if self._is_last:
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        self._is_last = True
        answer = error_response("", 400, "bad_request", "this cannot be read as a request", _TOO_LONG)
        answer.headers["connection"] = "close"
        head = b"".join(b"%b: %b\r\n" % pair for pair in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + bytes(answer.body))
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the protocol of WebSockets, which has deadlines of its own."""
        from chat.http.sockets import SocketProtocol

        if self._timer is not None:
            self._timer.cancel()
        self._is_socket = True
        self.ws_protocol_class = partial(SocketProtocol, deadline_s=self.deadline_s)  # type: ignore[assignment]
        super().handle_websocket_upgrade()

    def _check(self) -> None:
        # Between two requests uvicorn's own timer runs, which goes by `ConnectionBounds.idle_s`.
        awaited = self.awaited if self.timeout_keep_alive_task is None else None
        # While writing is paused nothing is added, so what stays as it is was not read either.
        unread = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        if (awaited is not None and awaited is self._seen) or (unread and unread == self._unread):
            self.transport.abort()
            return
        self._seen, self._unread = awaited, unread
        self._timer = self.loop.call_later(self.deadline_s, self._check)


class Acceptor:
    """Takes connections in.

    Args:
        make: Makes the protocol of one.
        tls: The server's side of TLS; None for none.
        bounds: Where there are more, one goes that lets the server wait, if there is any: the oldest of the
            address that has most of them.
    """

    def __init__(
        self, make: Callable[[], DeadlineProtocol], *, tls: ssl.SSLContext | None, bounds: ConnectionBounds
    ) -> None:
        self._make = make
        self._tls = tls
        self._bounds = bounds
        self._open: dict[socket.socket, DeadlineProtocol] = {}
        self._looks_at = 0

    async def run(self, listener: socket.socket) -> None:
        """Accept connections on a socket that listens, until cancelled; those that are open stay."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                client, address = await accept(listener)
                self._make_room()
                protocol = self._open[client] = self._make()
                protocol.deadline_s, protocol.address = self._bounds.deadline_s, str(address[0])
                tasks.create_task(self._enter(client, protocol), name="http: accept one")
                # Where many wait, nothing else would have its turn, and those that went not their end.
                await asyncio.sleep(0)

    def _make_room(self) -> None:
        # Those that have ended hold 7 kB each: at most as many as are open, and a few.
        if len(self._open) < self._looks_at:
            return
        self._open = {sock: each for sock, each in self._open.items() if sock.fileno() >= 0}
        self._looks_at = min(self._bounds.most, 2 * len(self._open) + _FEW)
        while len(self._open) >= self._bounds.most:
            waiting = [sock for sock, each in self._open.items() if each.awaited is not None]
            some = waiting or list(self._open)
            crowd = Counter(self._open[sock].address for sock in some)
            oldest = max(some, key=lambda sock: crowd[self._open[sock].address])
            protocol = self._open.pop(oldest)
            if protocol.transport is not None:
                protocol.transport.abort()
            else:
                _hang_up(oldest)

    async def _enter(self, client: socket.socket, protocol: DeadlineProtocol) -> None:
        loop = asyncio.get_running_loop()
        deadline = self._bounds.deadline_s if self._tls is not None else None
        try:
            await loop.connect_accepted_socket(
                lambda: protocol, client, ssl=self._tls, ssl_handshake_timeout=deadline
            )
        except (OSError, asyncio.CancelledError) as error:
            client.close()
            self._open.pop(client, None)
            if isinstance(error, asyncio.CancelledError):
                raise


def _hang_up(sock: socket.socket) -> None:
    # A transport has it, which sees the end of the stream in the middle of its handshake.
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
