"""Answers about skills: what a search finds, what a method is, what a call or a program gave."""

from enum import StrEnum
from typing import Literal

from contracts.wire import Json, OrAbsent, Part, Phrased, PhraseText, Strict


class ResultBody(Strict):
    """A skill method with the devices that have it.

    Attributes:
        path: What to call, on the first of the devices.
        devices: Keys of the devices, the current one first.
        more_devices: How many further ones there are.
        flags: Those that are set, for example ``read_only``.
        available: Whether the path can be called right now.
        unavailable: By device, why it cannot be called right now.
    """

    path: str
    signature: str
    summary: str
    devices: list[str]
    more_devices: int
    flags: list[str]
    available: bool
    unavailable: dict[str, str]


class FailingBody(Phrased):
    """A skill of which something fails.

    Attributes:
        device: Key of its device.
    """

    device: str
    skill: str
    reason: PhraseText


class SearchBody(Strict):
    """What a search found.

    Attributes:
        results: Best first.
        more: How many further results there are.
        hint: How to see them; empty if there are none.
        silent: Names of the devices whose skills are left out because they were silent for too long.
        failing: Skills with a fitting name that did not load, or whose background task fails.
    """

    results: list[ResultBody]
    more: int
    hint: str
    silent: list[str]
    failing: list[FailingBody] = []


class Description(Part):
    """What a device, a skill or a method is, in words."""

    path: str
    text: str


class ProviderAnswer(Strict):
    """A device that serves a device-agnostic skill, in the order of calls.

    Attributes:
        preferred: Whether it has its place from the owner; others are called after these.
    """

    id: str
    key: str
    name: str
    online: bool
    preferred: bool


class MethodBody(Strict):
    """A method; see `contracts.devices.registration.Method`."""

    name: str
    path: str
    signature: str
    summary: str
    doc: str
    parameters: dict[str, Json]
    result: dict[str, Json] | None
    flags: list[str]
    digest: str
    sentences: dict[str, list[str]]
    timeout_s: float


class SkillBody(Strict):
    """A skill of a device, with methods that were asked for.

    Attributes:
        device: Its key; ``hub`` for a skill of the hub itself.
        unavailable: Why it cannot be called right now; empty if it can.
        labels: What people call it and its members, by language; see `contracts.devices.registration`.
    """

    device: str
    device_name: str
    area: str | None
    unavailable: str
    skill: str
    doc: str
    device_agnostic: bool
    methods: list[MethodBody]
    labels: dict[str, dict[str, str]]


class SkillLabels(Part):
    """What people call a skill and its members, by language; see `contracts.devices.registration`.

    Attributes:
        device: Its id.
    """

    device: str
    skill: str
    labels: dict[str, dict[str, str]]


class IntegrationAnswer(Part):
    """An integration that comes with the software of a device.

    Attributes:
        skill: The skill that it offers while it is on.
        about: What it is for, in English.
    """

    name: str
    skill: str
    about: str
    on: bool


class InstalledAnswer(Part):
    """A skill of others that is installed on a device.

    Attributes:
        state: What happened to its files since; empty where they are the same.
    """

    name: str
    version: str
    source: str
    state: Literal["", "changed", "missing"]


class InstallationAnswer(Part):
    """What the owner of a device can turn on, update and remove.

    Attributes:
        takes_uploads: Whether the device installs archives that are uploaded.
        uploaded: The name of the uploaded one; empty where there is none.
    """

    integrations: list[IntegrationAnswer]
    installed: list[InstalledAnswer] = []
    takes_uploads: bool = False
    uploaded: str = ""


class VersionAnswer(Part):
    """A version of a skill that can be installed.

    Attributes:
        before: The installed version; null where none is.
        is_same: Whether its files are those that are installed.
        changes: What it declares otherwise than the installed version, a line each.
        overwrites: Whether the installed files were changed, which is lost.
        digest: Of its files and packages.
    """

    name: str
    version: str
    source: str
    before: str | None
    is_same: bool
    changes: list[str]
    overwrites: bool
    digest: str


class MethodsBody(Strict):
    """Skills, and how many more did not fit into the answer."""

    skills: list[SkillBody]
    more: int


class CallResult(Part):
    """What a method returned, in words where they were asked for."""

    result: Json
    text: OrAbsent[str] = None


class RunStatus(StrEnum):
    """How a run ended. After the last four the process, and all variables, are gone."""

    OK = "ok"
    ERROR = "error"
    """The program raised; see the traceback."""
    MEMORY = "memory"
    """It wanted more memory than it may have."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """The interpreter died: os._exit, or a recursion too deep for it."""
    ABUSE = "abuse"
    """It sent what honest code cannot send, or flooded the bridge, and was stopped."""


class RunSummary(Part):
    """What a program gave; the ``notice`` says why the variables of earlier ones are gone."""

    status: RunStatus
    stdout: str
    value: Json
    error: str | None
    truncated: bool
    fresh: bool
    notice: str | None


class SentencesOfSkill(Part):
    """What can be said to a skill of a device; ``area`` is empty where none is known, and of the hub.

    Attributes:
        labels: See `SkillBody`.
    """

    device: str
    area: str
    skill: str
    labels: dict[str, dict[str, str]]
    sentences: list[str]
