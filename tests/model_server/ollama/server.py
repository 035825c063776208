"""The server of a fake Ollama."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.model_server.bodies import chunk, finish_reason, head, usage
from tests.model_server.loopback import LoopbackHandler, LoopbackServer
from tests.model_server.ollama.answers import (
    loaded,
    native_pieces,
    native_whole,
    openai_chunks,
    openai_error,
    openai_whole,
)
from tests.model_server.ollama.context import DEFAULT_NUM_CTX, fitting, tokens_of
from tests.model_server.ollama.keeping import expiry, keep_alive
from tests.model_server.ollama.model import FakeModel, full_name
from tests.model_server.ollama.rules import Refused, check_native, check_openai, check_types, parsed
from tests.model_server.script import Breaks, Fails, Garbles, Hangs, Reply, Says, Script, SeenRequest

_PATHS: Final = {
    *("/", "/api/version", "/api/tags", "/api/ps", "/api/show", "/api/pull", "/api/chat"),
    *("/v1/models", "/v1/chat/completions"),
}
_PULL_PIECES: Final = 8
"""Steps in which one file of a model comes."""


@dataclass(frozen=True)
class OllamaRequest(SeenRequest):
    """One chat as it arrived.

    Attributes:
        num_ctx: Tokens of the context that the model ran with.
        kept: The messages that fitted into it; the model never saw the others.
    """

    num_ctx: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)

    @property
    def native(self) -> bool:
        """Whether it came over Ollama's own API."""
        return self.path == "/api/chat"


@dataclass(frozen=True)
class _Loaded:
    num_ctx: int
    until: datetime


