"""A fake Ollama: its own API with recorded answers about models, pulls, and chats as a script says."""

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.model_server.http import Exchange
from tests.model_server.script import Says, Script, SeenRequest, text_of
from tests.model_server.server import ScriptedModel

_RECORDED: Final = "2026-01-02T03:04:05.678901234Z"
_DEFAULT_NUM_CTX: Final = 4096
_PULL_PIECES: Final = 8
"""Steps in which one file of a model comes."""


@dataclass(frozen=True)
class FakeModel:
    """One model.

    Attributes:
        name: With or without a tag; without one it is ``latest``.
        parameters: In billions.
        context_length: Tokens that the model was trained for.
        layers: Bytes of each file that a pull fetches; their sum is its size.
    """

    name: str
    parameters: float = 4.0
    context_length: int = 40_960
    capabilities: tuple[str, ...] = ("completion", "tools")
    layers: tuple[int, ...] = (2_000_000, 20_000)

    @property
    def tag(self) -> str:
        """The name with its tag."""
        return full_name(self.name)

    def listed(self) -> dict[str, Any]:
        """Return its entry in ``/api/tags``."""
        details = {
            "parent_model": "",
            "format": "gguf",
            "family": "qwen3",
            "families": ["qwen3"],
            "parameter_size": f"{self.parameters:.1f}B",
            "quantization_level": "Q4_K_M",
        }
        return {
            "name": self.tag,
            "model": self.tag,
            "modified_at": _RECORDED,
            "size": sum(self.layers),
            "digest": _digest(self.tag),
            "details": details,
        }

    def shown(self) -> dict[str, Any]:
        """Return the answer of ``/api/show``."""
        info = {
            "general.architecture": "qwen3",
            "general.parameter_count": int(self.parameters * 1_000_000_000),
            "qwen3.context_length": self.context_length,
        }
        return {
            "template": "{{ .Prompt }}",
            "details": self.listed()["details"],
            "model_info": info,
            "modified_at": _RECORDED,
            "capabilities": list(self.capabilities),
        }


@dataclass(frozen=True)
class OllamaRequest(SeenRequest):
    """One chat as it arrived.

    Attributes:
        num_ctx: Tokens of the context that the model ran with.
    """

    num_ctx: int = _DEFAULT_NUM_CTX

    @property
    def fits(self) -> bool:
        """Whether the context holds all of it, at four characters a token; else its beginning is lost."""
        size = sum(map(len, map(text_of, self.messages))) + len(json.dumps(self.body.get("tools") or []))
        return size // 4 + 4 * len(self.messages) <= self.num_ctx


