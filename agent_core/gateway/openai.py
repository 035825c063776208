"""Asking models directly over the OpenAI-compatible chat API, without TensorZero."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent_core.gateway.clock import AnswerClock
from agent_core.gateway.fallback import (
    Backend,
    BrokeOff,
    CallCollector,
    Failure,
    Piece,
    each_in_turn,
    one_line,
    passes,
)
from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    Message,
    ModelRequest,
    StopReason,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agent_core.models.entries import Model, ModelEntry

if TYPE_CHECKING:
    import httpx

_CONNECT_S: Final = 5.0
_STOPS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "content_filter": "filter",
}


@asynccontextmanager
async def open_direct(models: tuple[Model, ...]) -> AsyncIterator[Backend]:
    """Open the connections that the models share and close them again."""
    import httpx  # 80 ms that commands without a model never need

    async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=_CONNECT_S)) as client:
        yield DirectBackend(client, models)


class DirectBackend:
    """Asks each model itself."""

    def __init__(self, client: "httpx.AsyncClient", models: tuple[Model, ...]) -> None:
        self._client = client
        self._models = models

    async def ask(self, request: ModelRequest, models: tuple[Model, ...]) -> AsyncGenerator[Piece, None]:
        """See ``fallback.Backend.ask``."""
        async with aclosing(each_in_turn(models, partial(self._events, request))) as pieces:
            async for piece in pieces:
                yield piece

    async def _events(self, request: ModelRequest, model: Model) -> AsyncGenerator[Piece, None]:
        """Ask one model; a failure of any kind ends the answer as ``BrokeOff``."""
        import httpx

        entry, reply = model.entry, _StreamedReply(model.entry.name)
        clock = AnswerClock(entry)
        try:
            async with clock.limit():
                response = await self._client.send(self._request(request, model), stream=True)
            async with aclosing(response):
                if response.status_code != httpx.codes.OK:
                    async with clock.limit():
                        body = (await response.aread()).decode("utf-8", "replace")
                    said = one_line(f"status {response.status_code}: {body}", self._models)
                    yield BrokeOff(Failure(entry.name, said, passing=passes(response.status_code)))
                    return
                lines = response.aiter_lines()
                while (line := await clock.next_of(lines)) is not None:
                    for text in reply.take(line):
                        yield text
        except TimeoutError:
            yield BrokeOff(Failure(entry.name, f"no answer within {clock.seconds:g} s"))
        except _Garbled as error:
            yield BrokeOff(Failure(entry.name, one_line(str(error), self._models), passing=True))
        except httpx.ConnectError:
            yield BrokeOff(Failure(entry.name, f"nothing answers at {entry.address}"))
        except httpx.HTTPError as error:
            said = one_line(f"the connection broke: {error or type(error).__name__}", self._models)
            yield BrokeOff(Failure(entry.name, said, passing=True))
        else:
            for piece in reply.end():
                yield piece

    def _request(self, request: ModelRequest, model: Model) -> "httpx.Request":
        headers = {"Authorization": f"Bearer {model.key.get_secret_value()}"} if model.key else {}
        return self._client.build_request(
            "POST",
            f"{model.entry.address}/chat/completions",
            json=_body(request, model.entry),
            headers=headers,
        )


class _Garbled(Exception):
    """A server that does not keep to the API."""


class _StreamedReply:
    """An answer in the making, from the lines of its server-sent events."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._calls = CallCollector()
        self._ids: dict[int, str] = {}
        self._stop = ""
        self._done = False
        self._usage = (0, 0)

    def take(self, line: str) -> list[TextPart]:
        """Take one line; gives the text in it."""
        if not line.startswith("data:"):
            return []
        data = line[5:].strip()
        if data == "[DONE]":
            self._done = True
            return []
        try:
            return self._take_chunk(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _Garbled(f"what it sent is not a chat chunk: {data[:100]}") from None

    def _take_chunk(self, chunk: dict[str, Any]) -> list[TextPart]:
        if chunk.get("error"):
            raise _Garbled(json.dumps({"error": chunk["error"]}))
        if usage := chunk.get("usage"):
            self._usage = (usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
        texts: list[TextPart] = []
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            if delta.get("content"):
                texts.append(TextPart(delta["content"]))
            for number, call in enumerate(delta.get("tool_calls") or []):
                # The id comes with the first piece only; the index says whose the others are.
                index = call.get("index", number)
                key = self._ids.setdefault(index, call.get("id") or f"call_{index}")
                function = call.get("function") or {}
                self._calls.add(key, function.get("name") or "", function.get("arguments") or "")
            self._stop = choice.get("finish_reason") or self._stop
        return texts

    def end(self) -> list[Piece]:
        """Give what is known only at the end."""
        if not self._stop and not self._done:
            return [BrokeOff(Failure(self._model, "the stream ended before the answer did", passing=True))]
        return [
            *self._calls.calls(),
            Completed(self._model, *self._usage, stop=_STOPS.get(self._stop, "unknown")),
        ]


def _body(request: ModelRequest, entry: ModelEntry) -> dict[str, Any]:
    # Servers of other makers mostly know only the older name of the limit, OpenAI's only the newer.
    limit = "max_tokens" if entry.provider == "ollama" or entry.base_url else "max_completion_tokens"
    body: dict[str, Any] = {
        "model": entry.model,
        "messages": [{"role": "system", "content": request.system}, *map(_message, request.messages)],
        "stream": True,
        "stream_options": {"include_usage": True},
        limit: entry.max_output_tokens,
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    return body


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(text):
            return {"role": "user", "content": text}
        case AssistantMessage(text, calls):
            said: dict[str, Any] = {"role": "assistant", "content": text or None}
            if calls:
                said["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.raw},
                    }
                    for call in calls
                ]
            return said
        case ToolMessage(id_, _, text):
            return {"role": "tool", "tool_call_id": id_, "content": text}
