"""Requests and answers of chat completions as OpenAI's clients know them, with the agent's events in between.

Text is sent as every client of that API expects it; everything else of a turn is in chunks without choices,
as ``x_strawberry``.
"""

import json
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from chat.http import limits
from chat.http.errors import openai_error
from chat.http.messages import ChatMessage, ForeignPart, OfferedTool, Stops, StopTexts, chat_request
from chat.http.streams import DONE, event
from chat.turns import Turn
from contracts.chat.messages import (
    AGENTS,
    AgentName,
    ChatRequest,
    ClientCall,
    TextDelta,
    TurnError,
    TurnEvent,
    TurnFinal,
)
from contracts.wire import Json, Part


class StreamOptions(ForeignPart):
    """What a client wants in a stream besides the answer."""

    include_usage: bool = False


class CompletionRequest(ForeignPart):
    """What is read of a request; sampling settings are ignored."""

    model: AgentName = AGENTS[0]
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    stop: Stops = []
    tools: list[OfferedTool] = []
    tool_choice: str | dict[str, Json] | None = None

    def chat_request(self, *, can_confirm: bool, **given: Any) -> ChatRequest:
        """Return what is asked; see `chat.http.messages.chat_request`."""
        tools = () if self.tool_choice == "none" else [tool.function for tool in self.tools]
        return chat_request(
            self.messages, agent=self.model, tools=tools, can_confirm=can_confirm and self.stream, **given
        )


class ModelSummary(TypedDict):
    """An agent as OpenAI's API describes a model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(TypedDict):
    """All agents."""

    object: Literal["list"]
    data: list[ModelSummary]


class CompletionFunction(TypedDict):
    """A function of the client's own with its arguments as JSON."""

    name: str
    arguments: str


class CompletionCall(TypedDict):
    """A call that the client is to make."""

    id: str
    type: Literal["function"]
    function: CompletionFunction


class CompletionMessage(TypedDict):
    """What the assistant says, and wants to be called."""

    role: Literal["assistant"]
    content: str
    tool_calls: NotRequired[list[CompletionCall]]


class CompletionChoice(TypedDict):
    """The one choice of a completion."""

    index: int
    message: CompletionMessage
    finish_reason: str


class TokenUsage(TypedDict):
    """The tokens of a turn."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class _Head(TypedDict):
    id: str
    object: str
    created: int
    model: str


class CompletionAnswer(_Head):
    """The completion of a turn."""

    choices: list[CompletionChoice]
    usage: TokenUsage
    x_strawberry: TurnFinal


class ChunkDelta(Part):
    """A piece of the answer in a chunk."""

    content: str | None = None


class ChunkChoice(Part):
    """The one choice of a chunk."""

    delta: ChunkDelta = ChunkDelta()


class CompletionChunk(Part):
    """A chunk of a stream, as clients of ours read it."""

    choices: list[ChunkChoice] = []
    x_strawberry: TurnEvent | None = None

    @property
    def event(self) -> TurnEvent | None:
        """Return the event in it; None where it has none."""
        texts = (choice.delta.content for choice in self.choices)
        return self.x_strawberry or next((TextDelta(text=text) for text in texts if text), None)


def model_of(name: str) -> ModelSummary:
    return {"id": name, "object": "model", "created": 0, "owned_by": "strawberry"}


def model_list(agents: Iterable[str]) -> ModelList:
    # Agents are models to other programs.
    return {"object": "list", "data": [model_of(name) for name in agents]}


async def followed(turn: Turn) -> tuple[TurnFinal | TurnError, list[TurnEvent]]:
    """Follow a turn to its end and return its last event, and as many of them as are shown."""
    events: list[TurnEvent] = []
    size = 0
    async with aclosing(turn.events()) as source:
        async for last in source:
            size += len(repr(last))
            if size <= limits.MAX_EVENT_BYTES:
                events.append(last)
    assert isinstance(last, TurnFinal | TurnError), "a turn ends with one of them"
    return last, events


class Completion:
    """A turn in the form of a chat completion."""

    def __init__(self, turn: Turn, request: CompletionRequest) -> None:
        self._turn = turn
        self._model = request.model
        self._with_usage = request.stream_options.include_usage
        self._stop = StopTexts(request.stop)
        self._created = int(time.time())

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks as server-sent events.

        The first one is sent before the turn has done anything: it tells the client that it is answered here.
        """
        try:
            yield event(self._chunk({"role": "assistant", "content": ""}))
            async with aclosing(self._turn.events()) as events:
                async for told in events:
                    for chunk in self._chunks(told):
                        yield event(chunk)
                    if self._stop.found:
                        break
            if self._stop.found:
                yield event(self._chunk({}, finish="stop"))
            yield DONE
        finally:
            # A client that leaves closes the stream, perhaps before the turn has begun.
            self._turn.cancel()

    def whole(self, final: TurnFinal) -> CompletionAnswer:
        """Return the completion of a turn that has ended."""
        message: CompletionMessage = {"role": "assistant", "content": self._stop.cut(final.answer)}
        if final.calls:
            message["tool_calls"] = list(map(_called, final.calls))
        return {
            **self._head("chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(final)}],
            "usage": _usage(final),
            "x_strawberry": final,
        }

    def _chunks(self, told: TurnEvent) -> list[dict[str, Any]]:
        # Text is what every client understands, so it goes the usual way and only once.
        match told:
            case TextDelta(text=text):
                ready = self._stop.feed(text)
                return [self._chunk({"content": ready})] if ready else []
            case TurnFinal():
                chunks = [self._chunk({"content": rest})] if (rest := self._stop.rest()) else []
                calls = [{"index": number, **_called(call)} for number, call in enumerate(told.calls)]
                chunks += [self._chunk({"tool_calls": calls})] if calls else []
                chunks += [self._bare(x_strawberry=told), self._chunk({}, finish=_finish(told))]
                return [*chunks, self._bare(usage=_usage(told))] if self._with_usage else chunks
            case TurnError():
                error = openai_error(503, told.code, told.message, told.hint)
                return [self._bare(x_strawberry=told), {"error": error}]
            case _:
                return [self._bare(x_strawberry=told)]

    def _head(self, kind: str) -> _Head:
        id_ = f"chatcmpl-{self._turn.id}"
        return {"id": id_, "object": kind, "created": self._created, "model": self._model}

    def _chunk(self, delta: dict[str, Json], *, finish: str | None = None) -> dict[str, Any]:
        return self._bare(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])

    def _bare(self, **more: Any) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk"), "choices": [], **more}


def _finish(final: TurnFinal) -> str:
    return "tool_calls" if final.calls else "stop"


def _called(call: ClientCall) -> CompletionCall:
    function: CompletionFunction = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _usage(final: TurnFinal) -> TokenUsage:
    return {
        "prompt_tokens": final.input_tokens,
        "completion_tokens": final.output_tokens,
        "total_tokens": final.input_tokens + final.output_tokens,
    }
