"""HTTP on loopback in threads of its own: whole answers, answers in pieces, and clients that leave."""

import json
import select
import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol

POLL_S: Final = 0.02
"""How often an answer that waits looks whether its client has left."""


class Site(Protocol):
    """What a server serves."""

    closing: threading.Event

    def get(self, http: "Exchange") -> None:
        """Answer a GET."""

    def post(self, http: "Exchange", raw: bytes) -> None:
        """Answer a POST."""


class LoopbackServer(ThreadingHTTPServer):
    """Serves a site on loopback."""

    daemon_threads = True

    def __init__(self, site: Site, port: int) -> None:
        super().__init__(("127.0.0.1", port), Exchange)
        self.site = site
        self.open: set[socket.socket] = set()

    def close_connections(self) -> None:
        """End the connections that clients keep, as the end of a process does."""
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Show errors, but not that a client left early: that is part of the tests."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Exchange(BaseHTTPRequestHandler):
    """One connection: its requests and their answers."""

    protocol_version = "HTTP/1.1"
    # Headers and body in one segment: with Nagle on, the second write waits for an ACK (40 ms).
    disable_nagle_algorithm = True
    server: LoopbackServer

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
        """Hand it to the site."""
        self.server.site.get(self)

    def do_POST(self) -> None:
        """Hand it to the site, with its body."""
        self.server.site.post(self, self.rfile.read(int(self.headers.get("content-length", 0))))

    def has_left(self) -> bool:
        """Whether the client has closed its end."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1)

    def wait_until_left(self) -> bool:
        """Send nothing until the client leaves or the server closes; return whether the client left."""
        self.close_connection = True
        while not self.server.site.closing.wait(POLL_S):
            if self.has_left():
                return True
        return False

    def start_stream(self, content_type: str) -> None:
        """Begin an answer that comes in pieces."""
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send_piece(self, data: bytes) -> None:
        """Send one piece; an empty one ends the answer."""
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
