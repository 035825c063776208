"""Messages and tools of programs that keep their conversation themselves, as requests to the assistant.

OpenAI's and Ollama's clients send all of it each time: the last message of a person is the question, what is
before it history, and what follows it the steps that the model took with the program's own tools.
"""

import re
from base64 import b64decode
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import from_json

from chat.http import limits
from contracts.chat.messages import (
    MAX_MESSAGE,
    ChatRequest,
    ClientCall,
    ClientResult,
    ClientStep,
    ClientTool,
    Exchange,
)
from contracts.errors import InvalidMessage
from contracts.validation import explain
from contracts.wire import Json, Part

_TEXTS: Final = ("text", "input_text", "output_text")
_ATTACHED: Final = ("image_url", "input_image", "file", "input_file")
_DATA_URL: Final = re.compile(r"data:([a-zA-Z0-9.+/-]{3,100})(?:;charset=[\w-]+)?;base64,([A-Za-z0-9+/=]+)")
_BEGINNINGS: Final = {"iVBOR": "png", "/9j/": "jpeg", "R0lG": "gif", "UklG": "webp"}
"""First characters of pictures in base64, and their type."""

Stops = Annotated[list[str], Field(max_length=16)] | str
"""Where a client wants an answer to end: each text is looked for in each piece of it."""


def without_nulls(given: Any) -> Any:
    """Leave out the members that are null: many clients send those that they do not set."""
    if isinstance(given, dict):
        return {name: value for name, value in given.items() if value is not None}
    return given


class ForeignPart(Part):
    """A part of a request of another API."""

    _without_nulls = model_validator(mode="before")(without_nulls)


class CalledFunction(ForeignPart):
    """A function with its arguments: an object, or its JSON."""

    name: str
    arguments: str | dict[str, Json] = ""


class CalledTool(ForeignPart):
    """A tool call that the client got."""

    id: str = ""
    function: CalledFunction


class ChatMessage(ForeignPart):
    """One message of the conversation, as text or in parts."""

    role: str
    content: str | list[dict[str, Json]] = ""
    images: list[Json] = []
    tool_calls: list[CalledTool] = []
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """The text.

        Raises:
            InvalidMessage: If there is anything but text, pictures and files.
        """
        parts = self.content if isinstance(self.content, list) else [{"type": "text", "text": self.content}]
        if any(part.get("type") not in (*_TEXTS, *_ATTACHED) for part in parts):
            raise InvalidMessage("the assistant takes text, pictures and text files", hint="Leave sound out.")
        return "".join(str(part.get("text") or "") for part in parts if part.get("type") in _TEXTS)

    @property
    def attached(self) -> dict[str, Any]:
        """Pictures and files, as the members of a `ChatRequest`.

        Raises:
            InvalidMessage: If one has another form, or is no text.
        """
        parts = self.content if isinstance(self.content, list) else []
        found = [_attached(part) for part in parts if part.get("type") in _ATTACHED]
        # Ollama's clients send no type.
        found += [_attached({"type": "input_image", "image_url": _as_url(str(each))}) for each in self.images]
        return {
            "files": [each for each in found if "text" in each],
            "images": [each for each in found if "text" not in each],
        }


def _as_url(data: str) -> str:
    kind = next((kind for begin, kind in _BEGINNINGS.items() if data.startswith(begin)), "unknown")
    return f"data:image/{kind};base64,{data}"


def _attached(part: dict[str, Json]) -> dict[str, str]:
    """Read a picture or a file of OpenAI's APIs."""
    inner = part.get("image_url") or part.get("file") or part
    given = inner if isinstance(inner, dict) else {"url": inner}
    sent = _DATA_URL.fullmatch(str(given.get("url") or given.get("file_data") or ""))
    if sent is None:
        raise InvalidMessage(
            "a picture or a file is sent as a data URL in base64",
            hint="data:image/png;base64,… The hub fetches nothing from other addresses.",
        )
    name = str(given.get("filename") or "")[:120]
    if sent[1].startswith("image/"):
        return {"name": name or "picture", "media_type": sent[1], "data": sent[2]}
    try:
        return {"name": name or "file", "text": b64decode(sent[2], validate=True).decode()}
    except ValueError:
        raise InvalidMessage("the file is no text in UTF-8", hint="Send text, or a picture.") from None


