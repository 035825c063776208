"""Asking models over Ollama's own API.

Its OpenAI-compatible API has no way to say how long a context shall be, and a prompt that does not fit
into the default one loses its beginning without a word. ``/api/chat`` takes ``num_ctx``.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from agent_core.gateway.clock import AnswerClock
from agent_core.gateway.context_room import ContextRoom, Room, room_for
from agent_core.gateway.fallback import (
    Backend,
    BrokeOff,
    Failure,
    Piece,
    each_in_turn,
    one_line,
    passes,
)
from agent_core.gateway.ollama_wire import chat_messages, chat_tools
from agent_core.gateway.protocol import Completed, ModelRequest, Remark, TextPart, ToolCall
from agent_core.models.entries import Model, ModelEntry
from agent_core.models.ollama import NO_TOOLS_ADVICE, context_length_of, open_client

if TYPE_CHECKING:
    import ollama

_NOT_FOUND: Final = 404
_NO_TOOLS: Final = "does not support tools"


@asynccontextmanager
async def open_ollama_backend(models: tuple[Model, ...]) -> AsyncIterator[Backend]:
    """Open the connections to the servers of these models and close them again."""
    async with AsyncExitStack() as stack:
        clients = {
            model.entry.name: await stack.enter_async_context(open_client(model.entry.address, model.key))
            for model in models
        }
        yield OllamaBackend(clients, models)


class OllamaBackend:
    """Asks each model itself."""

    def __init__(self, clients: "dict[str, ollama.AsyncClient]", models: tuple[Model, ...]) -> None:
        self._clients = clients
        self._models = models
        self._rooms: dict[str, ContextRoom] = {}

    async def ask(self, request: ModelRequest, models: tuple[Model, ...]) -> AsyncGenerator[Piece, None]:
        """See ``fallback.Backend.ask``."""
        async with aclosing(each_in_turn(models, partial(self._events, request))) as pieces:
            async for piece in pieces:
                yield piece

    async def _events(self, request: ModelRequest, model: Model) -> AsyncGenerator[Piece, None]:
        """Ask one model; a failure of any kind ends the answer as ``BrokeOff``."""
        import httpx
        import ollama

        entry, reply = model.entry, _Reply(model.entry)
        clock = AnswerClock(entry)
        try:
            async with clock.limit():
                room = await self._room(request, entry)
            chunks = await self._chat(request, entry, room)
            if room.warning:
                yield Remark(room.warning)
            async with aclosing(chunks):
                while (chunk := await clock.next_of(chunks)) is not None:
                    for text in reply.take(chunk):
                        yield text
        except TimeoutError:
            yield BrokeOff(Failure(entry.name, f"no answer within {clock.seconds:g} s"))
        except ollama.ResponseError as error:
            yield BrokeOff(self._refused(entry, error))
        except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout):
            yield BrokeOff(Failure(entry.name, f"nothing answers at {entry.address}"))
        except httpx.HTTPError as error:
            said = one_line(f"the connection broke: {error or type(error).__name__}", self._models)
            yield BrokeOff(Failure(entry.name, said, passing=True))
        except (ValueError, TypeError, AttributeError):
            yield BrokeOff(Failure(entry.name, "what it sent is not an answer of Ollama", passing=True))
        else:
            for piece in reply.end():
                yield piece

    async def _chat(
        self, request: ModelRequest, entry: ModelEntry, room: Room
    ) -> "AsyncGenerator[ollama.ChatResponse, None]":
        chunks = await self._clients[entry.name].chat(
            model=entry.model,
            messages=chat_messages(request),
            tools=chat_tools(request.tools) or None,
            stream=True,
            options={"num_ctx": room.num_ctx, "num_predict": entry.max_output_tokens},
        )
        # Its type says iterator; it is a generator, and has to be closed where an answer is left.
        return cast("AsyncGenerator[ollama.ChatResponse, None]", chunks)

    async def _room(self, request: ModelRequest, entry: ModelEntry) -> Room:
        """Find the room for a prompt; what the model was trained for is asked once."""
        known = self._rooms.get(entry.name)
        if known is None:
            trained = context_length_of(await self._clients[entry.name].show(entry.model))
            known = self._rooms[entry.name] = room_for(entry, trained)
        return known.take(request)

    def _refused(self, entry: ModelEntry, error: "ollama.ResponseError") -> Failure:
        if error.status_code == _NOT_FOUND:
            return Failure(
                entry.name, f"Ollama has no model {entry.model}; get it: strawberry models pull {entry.model}"
            )
        if _NO_TOOLS in str(error.error):
            return Failure(entry.name, f"{entry.model} cannot call tools; {NO_TOOLS_ADVICE}")
        # An error inside a stream has no status; the runner that died may be there the next time.
        passing = error.status_code < 0 or passes(error.status_code)
        status = f"status {error.status_code}: " if error.status_code > 0 else ""
        return Failure(entry.name, one_line(f"{status}{error.error}", self._models), passing=passing)


class _Reply:
    """An answer in the making."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._calls: list[ToolCall] = []
        self._last: Any = None

    def take(self, chunk: "ollama.ChatResponse") -> list[TextPart]:
        """Take one piece; gives the text in it. Thoughts are nobody's to read."""
        for call in chunk.message.tool_calls or ():
            arguments = dict(call.function.arguments)
            self._calls.append(
                ToolCall(f"call_{len(self._calls)}", call.function.name, json.dumps(arguments), arguments)
            )
        if chunk.done:
            self._last = chunk
        return [TextPart(chunk.message.content)] if chunk.message.content else []

    def end(self) -> list[Piece]:
        """Give what is known only at the end."""
        if self._last is None:
            return [
                BrokeOff(Failure(self._entry.name, "the stream ended before the answer did", passing=True))
            ]
        completed = Completed(
            self._entry.name, self._last.prompt_eval_count or 0, self._last.eval_count or 0, stop=self._stop()
        )
        return [*self._calls, completed]

    def _stop(self) -> Any:
        if self._last.done_reason == "length":
            return "length"
        return "tools" if self._calls else "end" if self._last.done_reason == "stop" else "unknown"
