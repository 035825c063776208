"""The assistant as programs know it that speak to Ollama: agents are models, answers come as lines of JSON.

A program that can send no token has it in the path, ``/ollama/k/TOKEN/…``: it is moved to where tokens belong
before anything else sees the request.
"""

import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import TypedDict

from chat.http.errors import error_response
from chat.http.messages import ChatMessage, ForeignPart, OfferedTool, Stops, StopTexts, chat_request
from chat.http.requests import Answer, answer, read, reads
from chat.http.streams import EventStream, farewell
from chat.service import ChatService
from chat.turns import Turn
from contracts.chat.messages import ChatRequest, ClientTool, TextDelta, TurnError, TurnFinal, unknown_agent
from contracts.phrases import for_people
from contracts.wire import Json, rfc3339
from hub_agent.parts import HubParts
from hub_registry.access.bearer import Bearer

_VERSION: Final = "0.12.6"
"""The version of Ollama whose API this is; clients ask for it to know what they may use."""
_BEGAN: Final = "2026-01-01T00:00:00Z"


class ModelDetails(TypedDict):
    """What Ollama says of the file of a model; agents have none."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


_DETAILS: Final[ModelDetails] = {
    "parent_model": "",
    "format": "agent",
    "family": "strawberry",
    "families": ["strawberry"],
    "parameter_size": "",
    "quantization_level": "",
}


_TAG: Final = ":latest"
_KEY: Final = re.compile(r"^(.*?)/ollama/k/(?:(?!api/)([^/]*))?(.*)", re.DOTALL | re.IGNORECASE)
"""What comes before, the token, and the rest, where slashes are single; programs double them."""
_Tagged = Annotated[str, Field(max_length=64 + len(_TAG))]
"""Name of an agent, perhaps with the tag that Ollama puts to every model."""


class OllamaFunction(TypedDict):
    """A function of the client's own with its arguments."""

    name: str
    arguments: dict[str, Json]


class OllamaCall(TypedDict):
    """A call that the client is to make."""

    id: str
    function: OllamaFunction


class OllamaMessage(TypedDict):
    """What the assistant says, and wants to be called."""

    role: Literal["assistant"]
    content: str
    tool_calls: NotRequired[list[OllamaCall]]


class OllamaText(TypedDict, total=False):
    """A piece of an answer: a ``message`` in a chat, a ``response`` otherwise."""

    message: OllamaMessage
    response: str


class _Head(TypedDict):
    model: str
    created_at: str


class OllamaDone(OllamaText, _Head):
    """The last line of a turn, which is also the answer without a stream."""

    done: bool
    done_reason: str


class OllamaAnswer(OllamaDone):
    """The same where the turn came to its end; durations in nanoseconds."""

    total_duration: int
    load_duration: int
    prompt_eval_count: int
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int


class OllamaVersion(TypedDict):
    """The version of Ollama whose API this is."""

    version: str


class _Model(TypedDict):
    name: str
    model: str
    size: int
    digest: str
    details: ModelDetails


class TaggedModel(_Model):
    """An agent in the list of models."""

    modified_at: str


class TaggedModels(TypedDict):
    """All agents as models."""

    models: list[TaggedModel]


class LoadedModel(_Model):
    """An agent in the list of models in memory, where all are."""

    expires_at: str
    size_vram: int
    context_length: int


class LoadedModels(TypedDict):
    """All agents as models in memory."""

    models: list[LoadedModel]


ModelInfo = TypedDict("ModelInfo", {"general.architecture": str, "strawberry.context_length": int})


class ModelShown(TypedDict):
    """An agent as Ollama describes one model."""

    modelfile: str
    parameters: str
    template: str
    details: ModelDetails
    model_info: ModelInfo
    capabilities: list[str]
    modified_at: str


class _Options(ForeignPart):
    """What is read of the options; sampling settings are ignored."""

    stop: Stops = []


class _Asked(ForeignPart):
    model: _Tagged
    stream: bool = True
    options: _Options = _Options()

    @property
    def agent(self) -> str:
        return _agent(self.model)

    @property
    def stop(self) -> StopTexts:
        return StopTexts(self.options.stop)

    def said(self, text: str, final: TurnFinal | None = None) -> OllamaText:
        return {"response": text}


