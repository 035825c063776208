"""A model server that says what a script tells it: OpenAI-compatible, over real HTTP, on loopback.

It runs in threads of its own, so that synchronous and asynchronous tests use it alike, and alone:
``python -m agent_core.testing SCRIPT.json`` prints its address. A request that a real server would
refuse is refused here too, with status 400, so that no test passes on a conversation that no
provider would take.
"""

import argparse
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent_core.models import LOCAL_ONLY
from agent_core.testing_rules import refusal

_POLL_S: Final = 0.02
"""How often a hanging reply looks whether its client has left."""


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedCall(_Reply):
    """A tool call.

    Attributes:
        arguments: An object, or the raw text to send where it shall be malformed.
        id: Made from the number of the request where it is empty.
    """

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class Says(_Reply):
    """An answer of text, tool calls or both; with neither, an empty one.

    Attributes:
        text: Sent in pieces of a few characters when streaming.
        reasoning: Sent in the field ``reasoning_content`` before the text.
        delay_s: Seconds before the first byte.
        gap_s: Seconds between two pieces of a stream.
    """

    kind: Literal["says"] = "says"
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    reasoning: str = ""
    delay_s: float = 0.0
    gap_s: float = 0.0
    input_tokens: int = 11
    output_tokens: int = 7
    finish: str = ""


class Fails(_Reply):
    """An error of the server."""

    kind: Literal["fails"] = "fails"
    status: int = 500
    message: str = "the scripted server fails"


class Hangs(_Reply):
    """No byte at all until the client leaves or the server closes."""

    kind: Literal["hangs"] = "hangs"


class Breaks(_Reply):
    """A stream that begins with this text and then loses its connection."""

    kind: Literal["breaks"] = "breaks"
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()


class Garbles(_Reply):
    """Status 200 with a body that is not what was asked for."""

    kind: Literal["garbles"] = "garbles"
    body: str = "<html>not JSON</html>"


Reply = Says | Fails | Hangs | Breaks | Garbles
_REPLY: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])


def calls(name: str, **arguments: Any) -> Says:
    """Make the reply that calls one tool."""
    return Says(calls=(ScriptedCall(name=name, arguments=arguments),))


@dataclass(frozen=True)
class SeenRequest:
    """One request as it arrived.

    Attributes:
        number: Counts from 0.
        headers: With lower-case names.
        abandoned: Set when the client left before the reply was complete.
    """

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    abandoned: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, as sent."""
        messages: list[dict[str, Any]] = self.body.get("messages", [])
        return messages

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools") or []]

    @property
    def results(self) -> list[str]:
        """The texts of all tool results in the conversation, in order."""
        return [text_of(message) for message in self.messages if message["role"] == "tool"]

    def said(self, role: str) -> list[str]:
        """The texts of all messages of a role, in order."""
        return [text_of(message) for message in self.messages if message["role"] == role]


def text_of(message: dict[str, Any]) -> str:
    """Give the text of a message, whether it came as a string or as parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


Script = Sequence[Reply] | Callable[[SeenRequest], Reply]


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
                    self._json(200, _whole(seen, reply))

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
            for delta in _deltas(seen, Says(text=reply.text, calls=reply.calls)):
                self._event(_chunk(seen, delta))
        self.close_connection = True

    def _stream(self, seen: SeenRequest, reply: Says) -> None:
        self._start_stream()
        for delta in _deltas(seen, reply):
            self._event(_chunk(seen, delta))
            time.sleep(reply.gap_s)
        self._event(_chunk(seen, {}, finish=_finish(reply)))
        if (seen.body.get("stream_options") or {}).get("include_usage"):
            self._event({**_head(seen, "chat.completion.chunk"), "choices": [], "usage": _usage(reply)})
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


def _head(seen: SeenRequest, kind: str) -> dict[str, Any]:
    return {"id": f"reply-{seen.number}", "object": kind, "created": 0, "model": seen.body["model"]}


def _usage(reply: Says) -> dict[str, int]:
    total = reply.input_tokens + reply.output_tokens
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": total,
    }


def _finish(reply: Says) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _calls(seen: SeenRequest, reply: Says) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id or f"call_{seen.number}_{index}",
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments
                if isinstance(call.arguments, str)
                else json.dumps(call.arguments),
            },
        }
        for index, call in enumerate(reply.calls)
    ]


def _whole(seen: SeenRequest, reply: Says) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = _calls(seen, reply)
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return {**_head(seen, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def _chunk(seen: SeenRequest, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**_head(seen, "chat.completion.chunk"), "choices": [choice]}


def _deltas(seen: SeenRequest, reply: Says) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    if reply.reasoning:
        yield {"reasoning_content": reply.reasoning}
    for start in range(0, len(reply.text), 8):
        yield {"content": reply.text[start : start + 8]}
    for index, call in enumerate(_calls(seen, reply)):
        raw = call["function"]["arguments"]
        first = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield {"tool_calls": [first]}
        for start in range(0, len(raw), 16):
            yield {"tool_calls": [{"index": index, "function": {"arguments": raw[start : start + 16]}}]}


@contextmanager
def only_local_models() -> Iterator[None]:
    """Let no gateway of this process, nor of those it starts, ask a model beyond loopback."""
    before = os.environ.get(LOCAL_ONLY)
    os.environ[LOCAL_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(LOCAL_ONLY, None)
        else:
            os.environ[LOCAL_ONLY] = before


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the script in a file until the process is stopped; print the address first."""
    parser = argparse.ArgumentParser(
        prog="python -m agent_core.testing", description="Serve a scripted model."
    )
    parser.add_argument("script", type=Path, help="JSON file: a list of replies, each with its 'kind'")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args(arguments)
    script = [_REPLY.validate_python(item) for item in json.loads(options.script.read_text("utf-8"))]
    with ScriptedModel(script, port=options.port) as model:
        sys.stdout.write(f"{model.base_url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
