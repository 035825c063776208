"""What a scripted model answers, and what it was asked."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedCall(_Reply):
    """A tool call.

    Attributes:
        arguments: An object, or the raw text to send where it shall be malformed.
        id: Made from the number of the request where it is empty.
    """

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class Says(_Reply):
    """An answer of text, tool calls or both; with neither, an empty one.

    Attributes:
        text: Sent in pieces of a few characters.
        reasoning: Sent in the field ``reasoning_content`` before the text.
        gap_s: Seconds between two pieces of a stream.
    """

    kind: Literal["says"] = "says"
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    reasoning: str = ""
    gap_s: float = 0.0
    input_tokens: int = 11
    output_tokens: int = 7
    finish: str = ""


class Fails(_Reply):
    """An error of the server."""

    kind: Literal["fails"] = "fails"
    status: int = 500
    message: str = "the scripted server fails"


class Hangs(_Reply):
    """No byte, or none after this text of a stream, until the client leaves or the server closes."""

    kind: Literal["hangs"] = "hangs"
    text: str = ""


class Breaks(_Reply):
    """A stream that begins with this text and then loses its connection."""

    kind: Literal["breaks"] = "breaks"
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()


class Garbles(_Reply):
    """Status 200 with a body that is no answer."""

    kind: Literal["garbles"] = "garbles"
    body: str = "<html>not JSON</html>"


Reply = Says | Fails | Hangs | Breaks | Garbles
REPLY: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])


def calls(name: str, **arguments: Any) -> Says:
    """Return the reply that calls one tool."""
    return Says(calls=(ScriptedCall(name=name, arguments=arguments),))


@dataclass(frozen=True)
class SeenRequest:
    """One request as it arrived.

    Attributes:
        number: Counts from 0.
        headers: With lower-case names.
        abandoned: Set when the client left before the reply was complete.
    """

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    abandoned: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, as sent."""
        messages: list[dict[str, Any]] = self.body.get("messages", [])
        return messages

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools") or []]

    @property
    def results(self) -> list[str]:
        """The texts of all tool results in the conversation, in order."""
        return [text_of(message) for message in self.messages if message["role"] == "tool"]

    def said(self, role: str) -> list[str]:
        """The texts of all messages of a role, in order."""
        return [text_of(message) for message in self.messages if message["role"] == role]


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message, whether it came as a string or as parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


Script = Sequence[Reply] | Callable[[SeenRequest], Reply]
