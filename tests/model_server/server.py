"""The scripted model: the OpenAI chat API, streamed, as a script says."""

import json
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from tests.model_server.http import POLL_S, Exchange, LoopbackServer
from tests.model_server.rules import refusal
from tests.model_server.script import Breaks, Fails, Garbles, Hangs, Reply, Says, Script, SeenRequest


class ScriptedModel:
    """The server; a context manager, ready when entered.

    A script is a list of replies, one for each request in order, or a function that is called with
    the request in a thread of the server. A request after the end of a list gets status 500.

    Attributes:
        requests: What arrived and was not refused.
        refused: Why requests were refused; a test that expects none asserts that it is empty.
    """

    content_type = "text/event-stream"

    def __init__(
        self, script: Script = (), *, api_key: str = "", name: str = "scripted", port: int = 0
    ) -> None:
        self.script = script
        self.name = name
        self.api_key = api_key
        self.requests: list[Any] = []
        self.refused: list[str] = []
        self.closing = threading.Event()
        self.hurry = threading.Event()
        """Set to leave out the gaps of replies, also of one that is being sent."""
        self._arrived = threading.Condition()
        self._server = LoopbackServer(self, port)
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

    def wait_for_requests(self, count: int, *, timeout_s: float = 60.0) -> bool:
        """Block until so many requests have arrived; return whether they have."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.requests) >= count, timeout_s)

    def get(self, http: Exchange) -> None:
        """List the one model."""
        http.send_json(200, {"object": "list", "data": [{"id": self.name, "object": "model"}]})

    def post(self, http: Exchange, raw: bytes) -> None:
        """Answer a chat completion as the script says."""
        if self.api_key and http.headers.get("authorization") != f"Bearer {self.api_key}":
            self._fail(http, 401, "Incorrect API key provided")
        elif reason := refusal(http.path, raw):
            self._refuse(http, 400, reason)
        else:
            self._serve(http, SeenRequest, json.loads(raw))

    def _refuse(self, http: Exchange, status: int, reason: str) -> None:
        self.refused.append(reason)
        self._fail(http, status, reason)

    def _fail(self, http: Exchange, status: int, message: str) -> None:
        http.send_json(status, {"error": {"message": message, "type": "scripted", "code": status}})

    def _serve(self, http: Exchange, kind: type[SeenRequest], body: dict[str, Any], **fields: Any) -> None:
        """Number a request, keep it, and answer it."""
        headers = {name.lower(): value for name, value in http.headers.items()}
        with self._arrived:
            seen = kind(number=len(self.requests), path=http.path, headers=headers, body=body, **fields)
            self.requests.append(seen)
            self._arrived.notify_all()
        try:
            self._answer(http, seen, self._reply_to(seen))
        except ConnectionError:
            seen.abandoned.set()
            http.close_connection = True

    def _reply_to(self, seen: SeenRequest) -> Reply:
        if callable(self.script):
            return self.script(seen)
        if seen.number < len(self.script):
            return self.script[seen.number]
        return Fails(status=500, message=f"the script ends after {len(self.script)} replies")

    def _answer(self, http: Exchange, seen: SeenRequest, reply: Reply) -> None:
        match reply:
            case Fails(status=status, message=message):
                self._fail(http, status, message)
            case Garbles(body=body):
                http.send_whole(200, body.encode(), self.content_type)
            case Hangs(text=text):
                if text:
                    self._stream(http, self._pieces(seen, Says(text=text)))
                if http.wait_until_left():
                    seen.abandoned.set()
            case Breaks(text=text, calls=calls):
                self._stream(http, self._pieces(seen, Says(text=text, calls=calls)))
                http.close_connection = True
            case Says():
                self._stream(http, self._pieces(seen, reply), gap_s=reply.gap_s)
                for piece in (*self._ending(seen, reply), b""):
                    http.send_piece(piece)

    def _stream(self, http: Exchange, pieces: Iterator[bytes], *, gap_s: float = 0.0) -> None:
        http.start_stream(self.content_type)
        for piece in pieces:
            http.send_piece(piece)
            self.hurry.wait(gap_s)

    def _pieces(self, seen: SeenRequest, reply: Says) -> Iterator[bytes]:
        """Cut an answer into the events of a stream, without its end."""
        yield _event(seen, {"role": "assistant", "content": ""})
        if reply.reasoning:
            yield _event(seen, {"reasoning_content": reply.reasoning})
        for start in range(0, len(reply.text), 8):
            yield _event(seen, {"content": reply.text[start : start + 8]})
        for index, call in enumerate(reply.calls):
            raw = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            head = {"id": call.id or f"call_{seen.number}_{index}", "type": "function"}
            function = {"name": call.name, "arguments": ""}
            yield _event(seen, {"tool_calls": [{**head, "index": index, "function": function}]})
            for start in range(0, len(raw), 16):
                piece = {"index": index, "function": {"arguments": raw[start : start + 16]}}
                yield _event(seen, {"tool_calls": [piece]})

    def _ending(self, seen: SeenRequest, reply: Says) -> Iterator[bytes]:
        yield _event(seen, {}, finish=reply.finish or ("tool_calls" if reply.calls else "stop"))
        if (seen.body.get("stream_options") or {}).get("include_usage"):
            used = (reply.input_tokens, reply.output_tokens)
            usage = dict(
                zip(("prompt_tokens", "completion_tokens", "total_tokens"), (*used, sum(used)), strict=True)
            )
            yield _data({**_head(seen), "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def _head(seen: SeenRequest) -> dict[str, Any]:
    return {
        "id": f"reply-{seen.number}",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": seen.body["model"],
    }


def _event(seen: SeenRequest, delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _data({**_head(seen), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _data(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
