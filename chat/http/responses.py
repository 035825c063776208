"""Requests and answers of OpenAI's Responses API, as far as its clients need it for chat.

The id of a response holds that of its conversation, so that ``previous_response_id`` continues it.
"""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from chat.http.errors import openai_error
from chat.http.messages import CalledFunction, CalledTool, ChatMessage, ForeignPart, chat_request
from chat.http.streams import event
from chat.turns import Turn
from contracts.chat.messages import (
    AGENTS,
    AgentName,
    ChatRequest,
    ClientCall,
    ClientTool,
    TextDelta,
    TurnError,
    TurnFinal,
)
from contracts.errors import InvalidMessage
from contracts.names import Token
from contracts.wire import Json

_PREFIX: Final = "resp_"
_CONVERSATION: TypeAdapter[str] = TypeAdapter(Token)


class _Item(ForeignPart):
    """An item of the input: a message, a call of the client's tools, or its output."""

    type: str = "message"
    role: str = ""
    content: str | list[dict[str, Json]] = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[dict[str, Json]] = ""

    @property
    def message(self) -> ChatMessage:
        """The same as a message of a chat."""
        match self.type:
            case "message":
                return ChatMessage(role=self.role, content=self.content)
            case "function_call":
                function = CalledFunction(name=self.name, arguments=self.arguments)
                return ChatMessage(
                    role="assistant", tool_calls=[CalledTool(id=self.call_id, function=function)]
                )
            case "function_call_output":
                return ChatMessage(role="tool", content=self.output, tool_call_id=self.call_id)
        raise InvalidMessage(f"input: an item of type {self.type[:40]!r} is not known here")


class _Tool(ForeignPart, ClientTool):
    type: Literal["function"]


class _Conversation(ForeignPart):
    id: str


