"""Requests and answers of chat completions as OpenAI's clients know them, with the agent's events in between.

Text is sent as every client of that API expects it; everything else of a turn is in chunks without choices,
as ``x_strawberry``.
"""

import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Annotated, Any, Final

from pydantic import Field

from chat.http.streams import DONE, event
from chat.turns import Turn
from contracts.chat import (
    AGENTS,
    MAX_MESSAGE,
    AgentName,
    ChatRequest,
    Exchange,
    TextDelta,
    TurnError,
    TurnEvent,
    TurnFinal,
)
from contracts.errors import InvalidMessage
from contracts.wire import Json, Part

_MAX_NOTES: Final = 4_000
"""Characters of a client's own instructions that the model is shown."""
_MAX_EVENTS: Final = 1024 * 1024
"""Bytes of events in an answer that is no stream."""


class ChatMessage(Part):
    """One message of the conversation, as text or in parts."""

    role: str
    content: str | list[dict[str, Json]] | None = None

    @property
    def text(self) -> str:
        """The text.

        Raises:
            InvalidMessage: If there is anything but text.
        """
        if not isinstance(self.content, list):
            return self.content or ""
        if any(part.get("type") != "text" for part in self.content):
            raise InvalidMessage("the assistant takes text only", hint="Leave images and sound out.")
        return "".join(str(part.get("text", "")) for part in self.content)


class StreamOptions(Part):
    """What a client wants in a stream besides the answer."""

    include_usage: bool = False


class CompletionRequest(Part):
    """What is read of a request; tools and sampling settings are ignored."""

    model: AgentName = AGENTS[0]
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: bool = False
    stream_options: StreamOptions | None = None

    @property
    def with_usage(self) -> bool:
        """Whether the stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    def chat_request(
        self, *, conversation: str | None, turn: str | None, device: str | None, can_confirm: bool
    ) -> ChatRequest:
        """Take the messages apart: the last one is the message, those before it are history and notes.

        Raises:
            InvalidMessage: If the last one is not the user's, or is too long.
        """
        last = self.messages[-1]
        if last.role != "user" or not last.text.strip():
            raise InvalidMessage(
                "the last message must be the user's", hint="Send what the person said last."
            )
        if len(last.text) > MAX_MESSAGE:
            raise InvalidMessage(f"a message may have {MAX_MESSAGE:,} characters")
        history: list[Exchange] = []
        question: str | None = None
        for message in self.messages[:-1]:
            if message.role == "user":
                question = message.text
            elif message.role == "assistant" and question and message.text:
                history.append(Exchange(question=question, answer=message.text))
                question = None
        notes = "\n".join(each.text for each in self.messages if each.role in ("system", "developer"))
        return ChatRequest(
            message=last.text,
            agent=self.model,
            conversation=conversation,
            turn=turn,
            device=device,
            can_confirm=can_confirm and self.stream,
            history=tuple(history),
            notes=f"The client program asks: {notes[:_MAX_NOTES]}" if notes.strip() else "",
        )


def model_list(agents: Iterable[str]) -> dict[str, Json]:
    """Return the answer to ``GET /v1/models``: agents are models to other programs."""
    owned = {"object": "model", "created": 0, "owned_by": "strawberry"}
    return {"object": "list", "data": [{"id": name, **owned} for name in agents]}


async def followed(turn: Turn) -> tuple[TurnFinal | TurnError, list[TurnEvent]]:
    """Follow a turn to its end and return its last event, and as many of them as are shown."""
    events: list[TurnEvent] = []
    size = 0
    async with aclosing(turn.events()) as source:
        async for last in source:
            size += len(repr(last))
            if size <= _MAX_EVENTS:
                events.append(last)
    assert isinstance(last, TurnFinal | TurnError), "a turn ends with one of them"
    return last, events


class Completion:
    """A turn in the form of a chat completion."""

    def __init__(self, turn: Turn, *, model: str, with_usage: bool) -> None:
        self._turn = turn
        self._model = model
        self._with_usage = with_usage
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
            yield DONE
        finally:
            # A client that leaves closes the stream, perhaps before the turn has begun.
            self._turn.cancel()

    def whole(self, final: TurnFinal) -> dict[str, Any]:
        """Return the completion of a turn that has ended."""
        message = {"role": "assistant", "content": final.answer}
        return {
            **self._head("chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": _usage(final),
            "x_strawberry": final.model_dump(mode="json"),
        }

    def _chunks(self, told: TurnEvent) -> list[dict[str, Any]]:
        # Text is what every client understands, so it goes the usual way and only once.
        match told:
            case TextDelta(text=text):
                return [self._chunk({"content": text})]
            case TurnFinal():
                end = self._chunk({}, finish="stop")
                if not self._with_usage:
                    return [self._extra(told), end]
                usage = {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(told)}
                return [self._extra(told), end, usage]
            case TurnError():
                error = {"message": told.message, "type": "server_error", "param": None, "code": told.code}
                return [self._extra(told), {"error": {**error, "hint": told.hint}}]
            case _:
                return [self._extra(told)]

    def _head(self, kind: str) -> dict[str, Any]:
        id_ = f"chatcmpl-{self._turn.id}"
        return {"id": id_, "object": kind, "created": self._created, "model": self._model}

    def _chunk(self, delta: dict[str, Json], *, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _extra(self, told: TurnEvent) -> dict[str, Any]:
        return {
            **self._head("chat.completion.chunk"),
            "choices": [],
            "x_strawberry": told.model_dump(mode="json"),
        }


def _usage(final: TurnFinal) -> dict[str, int]:
    return {
        "prompt_tokens": final.input_tokens,
        "completion_tokens": final.output_tokens,
        "total_tokens": final.input_tokens + final.output_tokens,
    }
