"""Messages of the WebSocket ``/api/chat/stream``: several conversations at once, turns with their events."""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from contracts.chat.messages import ChatRequest, TurnEvent, TurnState
from contracts.names import Token
from contracts.wire import Counter, Part, Strict


class Ask(ChatRequest):
    """Client → hub: a message to the assistant.

    Attributes:
        ref: Comes back in the answer, so that the client knows which of its messages is answered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    ref: Annotated[str, Field(max_length=64)] = ""


class Resume(Strict):
    """Client → hub: send the events of a turn after the last one that came, and those that follow."""

    kind: Literal["resume"]
    turn: Token
    after: Counter = 0


class Cancel(Strict):
    """Client → hub: stop a turn."""

    kind: Literal["cancel"]
    turn: Token


class Confirm(Strict):
    """Client → hub: what a person answers to a question of a turn."""

    kind: Literal["confirm"]
    turn: Token
    question: Annotated[str, Field(max_length=64)]
    approve: bool


CLIENT_FRAME: Final[TypeAdapter[Ask | Resume | Cancel | Confirm]] = TypeAdapter(
    Annotated[Ask | Resume | Cancel | Confirm, Field(discriminator="kind")],
    config=ConfigDict(defer_build=True),
)


class Begun(Part):
    """Hub → client: a message is being answered, or a turn goes on."""

    kind: Literal["begun"] = "begun"
    ref: str = ""
    turn: str
    conversation: str


class TurnEventFrame(Part):
    """Hub → client: an event of a turn; the last one is ``final`` or ``error``.

    Attributes:
        id: Counts from 1 within the turn.
    """

    kind: Literal["event"] = "event"
    turn: str
    conversation: str
    id: int
    event: TurnEvent


class Missed(Part):
    """Hub → client: so many events of a turn are no longer kept; the last one has the whole answer."""

    kind: Literal["missed"] = "missed"
    turn: str
    events: int


class TurnStateFrame(Part):
    """Hub → client: the state of a turn that was to be stopped."""

    kind: Literal["state"] = "state"
    turn: str
    state: TurnState


class Refused(Part):
    """Hub → client: a message that is not obeyed.

    Attributes:
        problem: Problem details (RFC 9457).
    """

    kind: Literal["refused"] = "refused"
    ref: str = ""
    turn: str | None = None
    problem: dict[str, Any]
