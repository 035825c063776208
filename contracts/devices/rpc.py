"""Calls and what comes back: ``devices/{device}/calls/…``, ``…/control/…`` and ``…/results/…``."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from contracts.errors import ErrorCode
from contracts.names import CallId, InstanceName
from contracts.wire import Counter, Json, Part, Phrased, PhraseText, Timestamp, Wire

MAX_TTL_MS: int = 15 * 60 * 1000
"""The longest a call may live; beyond it a job belongs on the device itself."""

Epoch = Annotated[int, Field(ge=1, lt=2**53)]
"""One start of a spoke; below 2**53 so that every JSON reader keeps it exact."""


class Actor(Part):
    """On whose behalf a call is made; rights follow from it, never from the model's words.

    Attributes:
        user: Id of the user.
        timer: What the timer is called that makes the call.
        read_only: Whether this actor may call ``read_only`` methods only (guests, such agents).
    """

    user: str
    device: str | None = None
    agent: str | None = None
    watcher: str | None = None
    timer: str | None = None
    skill: str | None = None
    turn: str | None = None
    read_only: bool = False


class Call(Wire):
    """Hub → spoke: run a method at most once.

    Attributes:
        issued_at: When the hub issued it; the spoke's floor for forgotten ids works on it.
        ttl_ms: How long the call lives, in milliseconds after ``issued_at``: it begins no later, and what
            still runs then is stopped.
        accept: Whether to reserve and wait for ``start`` instead of running at once.
        request: Id of the HTTP request that led to it, for logs; None where there was none.
        confirmed: Whether a person confirmed exactly this call.
    """

    kind: Literal["call"] = "call"
    id: CallId
    instance: InstanceName
    epoch: Epoch
    issued_at: Timestamp
    ttl_ms: Annotated[int, Field(gt=0, le=MAX_TTL_MS)]
    accept: bool = False
    actor: Actor
    request: Annotated[str, Field(max_length=64)] | None = None
    confirmed: bool = False
    args: list[Json] = []
    kwargs: dict[str, Json] = {}


class Control(Wire):
    """Hub → spoke: start a reserved call, or cancel one; or ask the hub again what the device is called.

    Attributes:
        id: Of the call; of ``renamed``, where there is none, of the message.
    """

    kind: Literal["start", "cancel", "renamed"]
    id: CallId
    instance: InstanceName
    epoch: Epoch


class Accepted(Wire):
    """Spoke → hub: reserved, not run."""

    kind: Literal["accepted"] = "accepted"
    id: CallId
    epoch: Epoch


class Progress(Wire):
    """Spoke → hub: still running; ``value`` is what a generator yielded, if it is one."""

    kind: Literal["progress"] = "progress"
    id: CallId
    epoch: Epoch
    seq: Annotated[int, Field(ge=0)]
    value: Json = None


class Result(Wire):
    """Spoke → hub: the method returned.

    Attributes:
        ran_ms: How long it ran on the device; the rest of a call's time is the way there and back.
    """

    kind: Literal["result"] = "result"
    id: CallId
    epoch: Epoch
    value: Json = None
    ran_ms: Counter | None = None


class Failure(Phrased, Wire):
    """Spoke → hub: there is no result; never a traceback.

    Attributes:
        exception: Class of what the skill raised, where it did.
        ran_ms: As in `Result`; None where the method did not begin.
    """

    kind: Literal["failure"] = "failure"
    id: CallId
    epoch: Epoch
    code: ErrorCode
    message: Annotated[PhraseText, Field(max_length=4_000)]
    hint: Annotated[PhraseText, Field(max_length=1_000)] = ""
    exception: Annotated[str, Field(max_length=200)] = ""
    ran_ms: Counter | None = None


Reply = Accepted | Progress | Result | Failure
REPLY: TypeAdapter[Reply] = TypeAdapter(
    Annotated[Reply, Field(discriminator="kind")], config=ConfigDict(defer_build=True)
)
