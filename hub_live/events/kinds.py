"""Kinds of events, and the data of each."""

from typing import ClassVar, Final, Literal, TypeVar, get_args

from pydantic import ConfigDict, Field

from contracts.answers.live import Event, EventKind
from contracts.wire import Json, OrAbsent, Phrased, PhraseText, Timestamp

KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)


class EventData(Phrased):
    """What happened.

    A field that is too long is not stored, so that none must be there; see `events.Events`.

    Attributes:
        subject: What it is about: a name, or the id of a watcher.
        title: What people call that, where it is something else.
    """

    model_config = ConfigDict(populate_by_name=True)

    KIND: ClassVar[EventKind]

    subject: str = ""
    title: OrAbsent[str] = None


Kept = TypeVar("Kept", bound=EventData)


class WatcherData(EventData):
    """A watcher was changed by a person, has decided, or missed data.

    Attributes:
        event: What a person did with it, and who (``by``); absent for the others.
        until: The end of a snooze.
        watchers: The watchers that missed data.
    """

    KIND = "watcher"

    event: OrAbsent[str] = None
    by: OrAbsent[str] = None
    until: OrAbsent[Timestamp] = None
    at: OrAbsent[Timestamp] = None
    decision: OrAbsent[str] = None
    reason: OrAbsent[PhraseText] = None
    actions: OrAbsent[list[Json]] = None
    state: OrAbsent[str] = None
    seen: OrAbsent[dict[str, Json]] = None
    tokens: OrAbsent[int] = None
    dry_run: OrAbsent[bool] = None
    watchers: OrAbsent[list[str]] = None


class CaptureData(EventData):
    """A capture was started or stopped, or could not be written."""

    KIND = "capture"

    event: OrAbsent[str] = None
    path: OrAbsent[str] = None
    problem: OrAbsent[str] = None


class PresenceData(EventData):
    """A device came or went."""

    KIND = "presence"

    device: OrAbsent[str] = None
    key: OrAbsent[str] = None
    online: OrAbsent[bool] = None


class TimerData(EventData):
    """A timer was set, paused or removed, or has ended.

    Attributes:
        missed: Of one that has ended, whether the hub was stopped at that time.
    """

    KIND = "timer"

    event: OrAbsent[Literal["set", "paused", "removed", "ended"]] = None
    timer: OrAbsent[str] = None
    due: OrAbsent[Timestamp] = None
    missed: OrAbsent[bool] = None


class NotificationData(EventData):
    """A notice to a person.

    Attributes:
        event: With ``timer`` and ``due``, of a timer that has ended.
        sender: What tells it.
        token: Id of a token that ends soon.
        without_values: Watchers and captures that get no values.
    """

    KIND = "notification"

    event: OrAbsent[Literal["ended"]] = None
    timer: OrAbsent[str] = None
    due: OrAbsent[Timestamp] = None
    text: OrAbsent[PhraseText] = None
    sender: OrAbsent[str] = Field(default=None, alias="from")
    token: OrAbsent[str] = None
    without_values: OrAbsent[list[str]] = None


class NodeData(EventData):
    """A node of a spoke has ended."""

    KIND = "node"

    device: OrAbsent[str] = None
    key: OrAbsent[str] = None
    name: OrAbsent[str] = None
    state: OrAbsent[str] = None
    reason: OrAbsent[str] = None


def with_data(event: Event[Json], kind: type[Kept]) -> Event[Kept]:
    return Event[Kept].model_construct(**{**vars(event), "data": kind.model_validate(event.data)})