class OfferedTool(ForeignPart):
    """A tool of the client's own, which the client itself runs."""

    type: Literal["function"] = "function"
    function: Annotated[ClientTool, BeforeValidator(without_nulls)]


def chat_request(
    messages: Sequence[ChatMessage], *, agent: str, tools: Sequence[ClientTool] = (), **given: Any
) -> ChatRequest:
    """Split messages into question, history, steps and notes.

    Args:
        tools: The client's own tools.
        given: Further fields of the request.

    Raises:
        InvalidMessage: If the last one is neither the user's nor a tool's, or is too long.
    """
    asked = max((at for at, each in enumerate(messages) if each.role == "user"), default=-1)
    question = messages[asked].text if asked >= 0 else ""
    steps = _steps(messages[asked + 1 :]) if question.strip() else None
    if steps is None:
        raise InvalidMessage("the last message must be the user's", hint="Send what the person said last.")
    if len(question) > MAX_MESSAGE:
        raise InvalidMessage("a message may have {most:,} characters", most=MAX_MESSAGE)
    history: list[Exchange] = []
    earlier: str | None = None
    for message in messages[:asked]:
        if message.role == "user":
            earlier = message.text
        elif message.role == "assistant" and earlier and message.text:
            history.append(Exchange(question=earlier, answer=message.text))
            earlier = None
    notes = "\n".join(each.text for each in messages if each.role in ("system", "developer"))
    try:
        return ChatRequest(
            message=question,
            agent=agent,
            history=tuple(history),
            notes=f"The client program asks: {notes[: limits.MAX_NOTES]}" if notes.strip() else "",
            tools=tuple(tools),
            steps=tuple(steps),
            **(given | messages[asked].attached),
        )
    except ValidationError as error:
        raise InvalidMessage(explain(error, what="field")) from None


def _steps(messages: Sequence[ChatMessage]) -> list[ClientStep] | None:
    """Return what the model did with the client's tools; None where that is not how a message goes on."""
    steps: list[ClientStep] = []
    left = deque(messages)
    while left:
        message = left.popleft()
        if message.role in ("system", "developer"):
            continue
        if message.role != "assistant" or not message.tool_calls:
            return None
        if len(message.tool_calls) > limits.MAX_CALLS:
            raise InvalidMessage(f"a message may have {limits.MAX_CALLS} tool calls")
        calls = [_call(called, number) for number, called in enumerate(message.tool_calls)]
        results: dict[str, str] = {}
        while left and left[0].role == "tool":
            result = left.popleft()
            unanswered = next((call.id for call in calls if call.id not in results), "")
            results[result.tool_call_id or unanswered] = result.text
        # Servers take no call without its result.
        answered = [
            ClientResult(**call.model_dump(), result=results.get(call.id, "(no result)")) for call in calls
        ]
        steps.append(ClientStep(text=message.text, calls=tuple(answered)))
    return steps


def _call(called: CalledTool, number: int) -> ClientCall:
    arguments = called.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments or "{}")
        except ValueError:
            arguments = {}
    if not isinstance(arguments, dict):
        arguments = {}
    return ClientCall(id=called.id or f"call_{number}", name=called.function.name, arguments=arguments)


class StopTexts:
    """Ends an answer before the first of the texts at which a client wants it to stop.

    Args:
        texts: Without any, it stops nowhere.

    Attributes:
        found: Whether one of them came.
    """

    def __init__(self, texts: Sequence[str] | str) -> None:
        given = (texts,) if isinstance(texts, str) else texts
        self._texts = [text for text in given if text]
        self._kept = max(map(len, self._texts), default=1) - 1
        self._held = ""
        self.found = False

    def feed(self, piece: str) -> str:
        """Return what of the answer can go out: what may be the beginning of such a text is held back."""
        if self.found:
            return ""
        self._held += piece
        places = [at for text in self._texts if (at := self._held.find(text)) >= 0]
        if places:
            self.found = True
            return self._held[: min(places)]
        ready = len(self._held) - self._kept
        out, self._held = self._held[: max(0, ready)], self._held[max(0, ready) :]
        return out

    def rest(self) -> str:
        """Return the text that was held back, at the end of the answer."""
        return "" if self.found else self._held

    def cut(self, answer: str) -> str:
        return self.feed(answer) + self.rest()
