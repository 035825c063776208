"""What happens in a turn of the agent, as every client sees it, and what the hub tells of itself."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from contracts.wire import Json, Part, Timestamp, Wire

Mode = Literal["online", "offline", "sentence"]
"""Who answered: the hub's agent, the spoke's own, or a declared sentence without a model."""


class TextDelta(Part):
    """A piece of the answer."""

    kind: Literal["text"] = "text"
    text: str


class ToolCalled(Part):
    """The model called a tool."""

    kind: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: Json


class ToolReturned(Part):
    """A tool gave its result back to the model."""

    kind: Literal["tool_result"] = "tool_result"
    id: str
    name: str
    ok: bool
    output: str


class SkillCalled(Part):
    """A skill call that the turn made has begun, gone on or ended."""

    kind: Literal["skill"] = "skill"
    id: str
    path: str
    device: str | None = None
    state: Literal["called", "progress", "done", "failed"]
    detail: Json = None


class ConfirmationWanted(Part):
    """A person must say yes or no before the call goes out.

    Attributes:
        id: Answer to ``POST /api/turns/{turn}/confirmations/{id}``.
        arguments: The real ones, by name.
        expires_s: Seconds until no answer counts as no.
    """

    kind: Literal["confirmation"] = "confirmation"
    id: str
    turn: str
    device: str
    device_name: str
    method: str
    arguments: dict[str, Json]
    expires_s: float


class Notice(Part):
    """Something a person should know: a model failed over, variables are gone, a limit was reached."""

    kind: Literal["notice"] = "notice"
    text: str


class TurnFinal(Part):
    """The turn is over.

    Attributes:
        answer: The whole text that is shown to a person.
        model: Name of the ``[[models]]`` entry that answered last; None in mode ``sentence``.
        device: Id of the current device of the turn, where there is one.
    """

    kind: Literal["final"] = "final"
    answer: str
    mode: Mode
    model: str | None = None
    device: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class TurnError(Part):
    """The turn ended without a complete answer, or never began (``refused``, ``invalid``).

    ``broken`` is an answer that broke off on its way: what came of it is kept, and nothing is done again.

    Attributes:
        answer: What was said until then.
    """

    kind: Literal["error"] = "error"
    code: Literal[
        "no_model", "model_failed", "limit", "cancelled", "refused", "invalid", "broken", "internal"
    ]
    message: str
    hint: str = ""
    answer: str = ""


TurnEvent = Annotated[
    TextDelta | ToolCalled | ToolReturned | SkillCalled | ConfirmationWanted | Notice | TurnFinal | TurnError,
    Field(discriminator="kind"),
]
TURN_EVENT: TypeAdapter[
    TextDelta | ToolCalled | ToolReturned | SkillCalled | ConfirmationWanted | Notice | TurnFinal | TurnError
] = TypeAdapter(TurnEvent)


class UserEvent(Wire):
    """Hub → a user and the admins: ``users/{user}/events/{kind}``."""

    kind: Literal["user_event"] = "user_event"
    at: Timestamp
    subject: str
    data: Json = None


class WatcherState(Wire):
    """Hub → all: what a watcher is doing."""

    kind: Literal["watcher"] = "watcher"
    name: str
    state: Literal["active", "paused", "failed"]
    at: Timestamp
    last_decision: str = ""


class CaptureState(Wire):
    """Hub → all: what a capture is recording."""

    kind: Literal["capture"] = "capture"
    name: str
    state: Literal["active", "stopped", "failed"]
    at: Timestamp
    messages: int = 0
