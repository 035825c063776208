"""The server of a scripted model, over real HTTP on loopback."""

import json
import select
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from agent_core.testing.bodies import chunk, deltas, finish_reason, head, usage, whole
from agent_core.testing.rules import refusal
from agent_core.testing.script import Breaks, Fails, Garbles, Hangs, Reply, Says, Script, SeenRequest

_POLL_S: Final = 0.02
"""How often a hanging reply looks whether its client has left."""


class ScriptedModel:
    """The server; a context manager, ready when entered.

    A script is a list of replies, one for each request in order, or a function that is called with
    the request in a thread of the server. A request after the end of a list gets status 500.

    Attributes:
        requests: What arrived and was not refused.
        refused: Why requests were refused; a test that expects none asserts that it is empty.
    """

    def __init__(
        self, script: Script = (), *, api_key: str = "", name: str = "scripted", port: int = 0
    ) -> None:
        self.script = script
        self.requests: list[SeenRequest] = []
        self.refused: list[str] = []
        self.name = name
        self.api_key = api_key
        self.closing = threading.Event()
        self._arrived = threading.Condition()
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True)

    @property
    def base_url(self) -> str:
        """Address up to and with ``/v1``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def record(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> SeenRequest:
        """Number a request and keep it."""
        with self._arrived:
            seen = SeenRequest(number=len(self.requests), path=path, headers=headers, body=body)
            self.requests.append(seen)
            self._arrived.notify_all()
        return seen

    def wait_for_requests(self, count: int, *, timeout_s: float = 10.0) -> bool:
        """Block until so many requests have arrived; says whether they have."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.requests) >= count, timeout_s)

    def reply_to(self, seen: SeenRequest) -> Reply:
        """Give the reply that the script has for a request."""
        if callable(self.script):
            return self.script(seen)
        if seen.number < len(self.script):
            return self.script[seen.number]
        return Fails(status=500, message=f"the script ends after {len(self.script)} replies")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], model: ScriptedModel) -> None:
        super().__init__(address, _Handler)
        self.model = model

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves early is part of the tests; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in one segment: with Nagle on, the second write waits for an ACK (40 ms).
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name upstream
        """Keep the tests' output clean."""

    def do_GET(self) -> None:
        """List the one model."""
        model = self.server.model
        self._json(200, {"object": "list", "data": [{"id": model.name, "object": "model"}]})

    def do_POST(self) -> None:
        """Answer a chat completion as the script says."""
        model = self.server.model
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if model.api_key and headers.get("authorization") != f"Bearer {model.api_key}":
            self._fail(401, "Incorrect API key provided")
            return
        reason = refusal(self.path, raw)
        if reason:
            model.refused.append(reason)
            self._fail(400, reason)
            return
        seen = model.record(self.path, headers, json.loads(raw))
        try:
            self._send(seen, model.reply_to(seen))
        except ConnectionError:
            seen.abandoned.set()
            self.close_connection = True

    def _send(self, seen: SeenRequest, reply: Reply) -> None:
        streams = bool(seen.body.get("stream"))
        match reply:
            case Fails(status=status, message=message):
                self._fail(status, message)
            case Hangs():
                self._wait_for_client(seen)
            case Garbles(body=body):
                self._body(200, body.encode(), "text/event-stream" if streams else "application/json")
            case Breaks():
                self._break_off(seen, reply, streams=streams)
            case Says():
                time.sleep(reply.delay_s)
                if streams:
                    self._stream(seen, reply)
                else:
                    self._json(200, whole(seen, reply))

    def _wait_for_client(self, seen: SeenRequest) -> None:
        while not self.server.model.closing.is_set():
            readable, _, _ = select.select([self.connection], [], [], _POLL_S)
            if readable and not self.connection.recv(1):
                seen.abandoned.set()
                break
        self.close_connection = True

    def _break_off(self, seen: SeenRequest, reply: Breaks, *, streams: bool) -> None:
        if streams:
            self._start_stream()
            for delta in deltas(seen, Says(text=reply.text, calls=reply.calls)):
                self._event(chunk(seen, delta))
        self.close_connection = True

    def _stream(self, seen: SeenRequest, reply: Says) -> None:
        self._start_stream()
        for delta in deltas(seen, reply):
            self._event(chunk(seen, delta))
            time.sleep(reply.gap_s)
        self._event(chunk(seen, {}, finish=finish_reason(reply)))
        if (seen.body.get("stream_options") or {}).get("include_usage"):
            self._event({**head(seen, "chat.completion.chunk"), "choices": [], "usage": usage(reply)})
        self._write_chunk(b"data: [DONE]\n\n")
        self._write_chunk(b"")

    def _start_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _event(self, data: dict[str, Any]) -> None:
        self._write_chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _write_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _fail(self, status: int, message: str) -> None:
        self._json(status, {"error": {"message": message, "type": "scripted", "code": status}})

    def _json(self, status: int, data: dict[str, Any]) -> None:
        self._body(status, json.dumps(data).encode(), "application/json")

    def _body(self, status: int, data: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
