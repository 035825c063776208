"""Who is there, and what devices and the hub announce: statuses, heartbeats, states and events."""

from typing import Annotated, Literal

from pydantic import Field

from contracts.devices.rpc import Epoch
from contracts.names import SkillName
from contracts.wire import Counter, Json, Part, Timestamp, Wire

HEARTBEAT_S: float = 15.0
"""Seconds between two heartbeats; with MQTT's keepalive the same, neither outlives the other."""

CONFIRM_ONLINE_S: float = 10.0
"""A retained ``online`` that is not confirmed live within this many seconds counts as offline."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


VoiceState = Literal["off", "listening", "hearing", "thinking", "talking", "muted", "broken"]
"""``listening`` waits for the wake word, ``hearing`` for the end of speech; ``muted``: the microphone is
closed; ``broken``: something is missing."""


class DeviceStatus(Wire):
    """Spoke → all, retained and signed; the offline one is also the Last Will.

    Attributes:
        epoch: One start of the spoke, see ``protocol.md``.
        connection: Counts the connections within the epoch.
        seq: Counts the statuses within the connection.
        hub_session: The session of the hub that this status answers, None before one was seen.
        skills: SHA-256 of the registration payload of every skill there is (``online`` only).
        version: Of the spoke's software.
    """

    kind: Literal["status"] = "status"
    state: Literal["online", "offline"]
    epoch: Epoch
    connection: Annotated[Counter, Field(ge=1)]
    seq: Counter
    hub_session: str | None = None
    skills: dict[SkillName, Sha256] = {}
    version: str = ""

    @property
    def order(self) -> tuple[int, int, int]:
        # The later of two statuses has the greater one.
        return (self.epoch, self.connection, self.seq)


class Heartbeat(Wire):
    """Spoke → hub, retained, not signed: a hint only.

    Attributes:
        uptime_s: Seconds since the spoke started.
        mode: ``hub`` while its agent is the hub's, ``alone`` otherwise.
        load: Share of the processors' time in use since the heartbeat before, 0 to 1.
        memory_mb: Resident memory of the spoke in MiB.
        battery: Percent of the machine's battery; None where it has none.
        voice: What its voice does; None for a spoke that has none.
    """

    kind: Literal["heartbeat"] = "heartbeat"
    seq: Counter
    uptime_s: Annotated[float, Field(ge=0)]
    mode: Literal["hub", "alone"] = "hub"
    load: float | None = None
    memory_mb: float | None = None
    battery: Annotated[int, Field(ge=0, le=100)] | None = None
    voice: VoiceState | None = None


class SpokeSummary(Wire):
    """Spoke → its owner, ``GET /api/spoke`` on this machine.

    Attributes:
        name: Display name; the id where the hub has not sent one yet.
        connected: Whether the spoke is on the bus.
        hub_online: Whether it is, and the hub is there, too.
        hub_url: Address of the hub as the spoke knows it.
    """

    kind: Literal["spoke"] = "spoke"
    device: str
    name: str
    version: str
    connected: bool
    hub_online: bool
    hub_url: str


class VoiceSummary(Part):
    """Spoke → its owner, ``GET /api/voice`` on this machine: what its voice does, and with what.

    Attributes:
        state: As in its heartbeat; ``off`` where there is none.
        reason: Why it is broken, or does not hear.
    """

    state: str = "off"
    reason: str = ""
    muted: bool = False
    wake_words: tuple[str, ...] = ()
    microphone: str = ""
    loudspeaker: str = ""


class State(Wire):
    """A value that a skill publishes, with Home Assistant's names for units and classes."""

    kind: Literal["state"] = "state"
    value: Json
    unit: str | None = None
    device_class: str | None = None
    at: Timestamp


class Emitted(Wire):
    """Something that a skill reports as having happened."""

    kind: Literal["event"] = "event"
    skill: SkillName
    data: Json = None
    at: Timestamp


class HubStatus(Wire):
    """Hub → all, retained, signed, and Last Will.

    Attributes:
        session: New at each connection of the hub to the broker: spokes then publish again.
        words: Digest of what can be said in the home; where it changes, ``GET /api/vocabulary`` has too.
    """

    kind: Literal["hub"] = "hub"
    state: Literal["online", "offline"]
    started_at: Timestamp
    session: str
    version: str = ""
    words: str = ""


class UserEvent(Wire):
    """Hub → a user and the admins: ``users/{user}/events/{kind}``."""

    kind: Literal["user_event"] = "user_event"
    at: Timestamp
    subject: str
    data: Json = None


class WatcherState(Wire):
    """Hub → its owner: what a watcher is doing. What it saw and why it decided so is in its owner's events.

    Attributes:
        fired: How often its condition came about and something was decided.
        last_decision: ``nothing``, ``notify``, ``act`` or ``failed``; empty before the first.
    """

    kind: Literal["watcher"] = "watcher"
    name: str
    state: Literal["draft", "active", "paused", "failed"]
    at: Timestamp
    dry_run: bool = False
    fired: Counter = 0
    last_decision: str = ""


class CaptureState(Wire):
    """Hub → its owner: what a capture is recording.

    Attributes:
        state: ``full``: there is no room; it goes on by itself when there is.
        gaps: Times and messages that it does not have, and has written down.
        bytes: What its files take.
        problem: Why it is ``full`` or ``failed``.
    """

    kind: Literal["capture"] = "capture"
    name: str
    state: Literal["active", "stopped", "full", "failed"]
    at: Timestamp
    messages: Counter = 0
    gaps: Counter = 0
    files: Counter = 0
    bytes: Counter = 0
    problem: str = ""


class Revocation(Part):
    """Hub → embedded broker, on its control topic: what may no longer log in.

    Attributes:
        tokens: ``jti`` of single tokens.
        only: By ``kind/id`` of a principal, the ``jti`` of the one token that it may log in with; an
            empty text where it may not log in at all. Who is not named may use any good token.
        before: When this was said.
    """

    tokens: list[str] = []
    only: dict[str, str] = {}
    before: Timestamp