class ResponseRequest(ForeignPart):
    """What is read of a request; sampling settings are ignored."""

    model: AgentName = AGENTS[0]
    input: str | list[_Item]
    instructions: str | None = None
    stream: bool = False
    tools: list[_Tool] = []
    tool_choice: str | dict[str, Json] | None = None
    previous_response_id: str | None = None
    conversation: str | _Conversation | None = None

    def chat_request(self, *, device: str | None) -> ChatRequest:
        """Return what is asked; see `chat.http.messages.chat_request`."""
        messages = [ChatMessage(role="system", content=self.instructions or "")]
        items = [_Item(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        for item in items:
            if item.type == "reasoning":
                continue
            message = item.message
            before = messages[-1].tool_calls
            if message.tool_calls and before:
                # Calls that were made at once are items of their own here.
                before.extend(message.tool_calls)
            else:
                messages.append(message)
        if messages[-1].role == "tool" and all(message.role != "user" for message in messages):
            raise InvalidMessage(
                "the output of a tool comes without the message and the call that it belongs to",
                hint="Send all items of the turn again.",
            )
        tools = () if self.tool_choice == "none" else self.tools
        return chat_request(
            messages, agent=self.model, tools=tools, conversation=self._conversation, device=device
        )

    @property
    def _conversation(self) -> str | None:
        given = self.conversation.id if isinstance(self.conversation, _Conversation) else self.conversation
        if self.previous_response_id is not None:
            given = self.previous_response_id.removeprefix(_PREFIX).rpartition(".")[0]
        try:
            return None if given is None else _CONVERSATION.validate_python(given)
        except ValidationError:
            named = self.previous_response_id or given
            raise InvalidMessage(f"there is no response or conversation {str(named)[:80]!r}") from None


class ResponseText(TypedDict):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[str]


class ResponseMessage(TypedDict):
    """What the assistant says."""

    type: Literal["message"]
    id: str
    role: Literal["assistant"]
    status: str
    content: list[ResponseText]


class ResponseCall(TypedDict):
    """A call of the client's own tools."""

    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: str


class CachedTokens(TypedDict):
    """Of the input."""

    cached_tokens: int


class ReasoningTokens(TypedDict):
    """Of the output."""

    reasoning_tokens: int


class ResponseUsage(TypedDict):
    """The tokens of a turn; those of the details are not counted here."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class _Head(TypedDict):
    id: str
    object: Literal["response"]
    created_at: int
    status: str
    model: str
    output: list[ResponseMessage | ResponseCall]
    error: None
    incomplete_details: None
    instructions: str | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    tool_choice: str | dict[str, Json]
    tools: list[_Tool]
    previous_response_id: str | None
    temperature: None
    top_p: None


class ResponseAnswer(_Head):
    """The response of a turn that has ended."""

    usage: ResponseUsage


class ResponseStream:
    """A turn in the form of a response."""

    def __init__(self, turn: Turn, request: ResponseRequest) -> None:
        self._turn = turn
        self._request = request
        self._created = int(time.time())
        self._sent = 0

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events."""
        try:
            for kind in ("created", "in_progress"):
                yield self._event(f"response.{kind}", response=self._head("in_progress"))
            opened = False
            async with aclosing(self._turn.events()) as events:
                async for told in events:
                    match told:
                        case TextDelta(text=piece):
                            if not opened:
                                opened = True
                                for chunk in self._open_message():
                                    yield chunk
                            yield self._text("delta", delta=piece, logprobs=[])
                        case TurnFinal():
                            whole = self.whole(told)
                            for chunk in self._close(whole["output"], opened=opened):
                                yield chunk
                            yield self._event("response.completed", response=whole)
                        case TurnError():
                            error = openai_error(503, told.code, told.message, told.hint)
                            failed = {**self._head("failed"), "error": error}
                            yield self._event("response.failed", response=failed)
        finally:
            # A client that leaves closes the stream, perhaps before the turn has begun.
            self._turn.cancel()

    def whole(self, final: TurnFinal) -> ResponseAnswer:
        """Return the response of a turn that has ended."""
        output = [self._message(final.answer)] if final.answer or not final.calls else []
        return {
            **self._head("completed"),
            "output": [*output, *map(_called, final.calls)],
            "usage": {
                "input_tokens": final.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": final.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": final.input_tokens + final.output_tokens,
            },
        }

    def _open_message(self) -> list[bytes]:
        item = {**self._message(""), "status": "in_progress", "content": []}
        return [
            self._event("response.output_item.added", output_index=0, item=item),
            self._part("added", ""),
        ]

    def _close(self, output: list[ResponseMessage | ResponseCall], *, opened: bool) -> list[bytes]:
        """Make the events with which the items of the output are complete."""
        chunks = [] if opened or output[0]["type"] != "message" else self._open_message()
        for index, item in enumerate(output):
            if item["type"] == "message":
                said = item["content"][0]["text"]
                chunks += [self._text("done", text=said, logprobs=[]), self._part("done", said)]
            else:
                place = {"item_id": item["id"], "output_index": index}
                begun = {**item, "arguments": "", "status": "in_progress"}
                written = item["arguments"]
                chunks += [
                    self._event("response.output_item.added", output_index=index, item=begun),
                    self._event("response.function_call_arguments.delta", **place, delta=written),
                    self._event(
                        "response.function_call_arguments.done", **place, name=item["name"], arguments=written
                    ),
                ]
            chunks.append(self._event("response.output_item.done", output_index=index, item=item))
        return chunks

    def _part(self, what: str, text: str) -> bytes:
        return self._event(
            f"response.content_part.{what}",
            item_id=self._item_id,
            output_index=0,
            content_index=0,
            part={"type": "output_text", "text": text, "annotations": []},
        )

    def _text(self, what: str, **more: Json) -> bytes:
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return self._event(f"response.output_text.{what}", **place, **more)

    def _event(self, kind: str, **more: Json) -> bytes:
        self._sent += 1
        told = event({"type": kind, "sequence_number": self._sent - 1, **more})
        return f"event: {kind}\n".encode() + told

    @property
    def _item_id(self) -> str:
        return f"msg_{self._turn.id}"

    def _message(self, text: str) -> ResponseMessage:
        part: ResponseText = {"type": "output_text", "text": text, "annotations": []}
        return {
            "type": "message",
            "id": self._item_id,
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }

    def _head(self, status: str) -> _Head:
        return {
            "id": f"{_PREFIX}{self._turn.conversation_name}.{self._turn.id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": self._request.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": self._request.instructions,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": self._request.tool_choice or "auto",
            "tools": self._request.tools,
            "previous_response_id": self._request.previous_response_id,
            "temperature": None,
            "top_p": None,
        }


def _called(call: ClientCall) -> ResponseCall:
    return {
        "type": "function_call",
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": call.name,
        "arguments": json.dumps(call.arguments),
        "status": "completed",
    }
