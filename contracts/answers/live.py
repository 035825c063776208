"""Answers of the live home: values of topics, events, programs, memory, notifications."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import ConfigDict, Field

from contracts.wire import Json, OrAbsent, Part, Phrased, PhraseText, Strict, Timestamp

LinkName = Literal["bus", "home", "home_assistant"]
"""The home's own bus, the broker of the house that is used beside it, or the states of Home Assistant."""


class ShownGap(Part):
    """A gap as people and models are shown it."""

    since: Timestamp
    until: Timestamp | None


class ShownSample(Part):
    """A sample as people and models are shown it."""

    topic: str
    link: LinkName
    at: Timestamp
    retained: bool
    value: Json
    recorded: OrAbsent[bool] = None


class ShownSamples(Part):
    """Samples, and the times in which nothing was heard."""

    samples: list[ShownSample]
    gaps: list[ShownGap]


class NewGap(Part):
    """A time in which nothing was heard, in a stream of values."""

    gap: ShownGap


class LostValues(Part):
    """How many values a stream left out, because its client read too slowly."""

    lost: int


EventKind = Literal["watcher", "capture", "presence", "notification", "timer", "node"]

Data = TypeVar("Data")


class Event(Part, Generic[Data]):
    """An event as ``/api/events`` sends it."""

    id: int
    at: Timestamp
    user: str
    kind: EventKind
    subject: str
    data: Data


RecordingState = Literal["active", "stopped", "full", "failed"]


class CaptureSummary(Strict):
    """What came of a capture."""

    id: str
    owner: str
    state: RecordingState
    file: str
    messages: int
    bytes: int
    gaps: int
    files: int
    problem: str = ""
    created_at: Timestamp


class NodeSummary(Phrased):
    """A node as clients see it, with whatever else its device says of it."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    name: str
    state: str
    reason: PhraseText
    health: str
    device: str
    device_name: str
    since: OrAbsent[str] = None
    restarts: OrAbsent[int] = None
    buildable: OrAbsent[bool] = None
    protected: OrAbsent[bool] = None


class DeviceProblem(Phrased):
    """Why the nodes of a device are missing."""

    device: str
    problem: PhraseText


class NodeList(Part):
    """The nodes of all devices, and why those of some are missing."""

    nodes: list[NodeSummary]
    problems: list[DeviceProblem]


class NodeLogs(Part):
    """The last lines that a node wrote, as its device gives them."""

    lines: Json


class NodeResult(Part):
    """What a device answers to a change of a node."""

    result: Json


class NodeProgress(Part):
    """What a device tells during a call on a node: a line that it wrote."""

    progress: Json


class LostLines(Part):
    """How many lines came too fast to be sent."""

    lost: int


class NodeError(Part):
    """Why a call on a node gave no result."""

    message: str
    hint: str


class NodeFailed(Part):
    """The end of a call on a node that gave no result."""

    error: NodeError


NodeEvent = NodeProgress | LostLines | NodeResult | NodeFailed


class ShownEntry(Part):
    """An entry as people and programs read it."""

    model_config = ConfigDict(populate_by_name=True)

    id: str
    category: str
    text: str
    private: bool
    at: Timestamp | None
    by: str | None = Field(alias="from")
    device: str | None
    conversation: str | None
    untrusted: bool


class SentTest(Part):
    """Whether a notifier sent the test, or why not."""

    name: str
    sent: bool
    problem: str


class PushDevice(Part):
    """A phone or browser that gets notifications."""

    id: str
    name: str
    created_at: Timestamp


class PushDevices(Part):
    """The phones and browsers of a person; ``key`` is the ``applicationServerKey`` of another one."""

    key: str
    devices: list[PushDevice]


@dataclass(frozen=True)
class ShownThing:
    """Something in the home.

    Attributes:
        kind: ``area``, ``device``, ``node``, ``skill``, ``state`` of a skill, or the kind of an entity in the
            words of Home Assistant: ``light``, ``sensor``.
        id: Unique among the things of its kind and origin.
        device: Key of the device, or the name that another program gives its device.
        state: None where it is not known.
        age_s: Since it is so; None where that is not known.
        topic: Where the state is published, with its ``link`` and the ``field`` of the payload; None for the
            whole payload.
        sets: Fields that can be set on the topic below it, of a device of Zigbee2MQTT.
        on_off: Of a binary sensor, the values that mean on and off, as text; a contact that is closed is off.
    """

    kind: str
    id: str
    name: str
    area: str | None = None
    device: str | None = None
    state: Json = None
    unit: str | None = None
    age_s: float | None = None
    device_class: str | None = None
    topic: str | None = None
    link: LinkName | None = None
    field: str | None = None
    sets: tuple[str, ...] = ()
    on_off: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShownWorld:
    """Things that were asked for.

    Attributes:
        more: How many further ones fit.
        kinds: How many of each kind fit, those left out included.
        areas: Likewise by area.
        left_out: Entities of the home broker that are not known, because there are too many.
    """

    things: Sequence[ShownThing]
    more: int
    kinds: dict[str, int]
    areas: dict[str, int]
    left_out: int
