"""The backend over Ollama's own API.

Its OpenAI-compatible API has no way to say how long a context shall be, and a prompt that does not fit
into the default one loses its beginning without a word. ``/api/chat`` takes ``num_ctx``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_core.gateway.backend import (
    Failed,
    Failure,
    HttpBackend,
    Piece,
    Question,
    Rejected,
    Reply,
    broken,
    parsed_arguments,
    refused,
)
from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    ModelRequest,
    StopReason,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agent_core.models.entries import Model, ModelEntry
from agent_core.models.ollama import NO_TOOLS_ADVICE, context_length_of
from contracts.wire import Json

if TYPE_CHECKING:
    import httpx

_NOT_FOUND: Final = 404
_NO_TOOLS: Final = "does not support tools"

_BYTES_PER_TOKEN: Final = 3
"""On the safe side, also where a letter is a token: a prompt that turns out longer loses its beginning."""

_MAX_SCHEMA: Final = 300
"""Characters of a schema in a description."""

_MAX_DEPTH: Final = 16
_LEAST: Final = 4096
_LEAST_ANSWER: Final = 512
"""Tokens that an answer needs; with less the warning comes."""


class ContextSize:
    """The context of one model: it grows in steps and never shrinks.

    Ollama reloads a model for each other length, which takes seconds.

    Args:
        trained: Tokens that the model was trained for; None where that is unknown.
    """

    def __init__(self, entry: ModelEntry, trained: int | None) -> None:
        self._entry = entry
        self._limit, self._reason = trained, f"the model was trained for {trained}"
        own = entry.max_context_tokens
        if own is not None and (trained is None or own < trained):
            self._limit, self._reason = own, f"max_context_tokens allows {own}"
        self._now = _LEAST

    def take(self, prompt: int) -> tuple[int, str]:
        """Return the tokens to ask for, and a warning where the prompt does not fit.

        Args:
            prompt: Its tokens; its answer needs some more.
        """
        while self._now < prompt + self._entry.max_output_tokens:
            self._now *= 2
        if self._limit is None or self._now <= self._limit:
            return self._now, ""
        self._now = self._limit
        if prompt + _LEAST_ANSWER <= self._limit:
            return self._now, ""
        return self._now, (
            f"{self._entry.name} does not see the whole prompt: it needs some "
            f"{prompt + _LEAST_ANSWER} tokens, and {self._reason}. The beginning is cut off."
        )


class OllamaBackend(HttpBackend):
    """Asks servers that speak Ollama's own API."""

    line = "an answer of Ollama"

    def __init__(self, client: "httpx.AsyncClient") -> None:
        super().__init__(client)
        self._sizes: dict[str, ContextSize] = {}

    async def question(self, request: ModelRequest, model: Model) -> Question:
        """Return what to send; the trained length of a model is asked once."""
        entry = model.entry
        if entry.name not in self._sizes:
            async with self.posted(model, "/api/show", {"model": entry.model}) as response:
                shown = await response.aread()
            try:
                trained = context_length_of(json.loads(shown))
            except (ValueError, TypeError, AttributeError):
                raise Rejected(broken(model, f"sent what is not {self.line}")) from None
            self._sizes[entry.name] = ContextSize(entry, trained)
        body = {"model": entry.model, "messages": _messages(request), "tools": chat_tools(request.tools)}
        prompt = len(json.dumps(body, ensure_ascii=False).encode()) // _BYTES_PER_TOKEN
        num_ctx, warning = self._sizes[entry.name].take(prompt)
        options = {"num_ctx": num_ctx, "num_predict": entry.max_output_tokens}
        return Question("/api/chat", {**body, "stream": True, "options": options}, warning)

    def reply(self, model: Model) -> Reply:
        """Return what reads the answer."""
        return _Reply(model)

    def refused(self, model: Model, status: int, body: str) -> Failed:
        """Report why Ollama refuses, with the command or the choice that helps."""
        entry = model.entry
        if status == _NOT_FOUND:
            reason = f"needs {entry.model}, which Ollama does not have: strawberry models pull {entry.model}"
            return Failed(Failure(entry.name, reason))
        if _NO_TOOLS in body:
            return Failed(Failure(entry.name, f"cannot call tools; {NO_TOOLS_ADVICE}"))
        return refused(model, status, body)


