"""Messages between a device and the process of a skill: JSON behind its length, over a pipe.

The process runs code that the device does not trust: what it says is read by these models, and a frame that
is longer or does not fit ends it.
"""

import asyncio
from functools import cache
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from agent_core import limits
from agent_core.skills.results import Publication
from agent_core.skills.skill import TriggerKind
from contracts.devices.registration import Registration, Unavailable
from contracts.errors import CallError, ErrorCode
from contracts.names import SkillName
from contracts.text import storable
from contracts.wire import Json, Part

HEAD: Final = 4
"""Bytes of the length, the highest first."""

LONGEST: Final = 2_000
"""Characters of a message of a failure."""

CallId = Annotated[int, Field(ge=0)]


class Start(Part):
    """What to load; the first message to the process.

    Attributes:
        entry: File or folder of the skills.
        data: Folder in which each skill has one of its own.
        variables: Those of ``.env`` that are settings of these skills.
    """

    kind: Literal["start"] = "start"
    entry: str
    data: str
    variables: dict[str, str] = {}
    runs_triggers: bool = True
    zone: str = "UTC"


class Invoke(Part):
    """A call. Whether it may be made, the device has decided."""

    kind: Literal["invoke"] = "invoke"
    id: CallId
    skill: str
    method: str
    kwargs: dict[str, Json]


class Cancel(Part):
    """The caller gave up."""

    kind: Literal["cancel"] = "cancel"
    id: CallId


class Taken(Part):
    """The progress of a call was passed on: the next may follow."""

    kind: Literal["taken"] = "taken"
    id: CallId


Source = tuple[TriggerKind, Annotated[str, Field(max_length=200)]]
"""What a method waits for: an event by its name, or a value as ``Skill.name``."""


class Heard(Part):
    """An event or a value that a skill of the process waits for."""

    kind: Literal["heard"] = "heard"
    source: Source
    value: Json


class Offer(Part):
    """A skill that was loaded."""

    registration: Registration
    concurrency: Annotated[int, Field(ge=1)]


Failed = Annotated[dict[SkillName, Unavailable], Field(max_length=limits.ISOLATED_SKILLS)]
"""By skill that cannot be called now, why."""


class Loaded(Part):
    """The skills of the entry, before they are set up.

    Attributes:
        hears: What they wait for.
    """

    kind: Literal["loaded"] = "loaded"
    skills: Annotated[list[Offer], Field(max_length=limits.ISOLATED_SKILLS)]
    hears: Annotated[list[Source], Field(max_length=limits.ISOLATED_SKILLS * limits.MOST_TRIGGERS)] = []
    unavailable: Failed = {}


class SetUp(Part):
    """The skills can be called, except those that are unavailable."""

    kind: Literal["set_up"] = "set_up"
    unavailable: Failed = {}


class Progress(Part):
    """What a generator yielded; the next comes when this one was taken."""

    kind: Literal["progress"] = "progress"
    id: CallId
    value: Json


class Result(Part):
    """What a call returned."""

    kind: Literal["result"] = "result"
    id: CallId
    value: Json


class Failure(Part):
    """What a call failed with."""

    kind: Literal["failure"] = "failure"
    id: CallId
    code: ErrorCode
    message: Annotated[str, Field(max_length=LONGEST)]
    hint: Annotated[str, Field(max_length=LONGEST)] = ""
    exception: Annotated[str, Field(max_length=200)] = ""


def failure_of(number: int, error: CallError) -> Failure:
    """Return an error as a message."""
    return Failure(
        id=number,
        code=error.code,
        message=error.message[:LONGEST],
        hint=error.hint[:LONGEST],
        exception=error.exception[:200],
    )


def error_of(failure: Failure) -> CallError:
    """Return the error of a message."""
    text, hint, kind = map(storable, (failure.message, failure.hint, failure.exception))
    return CallError(failure.code, "{text}", text=text, hint=hint, exception=kind)


class HomeCall(Part):
    """A call of another skill of the home; `Result` or `Failure` answers it.

    Attributes:
        skill: Who calls.
        within: The call in which it is made; None in what runs by itself.
        path: Device, skill and method.
    """

    kind: Literal["home_call"] = "home_call"
    id: CallId
    skill: SkillName
    within: CallId | None
    path: Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=3, max_length=3)]
    args: list[Json]
    kwargs: dict[str, Json]


class Stopped(Part):
    """A call that was cancelled has stopped."""

    kind: Literal["stopped"] = "stopped"
    id: CallId


class Publish(Part):
    """What a skill publishes."""

    kind: Literal["publish"] = "publish"
    publication: Publication


ToChild = Start | Invoke | Cancel | Taken | Heard | Result | Failure
FromChild = Loaded | SetUp | Progress | Result | Failure | Stopped | Publish | HomeCall
OfCall = Progress | Result | Failure | Stopped


@cache
def to_child() -> TypeAdapter[ToChild]:
    return TypeAdapter(Annotated[ToChild, Field(discriminator="kind")])


@cache
def from_child() -> TypeAdapter[FromChild]:
    return TypeAdapter(Annotated[FromChild, Field(discriminator="kind")])


def encoded(message: ToChild | FromChild) -> bytes:
    body = message.model_dump_json().encode()
    return len(body).to_bytes(HEAD, "big") + body


async def next_frame(stream: asyncio.StreamReader) -> bytes:
    """Return the next message as it came.

    Raises:
        ValueError: It is too long.
        asyncio.IncompleteReadError: There is none any more.
    """
    length = int.from_bytes(await stream.readexactly(HEAD), "big")
    if length > limits.ISOLATED_FRAME_BYTES:
        raise ValueError(f"a message of {length:,} bytes")
    return await stream.readexactly(length)
