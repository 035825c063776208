"""The backend over the OpenAI-compatible chat API, without TensorZero."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from agent_core import limits
from agent_core.gateway.backend import (
    Alive,
    Backend,
    CallCollector,
    Piece,
    as_cost,
    broken,
    refused,
    stop_reason,
    unreachable,
)
from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    Message,
    ModelRequest,
    TextPart,
    ToolMessage,
    UserMessage,
)
from agent_core.models.entries import Model, ModelEntry
from contracts.phrases import Phrase

if TYPE_CHECKING:
    import httpx


@asynccontextmanager
async def open_direct() -> AsyncIterator[Backend]:
    """Open the connections that the models share and close them again."""
    import httpx  # 80 ms that commands without a model never need

    async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=limits.MODEL_CONNECT_S)) as client:
        yield DirectBackend(client)


class DirectBackend:
    """Asks each model itself."""

    def __init__(self, client: "httpx.AsyncClient") -> None:
        self._client = client

    async def ask(self, request: ModelRequest, model: Model) -> AsyncGenerator[Piece, None]:
        import httpx

        reply = _StreamedReply(model)
        try:
            response = await self._client.send(self._request(request, model), stream=True)
            async with aclosing(response):
                if response.status_code != httpx.codes.OK:
                    body = (await response.aread()).decode("utf-8", "replace")
                    yield refused(model, response.status_code, body)
                    return
                # Its type says iterator; it is a generator, and has to be closed where an answer is left.
                pieces = cast("AsyncGenerator[str, None]", response.aiter_lines())
                async with aclosing(pieces) as lines:
                    async for line in lines:
                        yield Alive()
                        for text in reply.take(line):
                            yield text
        except _Garbled as error:
            yield broken(model, str(error))
        except (httpx.ConnectError, httpx.ConnectTimeout):
            yield unreachable(model)
        except httpx.HTTPError as error:
            yield broken(model, f"broke the connection: {error or type(error).__name__}")
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
    """A response that violates the API."""


class _StreamedReply:
    """An answer in the making, from the lines of its server-sent events."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._calls = CallCollector()
        self._ids: dict[int, str] = {}
        self._stop = ""
        self._done = False
        self._usage = (0, 0)
        self._cost: float | None = None

    def take(self, line: str) -> list[TextPart]:
        """Read one line; return the text in it."""
        if not line.startswith("data:"):
            return []
        data = line[5:].strip()
        if data == "[DONE]":
            self._done = True
            return []
        try:
            # Some servers send the two halves of a surrogate pair in two chunks, which from_json refuses.
            return self._take_chunk(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            raise _Garbled(Phrase("sent what is not a chat chunk: {data}", data=data[:100])) from None

    def _take_chunk(self, chunk: dict[str, Any]) -> list[TextPart]:
        if chunk.get("error"):
            raise _Garbled(f"failed: {json.dumps({'error': chunk['error']})}")
        if usage := chunk.get("usage"):
            self._usage = (int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
            # No part of OpenAI's API; OpenRouter and some others say it.
            self._cost = as_cost(usage.get("cost"))
        texts: list[TextPart] = []
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            if text := _text(delta.get("content")):
                texts.append(TextPart(text))
            for number, call in enumerate(delta.get("tool_calls") or []):
                # The id comes with the first piece only; the index says whose the others are.
                index = call.get("index", number)
                key = self._ids.setdefault(index, _text(call.get("id")) or f"call_{index}")
                function = call.get("function") or {}
                self._calls.add(key, _text(function.get("name")), _text(function.get("arguments")))
            self._stop = _text(choice.get("finish_reason")) or self._stop
        return texts

    def end(self) -> list[Piece]:
        """Return what is known only at the end."""
        if not self._stop and not self._done:
            return [broken(self._model, "stopped before its answer was complete")]
        return [
            *self._calls.calls(),
            Completed(self._model.entry.name, *self._usage, cost=self._cost, stop=stop_reason(self._stop)),
        ]


def _text(value: object) -> str:
    """Return a text that may be missing; a server may send anything in its place."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value or ""


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
        body["tools"] = [{"type": "function", "function": vars(tool)} for tool in request.tools]
    return body


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(text, images):
            parts = [
                {"type": "image_url", "image_url": {"url": f"data:{each.media_type};base64,{each.data}"}}
                for each in images
            ]
            return {"role": "user", "content": [{"type": "text", "text": text}, *parts] if parts else text}
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