class _Reply:
    """An answer in the making."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._calls: list[ToolCall] = []
        self._last: dict[str, Any] | None = None

    def take(self, line: str) -> list[TextPart]:
        """Read one line; return the text in it. Thoughts are never shown."""
        chunk: dict[str, Any] = json.loads(line)
        if "error" in chunk:
            # The runner that died may be there the next time.
            raise Rejected(broken(self._model, f"failed: {chunk['error']}"))
        message = chunk["message"]
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = dict(function["arguments"])
            self._calls.append(
                ToolCall(f"call_{len(self._calls)}", function["name"], json.dumps(arguments), arguments)
            )
        if chunk.get("done"):
            self._last = chunk
        return [TextPart(str(message["content"]))] if message.get("content") else []

    def end(self) -> list[Piece]:
        """Return what is known only at the end."""
        last = self._last
        if last is None:
            return [broken(self._model, "stopped before its answer was complete")]
        stop: StopReason = "end" if last.get("done_reason") == "stop" else "unknown"
        if last.get("done_reason") == "length":
            stop = "length"
        elif self._calls:
            stop = "tools"
        tokens = last.get("prompt_eval_count") or 0, last.get("eval_count") or 0
        return [*self._calls, Completed(self._model.entry.name, *tokens, stop=stop)]


def chat_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Write tools in the part of JSON Schema that Ollama keeps; the rest goes into the descriptions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": {
                    "type": "object",
                    "properties": {
                        name: _property(schema, tool.parameters.get("$defs", {}))
                        for name, schema in tool.parameters.get("properties", {}).items()
                    },
                    "required": list(tool.parameters.get("required", ())),
                },
            },
        }
        for tool in tools
    ]


def _property(schema: Json, definitions: Mapping[str, Json]) -> dict[str, Json]:
    schema = _inlined(schema, definitions)
    kept = {key: schema.pop(key) for key in ("type", "enum") if key in schema}
    words = [str(schema.pop("description"))] if schema.get("description") else []
    if isinstance(schema.get("items"), dict) and "properties" not in schema["items"]:
        kept["items"] = schema.pop("items")
    if schema:
        words.append(json.dumps(schema, ensure_ascii=False)[:_MAX_SCHEMA])
    return {**kept, **({"description": "; ".join(words)} if words else {})}


def _inlined(schema: Json, definitions: Mapping[str, Json], depth: int = 0) -> dict[str, Json]:
    """Replace references by what they refer to; what is no schema is an empty one."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    known = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2])
    merged = {**known, **schema} if isinstance(known, dict) else dict(schema)
    merged.pop("$ref", None)
    if "items" in merged:
        merged["items"] = _inlined(merged["items"], definitions, depth + 1)
    choices = [_inlined(each, definitions, depth + 1) for each in merged.get("anyOf", ())]
    if choices and all("type" in each for each in choices):
        # An optional value: its types are written together, as Ollama knows them.
        types = [each.pop("type") for each in choices]
        del merged["anyOf"]
        merged = {**{key: value for each in choices for key, value in each.items()}, **merged, "type": types}
    return merged


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    """Write a conversation; the result of a tool names its tool, for there are no ids."""
    made: list[dict[str, Any]] = [{"role": "system", "content": request.system}]
    for message in request.messages:
        match message:
            case UserMessage(text):
                made.append({"role": "user", "content": text})
            case AssistantMessage(text, calls):
                functions = [
                    {"name": call.name, "arguments": parsed_arguments(call.raw) or {}} for call in calls
                ]
                said = {"role": "assistant", "content": text}
                made.append(
                    {**said, "tool_calls": [{"function": each} for each in functions]} if calls else said
                )
            case ToolMessage(_, name, text):
                made.append({"role": "tool", "tool_name": name, "content": text})
    return made
