"""The OpenAI-compatible chat API, without TensorZero."""

import json
from typing import Any, Final

from agent_core.gateway.backend import (
    CallCollector,
    HttpBackend,
    Piece,
    Question,
    Rejected,
    Reply,
    as_cost,
    broken,
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

_STOPS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "content_filter": "filter",
}


class OpenAIBackend(HttpBackend):
    """Asks servers that speak OpenAI's chat API."""

    async def question(self, request: ModelRequest, model: Model) -> Question:
        """Return what to send."""
        return Question("/chat/completions", _body(request, model.entry))

    def reply(self, model: Model) -> Reply:
        """Return what reads the answer."""
        return _StreamedReply(model)


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
        chunk: dict[str, Any] = json.loads(data)
        if chunk.get("error"):
            raise Rejected(broken(self._model, f"failed: {json.dumps({'error': chunk['error']})}"))
        if usage := chunk.get("usage"):
            self._usage = (usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
            # No part of OpenAI's API; OpenRouter and some others say it.
            self._cost = as_cost(usage.get("cost"))
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
        """Return what is known only at the end."""
        if not self._stop and not self._done:
            return [broken(self._model, "stopped before its answer was complete")]
        return [
            *self._calls.calls(),
            Completed(
                self._model.entry.name,
                *self._usage,
                cost=self._cost,
                stop=_STOPS.get(self._stop, "unknown"),
            ),
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
