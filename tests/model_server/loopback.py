"""What the servers of this package share: threads of their own, what arrived, and bytes on the wire."""

import json
import select
import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from tests.model_server.script import Fails, Reply, Script, SeenRequest

POLL_S: Final = 0.02
"""How often a reply that waits looks whether its client has left."""

_Seen = TypeVar("_Seen", bound=SeenRequest)


class LoopbackServer(Generic[_Seen]):
    """An HTTP server on loopback; a context manager, ready when entered.

    A script is a list of replies, one for each request in order, or a function that is called with
    the request in a thread of the server. A request after the end of a list gets status 500.

    Attributes:
        requests: What arrived and was not refused.
        refused: Why requests were refused; a test that expects none asserts that it is empty.
    """

    def __init__(self, script: Script, handler: "type[LoopbackHandler]", *, port: int) -> None:
        self.script = script
        self.requests: list[_Seen] = []
        self.refused: list[str] = []
        self.closing = threading.Event()
        self._arrived = threading.Condition()
        self._server = _Server(("127.0.0.1", port), handler, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)

    @property
    def origin(self) -> str:
        """Address without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def base_url(self) -> str:
        """Address up to and with ``/v1``."""
        return f"{self.origin}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.close_connections()
        self._thread.join()

    def wait_for_requests(self, count: int, *, timeout_s: float = 10.0) -> bool:
        """Block until so many requests have arrived; says whether they have."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.requests) >= count, timeout_s)

    def reply_to(self, seen: _Seen) -> Reply:
        """Give the reply that the script has for a request."""
        if callable(self.script):
            return self.script(seen)
        if seen.number < len(self.script):
            return self.script[seen.number]
        return Fails(status=500, message=f"the script ends after {len(self.script)} replies")

    def _keep(self, make: "type[_Seen]", **fields: Any) -> _Seen:
        """Number a request and keep it."""
        with self._arrived:
            seen = make(number=len(self.requests), **fields)
            self.requests.append(seen)
            self._arrived.notify_all()
        return seen


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: "type[LoopbackHandler]", owner: LoopbackServer[Any]
    ) -> None:
        super().__init__(address, handler)
        self.owner = owner
        self.open: set[socket.socket] = set()

    def close_connections(self) -> None:
        """End the connections that clients keep, as the end of a process does."""
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves early is part of the tests; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class LoopbackHandler(BaseHTTPRequestHandler):
    """Reads requests and writes answers, whole or in pieces."""

    protocol_version = "HTTP/1.1"
    # Headers and body in one segment: with Nagle on, the second write waits for an ACK (40 ms).
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        """Begin with a connection."""
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        """End with a connection."""
        self.server.open.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name upstream
        """Keep the tests' output clean."""

    def do_GET(self) -> None:
        """Hand it to the server's own handler."""
        self.get()

    def do_POST(self) -> None:
        """Hand it to the server's own handler."""
        self.post()

    def get(self) -> None:
        """Answer a GET."""
        raise NotImplementedError

    def post(self) -> None:
        """Answer a POST."""
        raise NotImplementedError

    def read_body(self) -> bytes:
        """Read the whole body of the request."""
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def lower_headers(self) -> dict[str, str]:
        """Give the headers with lower-case names."""
        return {name.lower(): value for name, value in self.headers.items()}

    def has_left(self) -> bool:
        """Whether the client has closed its end."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1)

    def wait_for_client(self, seen: SeenRequest) -> None:
        """Say nothing until the client leaves or the server closes."""
        if self.wait_until_left():
            seen.abandoned.set()

    def wait_until_left(self) -> bool:
        """Say nothing until the client leaves or the server closes; says whether the client left."""
        self.close_connection = True
        closing = self.server.owner.closing
        while not closing.wait(POLL_S):
            if self.has_left():
                return True
        return False

    def start_stream(self, content_type: str) -> None:
        """Begin an answer that comes in pieces."""
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def write_piece(self, data: bytes) -> None:
        """Write one piece; an empty one ends the answer."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def send_json(self, status: int, data: Any) -> None:
        """Answer with one JSON document."""
        self.send_whole(status, json.dumps(data).encode(), "application/json")

    def send_whole(self, status: int, data: bytes, content_type: str) -> None:
        """Answer in one piece."""
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
