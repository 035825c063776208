"""Answers about devices, their enrolment, and logins of programs on the bus."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field

from contracts.answers.skills import FailingBody
from contracts.claims import DeviceScope
from contracts.wire import Part, Phrased, PhraseText, Strict, Timestamp, shown_digest


class Load(NamedTuple):
    """What a device said of its load.

    Attributes:
        at: Unix seconds.
        load: Load average divided by the number of processors.
        memory_mb: Resident memory of the spoke in MiB.
    """

    at: float
    load: float | None
    memory_mb: float | None


ReviewKind = Literal["flags", "sentence", "provider", "documentation", "uses"]


@dataclass(frozen=True)
class Item:
    """One thing that waits for approval.

    Attributes:
        method: Empty where it concerns the whole skill.
        before: What is approved, and holds until this is.
        after: What the device declares.
        denied: Whether the owner has seen it and does not want it.
    """

    kind: ReviewKind
    skill: str
    method: str
    before: str
    after: str
    denied: bool = False

    @property
    def digest(self) -> str:
        # Exactly what would be approved.
        return shown_digest([self.kind, self.skill, self.method, self.after])


class RegistryProblem(Phrased):
    """Something that a device sent and the hub refused."""

    at: Timestamp
    message: PhraseText


class DeviceAnswer(Strict):
    """A device as people see it.

    Attributes:
        shared: Whether it is for all people of the home; otherwise only its owner sees and calls it.
        scopes: What its token opens: to chat as its owner, to call skills of other devices directly.
        confirm: Whether a person at it confirms calls; null if the owner has not decided, which is no.
        awaited: Skills that the device says it has, and that have not come or were refused.
        failing: Skills of it that cannot be used now or fail in part, with the reason.
        trusted: Whether what it declares needs no approval.
        to_review: How much waits for approval.
        problems: What of it was refused, for its owner and admins.
        version: Of its software, as long as it was heard since the hub started; empty before.
        mode: ``hub`` while its agent is the hub's, ``alone`` otherwise; null before its first heartbeat.
        load: One-minute load average divided by the number of processors.
        memory_mb: Resident memory of the spoke in MiB.
        uptime_s: Since the spoke started.
        loads: Where it was asked for, the last hour: Unix seconds, load, memory.
    """

    id: str
    key: str
    name: str
    aliases: tuple[str, ...]
    area: str | None
    floor: str | None
    owner: str
    shared: bool
    scopes: tuple[DeviceScope, ...]
    state: str
    confirm: bool | None
    last_seen: Timestamp | None
    skills: list[str]
    awaited: list[str]
    failing: list[FailingBody]
    trusted: bool
    to_review: int
    problems: list[RegistryProblem]
    version: str
    mode: str | None
    load: float | None
    memory_mb: float | None
    uptime_s: float | None
    loads: list[Load] | None


class ReviewAnswer(Strict):
    """What of a device waits for approval.

    Attributes:
        digest: Of all items; to be sent with the decision.
    """

    id: str
    key: str
    name: str
    digest: str
    items: list[Item]


class InvitationAnswer(Strict):
    """An added device, with the token and the command that let it join.

    Attributes:
        reachable: Whether the address in the command is one for other machines, too.
    """

    id: str
    key: str
    token: str
    expires_at: Timestamp
    hub_key: str
    command: str
    reachable: bool


class RemovedAnswer(Part):
    """A device that is no more."""

    id: str
    name: str
    state: Literal["removed"]


class Waiting(Strict):
    """A device that waits for approval, as an admin sees it.

    Attributes:
        fingerprint: Stands on its screen as well.
        source: Address that it asked from.
    """

    code: str
    name: str
    fingerprint: str
    source: str
    expires_at: Timestamp


class ApprovedAnswer(Strict):
    """A device that was enrolled."""

    id: str
    key: str
    name: str
    fingerprint: str


class BusClient(Part):
    """A login that may read, and chat if that was granted.

    Attributes:
        username: On the bus.
        home_assistant: Whether it is Home Assistant's, with rights of its own instead.
    """

    name: str
    username: str
    owner: str
    chat: bool
    home_assistant: bool
    created_at: Timestamp
    expires_at: Timestamp


class LoginAnswer(BusClient):
    """A new login. The password is shown once and stored nowhere."""

    password: str = Field(repr=False)
    brokers: tuple[str, ...]
    prefix: str
    ca: str | None


@dataclass(frozen=True)
class Purged:
    """What became of retained topics that were to be emptied.

    Attributes:
        emptied: How many there were that are empty now.
        left: Those that could not be emptied.
        connected: Ids of devices that are still there, and publish again.
    """

    emptied: int
    left: tuple[str, ...] = ()
    connected: tuple[str, ...] = ()
