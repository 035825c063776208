"""Chat: the request, the events and the record of a turn, over MQTT (``hub/chat/{principal}/…``) and HTTP."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter

from contracts import limits
from contracts.errors import NotFound
from contracts.names import Token
from contracts.text import escaped, shortened
from contracts.wire import Json, Part, Phrased, PhraseText, Timestamp, Wire

AGENTS: Final = ("assistant", "strawberry")
"""Names of the assistant; the second is what other programs know it by. A hub may have further agents."""

HOME_ASSISTANT: Final = "home_assistant"
"""The agent in whose name Home Assistant acts: by its buttons, and by what is written to its text *Chat*."""

MAX_MESSAGE: int = 32_000
"""Characters of one message of a person; more belongs into a file."""

MAX_DID: Final = 50
"""Calls of one turn that are recorded."""

MAX_PUSHED: Final = 100
"""Turns in one push."""

MAX_PROBLEM: Final = 500
"""Characters of what went wrong in a turn."""

AgentName = Annotated[str, Field(max_length=64)]

Mode = Literal["online", "offline", "sentence"]
"""Who answered: the hub's agent, the spoke's own, or a declared sentence without a model."""

TurnState = Literal["not_started", "running", "finished", "cancelled"]
"""``not_started``: cancelled before its request arrived, so it never runs."""

TurnOutcome = Literal["answered", "stopped", "failed", "interrupted"]
"""How a turn ended: ``stopped`` by its person or client, ``interrupted`` by an end of the hub."""

_TICK: Final = timedelta(milliseconds=1)


def _whole_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


Moment = Annotated[Timestamp, AfterValidator(_whole_milliseconds)]
"""A moment to the millisecond, so that it is the same before and after it was stored or sent."""


def unknown_agent(name: str, known: Iterable[str]) -> NotFound:
    """Return the error for the name of no agent; the hint lists those that can be asked."""
    return NotFound(
        "there is no agent {name!r}", name=name[:64], known=", ".join(known), hint="The agents are: {known}."
    )


class ChatFile(Part):
    """A file that came with a question; of a picture its name alone is kept.

    Attributes:
        text: A stranger may have written it.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=120)]
    text: Annotated[str, StringConstraints(max_length=limits.MAX_FILE_TEXT)] = ""


class ChatImage(Part):
    """A picture for a model that takes them.

    Attributes:
        data: In base64.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=120)] = "picture"
    media_type: Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
    data: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9+/]+={0,2}$", min_length=4, max_length=limits.MAX_IMAGE)
    ]


Files = Annotated[tuple[ChatFile, ...], Field(max_length=2 * limits.MAX_FILES)]


class Exchange(Part):
    """A question and its answer.

    Attributes:
        answer: None where there is none, or none yet.
        agent: Who was asked.
        device: Id of the current device, where there is one.
        mode: Who answered; None where the answer broke off or there is none.
        did: Calls that were made, a line each.
        untrusted: Whether text from outside the home came into the turn.
        origin: Who says that it took place: for ``person`` the record itself, for ``device`` the device on
            which it claims to have been, for ``outside`` a client program.
        files: What came with the question, pictures as their names.
    """

    question: str
    answer: str | None = None
    agent: AgentName = ""
    device: Token | None = None
    mode: Mode | None = None
    did: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=200)], ...], Field(max_length=MAX_DID)
    ] = ()
    untrusted: bool = False
    origin: Literal["person", "device", "outside"] = "person"
    files: Files = ()


class TurnRecord(Exchange, Phrased):
    """A turn as it is recorded: at the hub, and on a spoke until the hub has it.

    Attributes:
        turn: Its id, chosen by the client; unique within one user.
        at: When it began.
        ended_at: None while it runs.
        outcome: None while it runs.
        problem: Why there is no answer, or none that is complete; empty where there is one.
        reason: Code of the error that ended it, see `TurnError`; empty where none did, or it is not known.
        replaced_by: Id of the turn that took the place of this one: no model is shown this one any more.
    """

    turn: Token
    conversation: Token
    state: TurnState
    at: Moment
    ended_at: Moment | None = None
    outcome: TurnOutcome | None = None
    problem: Annotated[PhraseText, StringConstraints(max_length=MAX_PROBLEM)] = ""
    reason: Annotated[str, StringConstraints(max_length=20)] = ""
    replaced_by: Token | None = None


class ConversationSummary(Part):
    """A conversation in a list of them.

    Attributes:
        asked: The first question.
        title: What a person called it; None where they did not.
        at: When something was last said in it.
    """

    id: Token
    asked: str
    title: str | None = None
    at: Moment


class PushedTurns(Wire):
    """Spoke → hub, ``POST /api/turns``: turns that the spoke answered without the hub, in their order."""

    kind: Literal["turns"] = "turns"
    turns: Annotated[tuple[TurnRecord, ...], Field(max_length=MAX_PUSHED)]


def _as_hearsay(history: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
    return tuple(exchange.model_copy(update={"origin": "outside"}) for exchange in history)


def _bounded(files: tuple[ChatFile, ...]) -> tuple[ChatFile, ...]:
    if sum(len(each.text) for each in files) > limits.MAX_FILE_TEXT:
        raise ValueError(f"the files of a message may have {limits.MAX_FILE_TEXT:,} characters together")
    return files


class ClientTool(Part):
    """A tool of a client program, which the program runs itself.

    Attributes:
        parameters: JSON Schema of an object.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=8_000)] = ""
    parameters: dict[str, Json] | None = None


class ClientCall(Part):
    """A call of a client's tool."""

    id: str
    name: str
    arguments: dict[str, Json]


class ClientResult(ClientCall):
    """A call of a client's tool, with what the tool gave."""

    result: str


