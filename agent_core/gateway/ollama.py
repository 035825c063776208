"""The backend over Ollama's own API.

Its OpenAI-compatible API has no way to say how long a context shall be, and a prompt that does not fit
into the default one loses its beginning without a word. ``/api/chat`` takes ``num_ctx``.
"""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from agent_core import limits
from agent_core.gateway.backend import (
    Alive,
    Backend,
    Failure,
    Piece,
    broken,
    no_pictures,
    parsed_arguments,
    refused,
    unreachable,
)
from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    ModelRequest,
    Remark,
    StopReason,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    text_of,
)
from agent_core.models.entries import Model, ModelEntry
from agent_core.models.ollama import NO_TOOLS_ADVICE, context_length_of, open_client
from contracts.phrases import Phrase
from contracts.wire import Json

if TYPE_CHECKING:
    import ollama

_NO_MODEL: Final = re.compile(r"model .+ not found")
"""Of Ollama itself; any other server answers 404 in its own words."""
_NO_TOOLS: Final = "does not support tools"

_BYTES_PER_TOKEN: Final = 3
"""On the safe side, also where a letter is a token: a prompt that turns out longer loses its beginning."""

_MESSAGE_TOKENS: Final = 8
"""What role and marks of one message cost."""


@dataclass(frozen=True)
class PromptContext:
    """The context for one prompt.

    Attributes:
        num_ctx: Tokens to ask for.
        warning: What does not fit, in a sentence; empty where all does.
    """

    num_ctx: int
    warning: str = ""


class ContextSize:
    """The context of one model: it grows in steps and never shrinks.

    Ollama reloads a model for each other length, which takes seconds.

    Args:
        trained: Tokens that it was trained for, where it is known.
    """

    def __init__(self, entry: ModelEntry, trained: int | None) -> None:
        self._entry = entry
        self._limit, self._now = trained, limits.LEAST_CONTEXT_TOKENS
        self._reason = Phrase("the model was trained for {trained}", trained=trained)
        own = entry.max_context_tokens
        if own is not None and (trained is None or own < trained):
            self._limit, self._reason = own, Phrase("max_context_tokens allows {own}", own=own)

    def take(self, request: ModelRequest) -> PromptContext:
        """Return a context that holds a prompt and its answer."""
        prompt = prompt_tokens(request)
        while self._now < prompt + self._entry.max_output_tokens:
            self._now *= 2
        if self._limit is None or self._now <= self._limit:
            return PromptContext(self._now)
        self._now = self._limit
        if prompt + limits.LEAST_ANSWER_TOKENS <= self._limit:
            return PromptContext(self._limit)
        return PromptContext(
            self._limit,
            f"{self._entry.name} does not see the whole prompt: it needs some "
            f"{prompt + limits.LEAST_ANSWER_TOKENS} tokens, and {self._reason}. The beginning is cut off.",
        )


def prompt_tokens(request: ModelRequest) -> int:
    """Estimate the tokens of a whole prompt, tools included."""
    schemas = (json.dumps(tool.parameters, ensure_ascii=False) for tool in request.tools)
    tools = (text for tool in request.tools for text in (tool.name, tool.description))
    texts = (request.system, *tools, *schemas, *map(text_of, request.messages))
    size = sum(len(text.encode()) for text in texts)
    return size // _BYTES_PER_TOKEN + _MESSAGE_TOKENS * (len(request.messages) + len(request.tools) + 1)


@asynccontextmanager
async def open_ollama_backend(models: tuple[Model, ...]) -> AsyncIterator[Backend]:
    """Open the connections to the servers of these models and close them again."""
    async with AsyncExitStack() as stack:
        clients = {
            model.entry.name: await stack.enter_async_context(open_client(model.entry.address, model.key))
            for model in models
        }
        yield OllamaBackend(clients)