class FakeOllama(LoopbackServer[OllamaRequest]):
    """The server; see ``LoopbackServer`` for the script and for what it keeps.

    Args:
        models: What has been pulled already.
        library: What can be pulled.

    Attributes:
        held_pull: After how many lines a pull waits until it is left; None for one that goes on.
        downloaded: Bytes that are there of each file, by its digest; a pull that was left goes on from them.
        pull_error: What the next pull ends with after its first file, once; empty for a pull that succeeds.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        models: Sequence[FakeModel] = (),
        library: Sequence[FakeModel] = (),
        version: str = "0.12.6",
        port: int = 0,
    ) -> None:
        super().__init__(script, _Handler, port=port)
        self.version = version
        self.downloaded: dict[str, int] = {}
        self.pull_error = ""
        self.held_pull: int | None = None
        self.pull_is_held = threading.Event()
        self._models = {model.tag: model for model in models}
        self._library = {model.tag: model for model in library}
        self._running: dict[str, _Loaded] = {}

    @property
    def models(self) -> tuple[FakeModel, ...]:
        """What has been pulled."""
        return tuple(self._models.values())

    def find(self, name: Any) -> FakeModel:
        """Find a model that has been pulled.

        Raises:
            Refused: If there is none.
        """
        if not isinstance(name, str) or not name:
            raise Refused(400, "model is required")
        model = self._models.get(full_name(name))
        if model is None:
            raise Refused(404, f"model '{name}' not found")
        return model

    def running(self) -> list[dict[str, Any]]:
        """List the models that are in memory, the one that stays longest first."""
        now = datetime.now(UTC)
        there = [(tag, loaded) for tag, loaded in self._running.items() if loaded.until > now]
        there.sort(key=lambda each: each[1].until, reverse=True)
        return [self._models[tag].running(loaded.num_ctx, loaded.until) for tag, loaded in there]

    def load(self, model: FakeModel, body: dict[str, Any], *, native: bool, kept: timedelta | None) -> int:
        """Load a model with the context that a request asks for; gives its tokens.

        Only Ollama's own API takes ``options``, and no model gets more than it was trained for.

        Args:
            kept: How long it stays; None for ever.
        """
        asked = (body.get("options") or {}).get("num_ctx") if native else None
        num_ctx = min(asked or model.num_ctx or DEFAULT_NUM_CTX, model.context_length)
        # From now on, not from the end of the answer, which its client sees before this thread goes on.
        self._running[model.tag] = _Loaded(int(num_ctx), expiry(kept))
        return int(num_ctx)

    def record(
        self, path: str, headers: dict[str, str], body: dict[str, Any], *, num_ctx: int
    ) -> OllamaRequest:
        """Number a chat and keep it."""
        kept = fitting(body["messages"], body.get("tools") or [], num_ctx)
        return self._keep(OllamaRequest, path=path, headers=headers, body=body, num_ctx=num_ctx, kept=kept)

    def pull(self, name: str) -> Iterator[dict[str, Any]]:
        """Say how a pull goes on; the model is there once it has ended."""
        yield {"status": "pulling manifest"}
        model = self._library.get(full_name(name))
        if model is None:
            yield {"error": "pull model manifest: file does not exist"}
            return
        for number, total in enumerate(model.layers):
            digest = model.layer_digest(number)
            status = {"status": f"pulling {digest[7:19]}", "digest": digest, "total": total}
            yield (
                status if digest not in self.downloaded else {**status, "completed": self.downloaded[digest]}
            )
            while (done := self.downloaded.get(digest, 0)) < total:
                self.downloaded[digest] = min(total, done + -(-total // _PULL_PIECES))
                yield {**status, "completed": self.downloaded[digest]}
            if self.pull_error:
                error, self.pull_error = self.pull_error, ""
                yield {"error": error}
                return
        yield {"status": "verifying sha256 digest"}
        yield {"status": "writing manifest"}
        self._models[model.tag] = model
        yield {"status": "success"}


class _Handler(LoopbackHandler):
    @property
    def ollama(self) -> FakeOllama:
        owner = self.server.owner
        assert isinstance(owner, FakeOllama)
        return owner

    def get(self) -> None:
        """Serve what is only told."""
        match self.path:
            case "/":
                self.send_whole(200, b"Ollama is running", "text/plain; charset=utf-8")
            case "/api/version":
                self.send_json(200, {"version": self.ollama.version})
            case "/api/tags":
                self.send_json(200, {"models": [model.listed() for model in self.ollama.models]})
            case "/api/ps":
                self.send_json(200, {"models": self.ollama.running()})
            case "/v1/models":
                data = [
                    {"id": model.tag, "object": "model", "created": 0, "owned_by": "library"}
                    for model in self.ollama.models
                ]
                self.send_json(200, {"object": "list", "data": data})
            case _:
                self._nothing_here()

    def post(self) -> None:
        """Serve what takes a body."""
        raw = self.read_body()
        try:
            match self.path:
                case "/api/show":
                    body = parsed(raw)
                    check_types(body, "ShowRequest")
                    self.send_json(200, self.ollama.find(body.get("model") or body.get("name")).shown())
                case "/api/pull":
                    self._pull(parsed(raw))
                case "/api/chat":
                    self._chat(parsed(raw), native=True)
                case "/v1/chat/completions":
                    self._chat(parsed(raw), native=False)
                case _:
                    self._nothing_here()
        except Refused as refused:
            self.ollama.refused.append(refused.message)
            self._fail(refused.status, refused.message)

    def _pull(self, body: dict[str, Any]) -> None:
        check_types(body, "PullRequest")
        name = body.get("model") or body.get("name")
        if not isinstance(name, str) or not name:
            raise Refused(400, "invalid model name")
        steps = self.ollama.pull(name)
        if body.get("stream") is False:
            last = list(steps)[-1]
            self.send_json(500 if "error" in last else 200, last)
            return
        self.start_stream("application/x-ndjson")
        try:
            for number, step in enumerate(steps, 1):
                self._line(step)
                if number == self.ollama.held_pull:
                    self.ollama.pull_is_held.set()
                    self.wait_until_left()
                    return
                if self.ollama.closing.is_set() or self.has_left():
                    self.close_connection = True
                    return
            self.write_piece(b"")
        except ConnectionError:
            self.close_connection = True

    def _chat(self, body: dict[str, Any], *, native: bool) -> None:
        check_types(body, "ChatRequest" if native else "ChatCompletionRequest")
        kept = keep_alive(body if native else {})
        model = self.ollama.find(body.get("model"))
        (check_native if native else check_openai)(body, model)
        num_ctx = self.ollama.load(model, body, native=native, kept=kept)
        if not body.get("messages"):
            self.send_json(200, loaded(body["model"], stays=kept != timedelta()))
            return
        seen = self.ollama.record(self.path, self.lower_headers(), body, num_ctx=num_ctx)
        try:
            self._answer(seen, self.ollama.reply_to(seen))
        except ConnectionError:
            seen.abandoned.set()
            self.close_connection = True

    def _answer(self, seen: OllamaRequest, reply: Reply) -> None:
        # Ollama's own API streams where nothing is said of it, OpenAI's does not.
        streams = bool(seen.body.get("stream", seen.native))
        match reply:
            case Fails(status=status, message=message):
                self._fail(status, message)
            case Hangs(text=text):
                if text and streams:
                    self._stream(seen, Says(text=text), whole=False)
                self.wait_for_client(seen)
            case Garbles(body=garbled):
                self.send_whole(200, garbled.encode(), "application/x-ndjson")
            case Breaks():
                if streams:
                    self._stream(seen, Says(text=reply.text, calls=reply.calls), whole=False)
                self.close_connection = True
            case Says():
                time.sleep(reply.delay_s)
                if streams:
                    self._stream(seen, reply, whole=True)
                elif seen.native:
                    self.send_json(200, native_whole(seen, reply, prompt_tokens=_prompt_tokens(seen)))
                else:
                    self.send_json(200, openai_whole(seen, reply))

    def _stream(self, seen: OllamaRequest, reply: Says, *, whole: bool) -> None:
        if not seen.native:
            self._stream_events(seen, reply, whole=whole)
            return
        self.start_stream("application/x-ndjson")
        pieces = list(native_pieces(seen, reply, prompt_tokens=_prompt_tokens(seen)))
        for piece in pieces if whole else pieces[:-1]:
            self._line(piece)
            time.sleep(reply.gap_s)
        if whole:
            self.write_piece(b"")

    def _stream_events(self, seen: OllamaRequest, reply: Says, *, whole: bool) -> None:
        self.start_stream("text/event-stream")
        for piece in openai_chunks(seen, reply):
            self._event(piece)
            time.sleep(reply.gap_s)
        if not whole:
            return
        self._event(chunk(seen, {"role": "assistant", "content": ""}, finish=finish_reason(reply)))
        if (seen.body.get("stream_options") or {}).get("include_usage"):
            self._event({**head(seen, "chat.completion.chunk"), "choices": [], "usage": usage(reply)})
        self.write_piece(b"data: [DONE]\n\n")
        self.write_piece(b"")

    def _line(self, data: dict[str, Any]) -> None:
        self.write_piece(json.dumps(data).encode() + b"\n")

    def _event(self, data: dict[str, Any]) -> None:
        self.write_piece(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _fail(self, status: int, message: str) -> None:
        native = {"error": message}
        self.send_json(status, openai_error(status, message) if self.path.startswith("/v1/") else native)

    def _nothing_here(self) -> None:
        if self.path in _PATHS:
            self.send_whole(405, b"405 method not allowed", "text/plain")
        else:
            self.send_whole(404, b"404 page not found", "text/plain")


def _prompt_tokens(seen: OllamaRequest) -> int:
    return tokens_of(seen.kept, seen.body.get("tools") or [])