class _ChatBody(_Asked):
    messages: list[ChatMessage] = []
    tools: list[OfferedTool] = []

    def chat_request(self) -> ChatRequest:
        tools: Sequence[ClientTool] = [tool.function for tool in self.tools]
        return chat_request(self.messages, agent=self.agent, tools=tools)

    def said(self, text: str, final: TurnFinal | None = None) -> OllamaText:
        message: OllamaMessage = {"role": "assistant", "content": text}
        if final is not None and final.calls:
            message["tool_calls"] = [
                {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
                for call in final.calls
            ]
        return {"message": message}


class _GenerateBody(_Asked):
    prompt: str = ""
    system: str = ""
    images: list[Json] = []

    def chat_request(self) -> ChatRequest:
        said = ChatMessage(role="user", content=self.prompt, images=self.images)
        return chat_request([ChatMessage(role="system", content=self.system), said], agent=self.agent)


class _ShowBody(ForeignPart):
    model: _Tagged = ""
    name: _Tagged = ""


class OllamaRoutes:
    """The routes below ``/ollama``."""

    def __init__(self, parts: HubParts) -> None:
        self._service: ChatService[Bearer] = parts.agent.assistant
        self._agents = parts.agent.assistant.agents
        # Tokens that a model is given at most.
        self._context = parts.settings.turns.limits.context_tokens
        self._authenticate = parts.gate.require("chat")
        self._connections = parts.connections

    def routes(self) -> list[BaseRoute]:
        """Make the routes."""
        return [
            Route("/ollama/", self._root),
            Route("/ollama/api/version", self._version),
            Route("/ollama/api/tags", self._tags),
            Route("/ollama/api/ps", self._loaded),
            Route("/ollama/api/show", self._show, methods=["POST"]),
            Route("/ollama/api/chat", self._chat, methods=["POST"]),
            Route("/ollama/api/generate", self._generate, methods=["POST"]),
        ]

    async def _root(self, request: Request) -> Annotated[Response, "text/plain"]:
        await self._authenticate(request)
        return PlainTextResponse("Ollama is running")

    async def _version(self, request: Request) -> Answer[OllamaVersion]:
        await self._authenticate(request)
        return answer({"version": _VERSION})

    async def _tags(self, request: Request) -> Answer[TaggedModels]:
        caller = await self._authenticate(request)
        names = await self._service.agent_names(caller)
        return answer({"models": [{**_listed(name), "modified_at": _BEGAN} for name in names]})

    async def _loaded(self, request: Request) -> Answer[LoadedModels]:
        caller = await self._authenticate(request)
        names = await self._service.agent_names(caller)
        loaded: list[LoadedModel] = [
            {
                **_listed(name),
                "expires_at": "2100-01-01T00:00:00Z",
                "size_vram": 0,
                "context_length": self._context,
            }
            for name in names
        ]
        return answer({"models": loaded})

    @reads(_ShowBody)
    async def _show(self, request: Request) -> Answer[ModelShown]:
        caller, body = await self._authenticate(request), await read(request, _ShowBody, any_type=True)
        name = _agent(body.model or body.name)
        if name not in (known := await self._service.agent_names(caller)):
            raise unknown_agent(name, known)
        return answer(
            {
                "modelfile": "",
                "parameters": "",
                "template": "{{ .Prompt }}",
                "details": _DETAILS,
                "model_info": {
                    "general.architecture": "strawberry",
                    "strawberry.context_length": self._context,
                },
                "capabilities": ["completion", "tools"],
                "modified_at": _BEGAN,
            }
        )

    @reads(_ChatBody)
    async def _chat(
        self, request: Request
    ) -> Answer[OllamaDone | OllamaAnswer] | Annotated[EventStream, "application/x-ndjson"]:
        caller, body = await self._authenticate(request), await read(request, _ChatBody, any_type=True)
        if not body.messages:
            return self._load(body)
        return await self._answer(request, caller, body.chat_request(), _Lines(body))

    @reads(_GenerateBody)
    async def _generate(
        self, request: Request
    ) -> Answer[OllamaDone | OllamaAnswer] | Annotated[EventStream, "application/x-ndjson"]:
        caller, body = await self._authenticate(request), await read(request, _GenerateBody, any_type=True)
        if not body.prompt:
            return self._load(body)
        return await self._answer(request, caller, body.chat_request(), _Lines(body))

    def _load(self, body: _Asked) -> Answer[OllamaDone | OllamaAnswer]:
        """Answer a program that says nothing: it wants a model to be loaded, or unloaded."""
        self._agents.find(body.agent)
        return answer(_Lines(body).last("load"))

    async def _answer(
        self, request: Request, caller: Bearer, asked: ChatRequest, lines: "_Lines"
    ) -> Answer[OllamaDone | OllamaAnswer] | EventStream:
        turn = await self._service.ask(asked, caller)
        if lines.body.stream:
            chunks = lines.of(turn)
            return EventStream(chunks, connections=self._connections, media_type="application/x-ndjson")
        async with self._connections.hold(request.receive) as client:
            last = await turn.last()
            if isinstance(last, TurnError):
                return error_response(request.url.path, 503, "no_model", last.message, last.hint)
            return answer(lines.last("stop", lines.stop.cut(last.answer), last))
        return farewell(client)


class _Lines:
    """A turn in the lines of Ollama's API.

    Attributes:
        body: The request.
        stop: Where the client wants the answer to end.
    """

    def __init__(self, body: _Asked) -> None:
        self.body = body
        self.stop = body.stop
        self._began = time.monotonic_ns()

    async def of(self, turn: Turn) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a stream."""
        try:
            async with aclosing(turn.events()) as events:
                async for told in events:
                    match told:
                        case TextDelta(text=text):
                            if piece := self.stop.feed(text):
                                yield _line({**self.body.said(piece), **self._head(), "done": False})
                            if self.stop.found:
                                break
                        case TurnFinal():
                            yield _line(self.last("stop", self.stop.rest(), told))
                        case TurnError():
                            said = filter(None, (f"{told.message}.", for_people(told.hint)))
                            yield _line({"error": " ".join(said)})
            if self.stop.found:
                yield _line(self.last("stop"))
        finally:
            # A client that leaves closes the stream, perhaps before the turn has begun.
            turn.cancel()

    def last(
        self, reason: Literal["stop", "load"], text: str = "", final: TurnFinal | None = None
    ) -> OllamaDone | OllamaAnswer:
        """Return the last line, which is also the answer without a stream.

        Args:
            text: What of the answer it brings.
            final: None where no turn came to its end.
        """
        made: OllamaDone = {
            **self.body.said(text, final),
            **self._head(),
            "done": True,
            "done_reason": reason,
        }
        if final is None:
            return made
        lasted = time.monotonic_ns() - self._began
        return {
            **made,
            "total_duration": lasted,
            "load_duration": 0,
            "prompt_eval_count": final.input_tokens,
            "prompt_eval_duration": 0,
            "eval_count": final.output_tokens,
            "eval_duration": lasted,
        }

    def _head(self) -> _Head:
        return {"model": self.body.model, "created_at": rfc3339(datetime.now(UTC))}


def _agent(tagged: str) -> str:
    return tagged.removesuffix(_TAG)


def _listed(name: str) -> _Model:
    tag = f"{name}{_TAG}"
    return {"name": tag, "model": tag, "size": 0, "digest": name.encode().hex(), "details": _DETAILS}


class KeyInPath:
    """ASGI middleware that takes the token out of ``/ollama/k/TOKEN/…`` and has it in ``Authorization``.

    Nothing behind it sees the token in a path, so that none gets into a log, an error or the audit.

    Args:
        base_path: Where a proxy puts the hub; it may have taken it off.
    """

    def __init__(self, app: ASGIApp, *, base_path: str = "") -> None:
        self._app = app
        self._base_path = base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        single = re.sub("//+", "/", scope["path"]) if scope["type"] in ("http", "websocket") else ""
        if found := _KEY.search(single):
            kept = [pair for pair in scope["headers"] if pair[0] not in (b"authorization", b"cookie")]
            before, token = found[1], (found[2] or "").encode()
            path = f"{before}/ollama/{found[3].removeprefix('/')}"
            if before not in ("", self._base_path):
                # No path of ours: it is not found, and its body is not read.
                path, token = "/ollama/k", b""
            headers = [*kept, (b"authorization", b"Bearer " + token)]
            # In place: the server's own log line is made of this very scope.
            scope.update(path=path, raw_path=path.encode(), headers=headers)
        await self._app(scope, receive, send)


def _line(data: Any) -> bytes:
    return to_json(data) + b"\n"