class ClientStep(Part):
    """What a model said and called at once."""

    text: str = ""
    calls: Annotated[tuple[ClientResult, ...], Field(max_length=100)]


class ChatRequest(Wire):
    """A message to the assistant.

    Attributes:
        conversation: None begins a new one.
        turn: Id of the turn; None for a new one. Each id runs once.
        device: Any name of the current device; a device that asks is the current one itself.
        can_confirm: Whether the client shows questions to a person and sends the answers.
        history: Earlier exchanges as the client knows them; used where no record of them exists. Their origin
            is ``outside``, whatever they say.
        notes: Instructions of the client program, shown to the model as material.
        replaces: Id of a turn of this conversation: this one takes its place, and that of all after it.
        tools: The client's own tools. The model gets them in place of all others, and its calls are given to
            the client; nothing is run here.
        steps: Those calls so far with their results, where the client goes on after them.
        files: Text files that come with the message.
        images: Pictures likewise; they are shown to the model of this turn and not kept.
    """

    kind: Literal["chat"] = "chat"
    message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
    agent: AgentName = AGENTS[0]
    conversation: Token | None = None
    turn: Token | None = None
    device: Annotated[str, Field(max_length=64)] | None = None
    can_confirm: bool = False
    history: Annotated[tuple[Exchange, ...], AfterValidator(_as_hearsay)] = ()
    notes: str = ""
    replaces: Token | None = None
    tools: Annotated[tuple[ClientTool, ...], Field(max_length=128)] = ()
    steps: Annotated[tuple[ClientStep, ...], Field(max_length=100)] = ()
    files: Annotated[tuple[ChatFile, ...], Field(max_length=limits.MAX_FILES), AfterValidator(_bounded)] = ()
    images: Annotated[tuple[ChatImage, ...], Field(max_length=limits.MAX_FILES)] = ()

    @property
    def has_files(self) -> bool:
        return bool(self.files or self.images)

    @property
    def kept_files(self) -> tuple[ChatFile, ...]:
        # Pictures are recorded by name only.
        return (*self.files, *(ChatFile(name=each.name) for each in self.images))


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
    """A skill call that the turn made has begun, gone on or ended.

    Attributes:
        declined: Whether it failed because its person was asked, and did not say yes.
    """

    kind: Literal["skill"] = "skill"
    id: str
    path: str
    device: str | None = None
    state: Literal["called", "progress", "done", "failed"]
    detail: Json = None
    declined: bool = False


class CallToConfirm(Part):
    """A call as a person sees it who is asked whether it may be made.

    Attributes:
        summary: First sentence of the method's documentation, as it was approved.
        questions: The call in words by language, with all of its arguments; empty where there are none.
        arguments: The real ones, by name.
        labels: By language, what people call the skill, the method and its arguments.
    """

    device: str
    device_name: str
    method: str
    summary: str = ""
    questions: dict[str, str] = {}
    arguments: dict[str, Json]
    labels: dict[str, dict[str, str]] = {}

    def question(self, language: str) -> str:
        """Return what the call does as a question; empty where that is not known."""
        if question := self.questions.get(language):
            return escaped(question)
        label = self.labels.get(language, {}).get(self.method.rpartition(".")[2])
        if label and language != "en":
            return f"{escaped(label)}?"
        summary = shortened(escaped(self.summary).rstrip("."), limits.MAX_QUESTION_SHOWN)
        return f"{summary}?" if summary else ""


class ConfirmationWanted(CallToConfirm):
    """A person must say yes or no before the call goes out.

    Attributes:
        id: Answer to ``POST /api/turns/{turn}/confirmations/{id}``.
        cut: Whether they were too long: some are missing, or are the beginning of their text.
        lasting: Digest of the method, for ``PUT /api/devices/{name}/allowed``; empty where that cannot be.
        expires_s: Seconds until no answer counts as no.
    """

    kind: Literal["confirmation"] = "confirmation"
    id: str
    turn: str
    cut: bool = False
    lasting: str = ""
    expires_s: float


class Notice(Phrased):
    """Something a person should know: a model failed over, variables are gone, a limit was reached."""

    kind: Literal["notice"] = "notice"
    text: PhraseText


class TurnFinal(Part):
    """The turn is over.

    Attributes:
        answer: The whole text that is shown to a person.
        model: Name of the ``[[models]]`` entry that answered last; None in mode ``sentence``.
        device: Id of the current device of the turn, where there is one.
        failed: Whether a sentence called what failed or was not confirmed; ``answer`` says why.
        calls: What the client is to do with its own tools before the model goes on.
    """

    kind: Literal["final"] = "final"
    answer: str
    mode: Mode
    model: str | None = None
    device: str | None = None
    failed: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    calls: tuple[ClientCall, ...] = ()


class TurnError(Phrased):
    """The turn ended without a complete answer, or never began (``refused``, ``invalid``).

    ``broken`` is an answer that broke off on its way: what came of it is kept, and nothing is done again.

    Attributes:
        answer: What was said until then.
    """

    kind: Literal["error"] = "error"
    code: Literal[
        "no_model", "model_failed", "limit", "cancelled", "refused", "invalid", "broken", "internal"
    ]
    message: PhraseText
    hint: PhraseText = ""
    answer: str = ""


TurnEvent = Annotated[
    TextDelta | ToolCalled | ToolReturned | SkillCalled | ConfirmationWanted | Notice | TurnFinal | TurnError,
    Field(discriminator="kind"),
]
TURN_EVENT: TypeAdapter[
    TextDelta | ToolCalled | ToolReturned | SkillCalled | ConfirmationWanted | Notice | TurnFinal | TurnError
] = TypeAdapter(TurnEvent, config=ConfigDict(defer_build=True))


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
