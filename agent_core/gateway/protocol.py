"""The protocol of gateways: messages in, events out, whichever model answers."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from agent_core.models.entries import Models, ToolMode
from agent_core.provenance import EMPTY, Prompt
from contracts.chat.messages import ChatImage
from contracts.wire import Json


@dataclass(frozen=True)
class ToolSpec:
    """A tool that is offered to a model.

    Attributes:
        parameters: JSON Schema of an object.
    """

    name: str
    description: Prompt
    parameters: dict[str, Json]


@dataclass(frozen=True)
class ToolCall:
    """A tool call of a model.

    Attributes:
        id: Unique within the answer.
        raw: The arguments as the model wrote them.
        arguments: The same parsed, or None where they are no JSON object.
    """

    id: str
    name: str
    raw: str
    arguments: dict[str, Json] | None


@dataclass(frozen=True)
class UserMessage:
    """What a person said, or material for the model that is marked with its origin.

    Attributes:
        images: Pictures that came with it.
    """

    text: Prompt
    images: tuple[ChatImage, ...] = ()


@dataclass(frozen=True)
class AssistantMessage:
    """What the model said: text, tool calls, or both."""

    text: Prompt = EMPTY
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class ToolMessage:
    """The result of one tool call; every call of an ``AssistantMessage`` needs one right after it."""

    id: str
    name: str
    text: Prompt


Message = UserMessage | AssistantMessage | ToolMessage


def text_of(message: Message) -> str:
    """Return all of a message that a model reads, to be measured."""
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return "".join((message.text, *(call.name + call.raw for call in calls)))


@dataclass(frozen=True)
class Offer:
    """A system prompt and the tools that go with it.

    Attributes:
        system: The system prompt: text of ours only.
        tools: Empty for an answer without tools: then none are sent.
    """

    system: str
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True)
class ModelRequest:
    """One question to a model.

    Attributes:
        system: The system prompt: text of ours only.
        tools: Empty for an answer without tools: then none are sent.
        native: What entries with ``tools = "native"`` get in place of the two; None: the same.
        models: Names of the entries to ask, in this order; empty for all, in their own.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    native: Offer | None = None
    models: tuple[str, ...] = ()

    @property
    def has_images(self) -> bool:
        return any(isinstance(each, UserMessage) and each.images for each in self.messages)

    @property
    def all_tools(self) -> tuple[ToolSpec, ...]:
        """The tools of both modes: the mode is known only when a model has answered."""
        native = self.native.tools if self.native is not None else ()
        return (*self.tools, *(tool for tool in native if tool not in self.tools))

    def for_mode(self, mode: ToolMode) -> "ModelRequest":
        """Return the question as models of a tool mode are asked it."""
        if mode == "code" or self.native is None:
            return replace(self, native=None)
        return ModelRequest(self.native.system, self.messages, self.native.tools, models=self.models)

    def without_tools(self) -> "ModelRequest":
        """Return the same question with no tools to call."""
        native = replace(self.native, tools=()) if self.native is not None else None
        return replace(self, tools=(), native=native)


@dataclass(frozen=True)
class TextPart:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True)
class FellBack:
    """Models that were asked earlier did not answer; comes before the answer's first piece.

    Attributes:
        model: The entry that answers.
        reasons: One line for each that did not: ``house did not answer within 15 s``.
    """

    model: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Remark:
    """Something about this question that the person should know; comes before the answer's first piece."""

    text: str


StopReason = Literal["end", "tools", "length", "filter", "unknown"]


@dataclass(frozen=True)
class Completed:
    """The answer is complete; always the last event.

    Attributes:
        model: Name of the entry that answered.
        input_tokens: As the model counts them; 0 where it does not say.
        cost: What the provider says that the answer cost, in its currency; None where it does not say.
        tool_mode: Which of the two offers of a request the model got.
    """

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    stop: StopReason = "end"
    tool_mode: ToolMode = "code"


GatewayEvent = TextPart | ToolCall | FellBack | Remark | Completed


class Gateway(Protocol):
    """Models in their order behind one question."""

    @property
    def models(self) -> Models:
        """The models that can be asked, in order, and why others cannot."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[GatewayEvent, None]:
        """Ask; yields the answer as it comes.

        Text and tool calls come in the order in which the model made them, tool calls when they are
        complete. Nothing is asked again once a piece of the answer has been given out.

        Raises:
            NoModel: If there is no model to ask.
            GatewayError: If none answered, or an answer broke off; the message names each model and
                what it said, and never holds a key.
        """
