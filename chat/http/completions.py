"""The shapes of the chat contract: OpenAI's chat completions, with what the agent does in between.

What is said goes out as every client of that API expects it. Everything else of a turn stands in chunks
without choices, as ``x_strawberry``.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from agent_core.conversation import Exchange
from chat.http.streams import DONE, event
from chat.turns import Turn
from contracts.chat import AGENTS, MAX_MESSAGE
from contracts.errors import GatewayError, InvalidMessage, NoModel
from contracts.events import TextDelta, TurnError, TurnEvent, TurnFinal
from contracts.wire import Json, Part

_MAX_NOTES: Final = 4_000
"""Characters of a client's own instructions that the model is shown."""


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
    """What a client wants to see in a stream beside the answer."""

    include_usage: bool = False


class CompletionRequest(Part):
    """What is read of a request; tools and sampling are not the client's business, and are ignored."""

    model: str = AGENTS[0]
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: bool = False
    stream_options: StreamOptions | None = None

    @property
    def with_usage(self) -> bool:
        """Whether a stream shall end with the tokens that were used."""
        return self.stream_options is not None and self.stream_options.include_usage


@dataclass(frozen=True)
class Said:
    """A request's messages, taken apart.

    Attributes:
        history: The exchanges before the message.
        notes: The client's own instructions, as material for the model.
    """

    message: str
    history: tuple[Exchange, ...]
    notes: str


def read(messages: list[ChatMessage]) -> Said:
    """Take a request's messages apart.

    Raises:
        InvalidMessage: If the last one is not the user's, or is too long.
    """
    last = messages[-1]
    if last.role != "user" or not last.text.strip():
        raise InvalidMessage("the last message must be the user's", hint="Send what the person said last.")
    if len(last.text) > MAX_MESSAGE:
        raise InvalidMessage(f"a message may have {MAX_MESSAGE:,} characters")
    exchanges: list[Exchange] = []
    question: str | None = None
    for message in messages[:-1]:
        if message.role == "user":
            question = message.text
        elif message.role == "assistant" and question and message.text:
            exchanges.append(Exchange(question, message.text))
            question = None
    said = "\n".join(message.text for message in messages if message.role in ("system", "developer"))
    notes = f"The client program asks: {said[:_MAX_NOTES]}" if said.strip() else ""
    return Said(last.text, tuple(exchanges), notes)


def model_list() -> dict[str, Json]:
    """Give the answer to ``GET /v1/models``."""
    owned = {"object": "model", "created": 0, "owned_by": "strawberry"}
    return {"object": "list", "data": [{"id": name, **owned} for name in AGENTS]}


async def whole_answer(turn: Turn) -> dict[str, Json]:
    """Follow a turn to its end and give it as ``/api/chat`` answers.

    Raises:
        GatewayError: If it ended without an answer.
    """
    events: list[dict[str, Any]] = []
    async with aclosing(turn.events()) as told:
        async for each in told:
            events.append(each.model_dump(mode="json"))
            match each:
                case TurnFinal():
                    return {
                        "answer": each.answer,
                        "mode": each.mode,
                        "device": each.device,
                        "events": events,
                        "conversation": turn.request.conversation,
                        "turn": turn.request.key.turn,
                    }
                case TurnError():
                    raise _failure(each)
    raise GatewayError("the turn ended without an answer")


class Completion:
    """A turn in the form of a chat completion."""

    def __init__(self, turn: Turn, *, model: str, with_usage: bool) -> None:
        self._turn = turn
        self._model = model
        self._with_usage = with_usage
        self._created = int(time.time())

    @property
    def headers(self) -> dict[str, str]:
        """The ids by which a client goes on, and cancels."""
        request = self._turn.request
        return {
            "x-strawberry-conversation": request.conversation,
            "x-strawberry-turn": request.key.turn,
        }

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Give the chunks as server-sent events.

        The first one goes out before the turn has done anything: it tells whoever waits for it that
        somebody answers here.
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

    async def whole(self) -> dict[str, Json]:
        """Give the completion once the turn has ended.

        Raises:
            GatewayError: If it ended without an answer.
        """
        async with aclosing(self._turn.events()) as events:
            async for told in events:
                match told:
                    case TurnFinal():
                        return self._completion(told)
                    case TurnError():
                        raise _failure(told)
        raise GatewayError("the turn ended without an answer")

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
        id_ = f"chatcmpl-{self._turn.request.key.turn}"
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

    def _completion(self, final: TurnFinal) -> dict[str, Any]:
        message = {"role": "assistant", "content": final.answer}
        return {
            **self._head("chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": _usage(final),
            "x_strawberry": final.model_dump(mode="json"),
        }


def _failure(told: TurnError) -> GatewayError:
    kind = NoModel if told.code == "no_model" else GatewayError
    return kind(told.message, hint=told.hint)


def _usage(final: TurnFinal) -> dict[str, int]:
    return {
        "prompt_tokens": final.input_tokens,
        "completion_tokens": final.output_tokens,
        "total_tokens": final.input_tokens + final.output_tokens,
    }
