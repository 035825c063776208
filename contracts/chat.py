"""Chat: the request, the record of a turn, and what goes over MQTT (``hub/chat/{principal}/…``) and HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, AwareDatetime, Field, PlainSerializer, StringConstraints

from contracts.errors import NotFound
from contracts.events import Mode, TurnEvent
from contracts.names import Token
from contracts.wire import Part, Wire, rfc3339

AGENTS: Final = ("assistant", "strawberry")
"""Names of the one agent that there is; the second is what other programs know it by."""

MAX_MESSAGE: int = 32_000
"""Characters of one message of a person; more belongs into a file."""

MAX_DID: Final = 50
"""Calls of one turn that are recorded."""

MAX_PUSHED: Final = 100
"""Turns in one push."""

TurnState = Literal["not_started", "running", "finished", "cancelled"]
"""``not_started``: cancelled before its request arrived, so it never runs."""

_TICK: Final = timedelta(milliseconds=1)


def _whole_milliseconds(moment: datetime) -> datetime:
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


Moment = Annotated[
    AwareDatetime,
    AfterValidator(_whole_milliseconds),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
]
"""A moment to the millisecond, so that it is the same before and after it was stored or sent."""


def check_agent(name: str) -> None:
    """Check that an agent has this name.

    Raises:
        NotFound: If none has; the hint lists those that can be asked.
    """
    if name not in AGENTS:
        raise NotFound(f"there is no agent {name!r}", hint=f"The agents are: {', '.join(AGENTS)}.")


class Exchange(Part):
    """A question and its answer.

    Attributes:
        answer: None where there is none, or none yet.
        agent: Who was asked.
        device: Id of the current device, where there is one.
        mode: Who answered; None where the answer broke off or there is none.
        did: Calls that were made, a line each.
        untrusted: Whether text from outside the home came into the turn.
    """

    question: str
    answer: str | None = None
    agent: Annotated[str, Field(max_length=64)] = ""
    device: Token | None = None
    mode: Mode | None = None
    did: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=200)], ...], Field(max_length=MAX_DID)
    ] = ()
    untrusted: bool = False


class TurnRecord(Exchange):
    """A turn as it is recorded: at the hub, and on a spoke until the hub has it.

    Attributes:
        turn: Its id, chosen by the client; unique within one user.
        at: When it began.
        ended_at: None while it runs.
    """

    turn: Token
    conversation: Token
    state: TurnState
    at: Moment
    ended_at: Moment | None = None


class ConversationSummary(Part):
    """A conversation in a list of them.

    Attributes:
        asked: The first question.
        at: When something was last said in it.
    """

    id: Token
    asked: str
    at: Moment


class PushedTurns(Wire):
    """Spoke → hub, ``POST /api/turns``: turns that the spoke answered without the hub, in their order."""

    kind: Literal["turns"] = "turns"
    turns: Annotated[tuple[TurnRecord, ...], Field(max_length=MAX_PUSHED)]


class ChatRequest(Wire):
    """A message to the assistant.

    Attributes:
        conversation: None begins a new one.
        turn: Id of the turn; None for a new one. Each id runs once.
        device: Any name of the current device; a device that asks is the current one itself.
        can_confirm: Whether the client shows questions to a person and sends the answers.
        history: Earlier exchanges as the client knows them; used where no record of them exists.
        notes: Instructions of the client program, shown to the model as material.
    """

    kind: Literal["chat"] = "chat"
    message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
    agent: str = AGENTS[0]
    conversation: Token | None = None
    turn: Token | None = None
    device: Annotated[str, Field(max_length=64)] | None = None
    can_confirm: bool = False
    history: tuple[Exchange, ...] = ()
    notes: str = ""


class ChatReply(Wire):
    """One event of the turn; the last one is ``final`` or ``error``."""

    kind: Literal["reply"] = "reply"
    seq: Annotated[int, Field(ge=0)]
    event: TurnEvent


def moment_after(now: datetime, latest: datetime | None) -> datetime:
    """Return when a new turn of a conversation began: now, and after every turn known of it.

    So an answer follows what it answers, even where a clock is wrong or was set back.

    Args:
        latest: When the latest known turn began; None in a new conversation.
    """
    return now if latest is None else max(now, latest + _TICK)