class OllamaBackend:
    """Asks each model itself."""

    def __init__(self, clients: "dict[str, ollama.AsyncClient]") -> None:
        self._clients = clients
        self._sizes: dict[str, ContextSize] = {}
        self._blind: set[str] = set()
        """Names of entries whose model takes no pictures."""

    async def ask(self, request: ModelRequest, model: Model) -> AsyncGenerator[Piece, None]:
        import httpx
        import ollama

        entry, reply = model.entry, _Reply(model)
        try:
            context = await self._context(request, entry)
            if request.has_images and entry.name in self._blind and not entry.images:
                yield no_pictures(model)
                return
            chunks = await self._chat(request, entry, context)
            if context.warning:
                yield Remark(context.warning)
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield Alive()
                    for text in reply.take(chunk):
                        yield text
        except ollama.ResponseError as error:
            yield _refused(model, error)
        except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout):
            yield unreachable(model)
        except httpx.HTTPError as error:
            yield broken(model, f"broke the connection: {error or type(error).__name__}")
        except (ValueError, TypeError, AttributeError):
            yield broken(model, "sent what is not an answer of Ollama")
        else:
            for piece in reply.end():
                yield piece

    async def _chat(
        self, request: ModelRequest, entry: ModelEntry, context: PromptContext
    ) -> "AsyncGenerator[ollama.ChatResponse, None]":
        chunks = await self._clients[entry.name].chat(
            model=entry.model,
            messages=_messages(request),
            tools=chat_tools(request.tools) or None,
            stream=True,
            options={"num_ctx": context.num_ctx, "num_predict": entry.max_output_tokens},
        )
        # Its type says iterator; it is a generator, and has to be closed where an answer is left.
        return cast("AsyncGenerator[ollama.ChatResponse, None]", chunks)

    async def _context(self, request: ModelRequest, entry: ModelEntry) -> PromptContext:
        """Return the context for a prompt; the trained length of a model is asked once."""
        known = self._sizes.get(entry.name)
        if known is None:
            shown = await self._clients[entry.name].show(entry.model)
            if "vision" not in (shown.capabilities or ["vision"]):
                self._blind.add(entry.name)
            known = self._sizes[entry.name] = ContextSize(entry, context_length_of(shown))
        return known.take(request)


def _refused(model: Model, error: "ollama.ResponseError") -> Failure:
    entry = model.entry
    if _NO_MODEL.match(str(error.error)):
        reason = Phrase(
            "needs {model}, which Ollama does not have: strawberry models pull {model}{option}",
            model=entry.model,
            option=f" --ollama {entry.base_url}" if entry.base_url else "",
        )
        return Failure(entry.name, reason)
    if _NO_TOOLS in str(error.error):
        return Failure(entry.name, Phrase("cannot call tools; {advice}", advice=Phrase(NO_TOOLS_ADVICE)))
    if error.status_code > 0:
        return refused(model, error.status_code, str(error.error))
    # An error inside a stream has no status; the runner that died may be there the next time.
    return broken(model, f"failed: {error.error}")


class _Reply:
    """An answer in the making."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._calls: list[ToolCall] = []
        self._last: Any = None

    def take(self, chunk: "ollama.ChatResponse") -> list[TextPart]:
        """Read one piece; return the text in it. Thoughts are never shown."""
        for call in chunk.message.tool_calls or ():
            raw = json.dumps(dict(call.function.arguments))
            self._calls.append(
                ToolCall(f"call_{len(self._calls)}", call.function.name, raw, parsed_arguments(raw))
            )
        if chunk.done:
            self._last = chunk
        return [TextPart(chunk.message.content)] if chunk.message.content else []

    def end(self) -> list[Piece]:
        """Return what is known only at the end."""
        if self._last is None:
            return [broken(self._model, "stopped before its answer was complete")]
        name = self._model.entry.name
        completed = Completed(
            name, self._last.prompt_eval_count or 0, self._last.eval_count or 0, stop=self._stop()
        )
        return [*self._calls, completed]

    def _stop(self) -> StopReason:
        if self._last.done_reason == "length":
            return "length"
        return "tools" if self._calls else "end" if self._last.done_reason == "stop" else "unknown"


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
    schema = _inlined(schema, definitions, iter(range(limits.MAX_SCHEMA_PARTS)))
    kept = {key: schema.pop(key) for key in ("type", "enum") if key in schema}
    words = [str(schema.pop("description"))] if schema.get("description") else []
    if isinstance(schema.get("items"), dict) and "properties" not in schema["items"]:
        kept["items"] = schema.pop("items")
    if schema:
        words.append(json.dumps(schema, ensure_ascii=False)[: limits.MAX_SCHEMA_SHOWN])
    return {**kept, **({"description": "; ".join(words)} if words else {})}


def _inlined(schema: Json, definitions: Mapping[str, Json], left: Iterator[int]) -> dict[str, Json]:
    """Replace references by what they refer to; what is no schema is an empty one.

    Args:
        left: An item for each sub-schema that may still be written out; the others are empty.
    """
    if not isinstance(schema, dict) or next(left, None) is None:
        return {}
    known = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2])
    merged = {**known, **schema} if isinstance(known, dict) else dict(schema)
    merged.pop("$ref", None)
    if "items" in merged:
        merged["items"] = _inlined(merged["items"], definitions, left)
    choices = [_inlined(each, definitions, left) for each in merged.get("anyOf", ())]
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
            case UserMessage(text, images):
                shown = {"images": [each.data for each in images]} if images else {}
                made.append({"role": "user", "content": text, **shown})
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