class FakeOllama(ScriptedModel):
    """The server; its ``/v1`` is that of ``ScriptedModel``.

    Args:
        models: What has been pulled already.
        library: What can be pulled.

    Attributes:
        held_pull: After how many lines a pull waits until it is left; None for one that goes on.
        downloaded: Bytes that are there of each file, by its digest; a pull that was left goes on from them.
        pull_error: What the next pull ends with after its first file, once; empty for a pull that succeeds.
    """

    def __init__(
        self, script: Script = (), *, models: Sequence[FakeModel] = (), library: Sequence[FakeModel] = ()
    ) -> None:
        super().__init__(script)
        self.downloaded: dict[str, int] = {}
        self.pull_error = ""
        self.held_pull: int | None = None
        self.pull_is_held = threading.Event()
        self._models = {model.tag: model for model in models}
        self._library = {model.tag: model for model in library}
        self._running: dict[str, int] = {}

    @property
    def models(self) -> tuple[FakeModel, ...]:
        """What has been pulled."""
        return tuple(self._models.values())

    def get(self, http: Exchange) -> None:
        """Serve what is known of the models."""
        match http.path:
            case "/api/tags":
                http.send_json(200, {"models": [model.listed() for model in self.models]})
            case "/api/ps":
                running = [
                    {**self._models[tag].listed(), "expires_at": _RECORDED, "context_length": num_ctx}
                    for tag, num_ctx in self._running.items()
                ]
                http.send_json(200, {"models": running})
            case _:
                http.send_whole(404, b"404 page not found", "text/plain")

    def post(self, http: Exchange, raw: bytes) -> None:
        """Serve a question about a model, a pull or a chat."""
        if http.path.startswith("/v1/"):
            super().post(http, raw)
            return
        body = json.loads(raw)
        model = self._models.get(full_name(body["model"]))
        if http.path == "/api/pull":
            self._pull(http, body["model"])
        elif model is None:
            self._refuse(http, 404, f"model '{body['model']}' not found")
        elif http.path == "/api/show":
            http.send_json(200, model.shown())
        elif reason := _refusal(body, model):
            self._refuse(http, 400, reason)
        else:
            num_ctx = min((body.get("options") or {}).get("num_ctx", _DEFAULT_NUM_CTX), model.context_length)
            self._running[model.tag] = num_ctx
            self._serve(http, OllamaRequest, body, num_ctx=num_ctx)

    def _fail(self, http: Exchange, status: int, message: str) -> None:
        if http.path.startswith("/v1/"):
            super()._fail(http, status, message)
        else:
            http.send_json(status, {"error": message})

    def _pull(self, http: Exchange, name: str) -> None:
        http.start_stream("application/x-ndjson")
        try:
            for number, step in enumerate(self._steps(name), 1):
                http.send_piece(_line(step))
                if number == self.held_pull:
                    self.pull_is_held.set()
                    http.wait_until_left()
                    return
                if self.closing.is_set() or http.has_left():
                    http.close_connection = True
                    return
            http.send_piece(b"")
        except ConnectionError:
            http.close_connection = True

    def _steps(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield how a pull goes on; the model is there once it has ended."""
        yield {"status": "pulling manifest"}
        model = self._library.get(full_name(name))
        if model is None:
            yield {"error": "pull model manifest: file does not exist"}
            return
        for number, total in enumerate(model.layers):
            digest = f"sha256:{_digest(f'{model.tag} {number}')}"
            status = {"status": f"pulling {digest[7:19]}", "digest": digest, "total": total}
            done = self.downloaded.get(digest)
            yield status if done is None else {**status, "completed": done}
            while (done := self.downloaded.get(digest, 0)) < total:
                self.downloaded[digest] = min(total, done + -(-total // _PULL_PIECES))
                yield {**status, "completed": self.downloaded[digest]}
            if self.pull_error:
                error, self.pull_error = self.pull_error, ""
                yield {"error": error}
                return
        self._models[model.tag] = model
        yield {"status": "success"}

    def _pieces(self, seen: SeenRequest, reply: Says) -> Iterator[bytes]:
        if not isinstance(seen, OllamaRequest):
            yield from super()._pieces(seen, reply)
            return
        if reply.reasoning:
            yield _line(_part(seen, thinking=reply.reasoning))
        for start in range(0, len(reply.text), 8):
            yield _line(_part(seen, content=reply.text[start : start + 8]))
        for index, call in enumerate(reply.calls):
            # Ollama parses what its model wrote: arguments are objects here, and a call comes whole.
            arguments = call.arguments if isinstance(call.arguments, dict) else {}
            function = {"index": index, "name": call.name, "arguments": arguments}
            yield _line(_part(seen, tool_calls=[{"function": function}]))

    def _ending(self, seen: SeenRequest, reply: Says) -> Iterator[bytes]:
        if not isinstance(seen, OllamaRequest):
            yield from super()._ending(seen, reply)
            return
        counts = {"prompt_eval_count": reply.input_tokens, "eval_count": reply.output_tokens}
        yield _line({**_part(seen), "done": True, "done_reason": reply.finish or "stop", **counts})


def full_name(name: str) -> str:
    """Return a model's name as Ollama keeps it: with a tag."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _refusal(body: dict[str, Any], model: FakeModel) -> str:
    """Return why a chat is refused, in Ollama's words; empty where it is served."""
    for message in body["messages"]:
        if not isinstance(message.get("content", ""), str):
            return "json: cannot unmarshal into Go struct field Message.messages.content of type string"
        for call in message.get("tool_calls") or []:
            if not isinstance(call["function"]["arguments"], dict):
                return "json: cannot unmarshal string into Go struct field ToolCallFunction.arguments"
    if body.get("tools") and "tools" not in model.capabilities:
        return f"registry.ollama.ai/library/{model.tag} does not support tools"
    return ""


def _part(seen: SeenRequest, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "", **message}
    return {"model": seen.body["model"], "created_at": _RECORDED, "message": said, "done": False}


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
