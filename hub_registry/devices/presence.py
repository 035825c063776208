"""Presence of a device: what each status means, given all that came before it."""

from dataclasses import dataclass, replace
from enum import StrEnum

from contracts.devices.presence import CONFIRM_ONLINE_S, DeviceStatus


class PresenceState(StrEnum):
    """How the hub sees a device."""

    UNKNOWN = "unknown"
    """Nothing was heard since this hub started."""
    UNCONFIRMED = "unconfirmed"
    """A retained ``online`` says so; whether it is still true shows within ten seconds."""
    ONLINE = "online"
    OFFLINE = "offline"


@dataclass(frozen=True)
class HighWater:
    """The latest status of a device that was accepted, as the database keeps it.

    Attributes:
        ended: Whether that connection has said ``offline``, which is final for it.
    """

    epoch: int = 0
    connection: int = 0
    seq: int = 0
    ended: bool = False


@dataclass(frozen=True)
class PresenceChange:
    """A device came, went, or came back on another connection."""

    device: str
    state: PresenceState
    epoch: int
    connection: int

    @property
    def connected(self) -> bool:
        return self.state in (PresenceState.ONLINE, PresenceState.UNCONFIRMED)


class Presence:
    """The presence of one device."""

    def __init__(self, high: HighWater) -> None:
        self.high = high
        self.state = PresenceState.UNKNOWN
        self._confirm_by = 0.0

    @property
    def connected(self) -> bool:
        return self.state in (PresenceState.ONLINE, PresenceState.UNCONFIRMED)

    def hear(self, status: DeviceStatus, *, retained: bool, at: float) -> str | None:
        """Apply a status whose signature was checked.

        Args:
            status: What the device, or the broker on its behalf, said.
            retained: Whether the broker had kept it, so that it may be long out of date.
            at: Seconds on a clock that never runs backwards.

        Returns:
            Why it was ignored, or None where it counts.
        """
        here, known = (status.epoch, status.connection), (self.high.epoch, self.high.connection)
        if here < known:
            return "it is of an earlier connection"
        same = here == known
        if same and self.high.ended:
            self.state = PresenceState.OFFLINE
            return "that connection has ended already"
        if status.state == "offline":
            # The will was written when the connection began, so its seq says nothing.
            seq = max(status.seq, self.high.seq) if same else status.seq
            self.high = HighWater(*here, seq, ended=True)
            self.state = PresenceState.OFFLINE
            return None
        if same and status.seq <= self.high.seq and not self._first_of_this_hub(status):
            return "it was heard before"
        provisional = retained or self._first_of_this_hub(status)
        self.high = HighWater(*here, status.seq)
        if provisional:
            self.state, self._confirm_by = PresenceState.UNCONFIRMED, at + CONFIRM_ONLINE_S
        else:
            self.state = PresenceState.ONLINE
        return None

    def _first_of_this_hub(self, status: DeviceStatus) -> bool:
        # After a restart of the hub, what the broker kept is what the database knows already.
        return self.state is PresenceState.UNKNOWN and status.order == (
            self.high.epoch,
            self.high.connection,
            self.high.seq,
        )

    def end(self) -> bool:
        """Count its connection as ended, because the broker has cut it; returns whether that is news."""
        if not self.connected:
            return False
        self.high = replace(self.high, ended=True)
        self.state = PresenceState.OFFLINE
        return True

    def require_confirmation(self, *, at: float) -> None:
        # The hub was away from the broker and may have missed a will.
        if self.state is PresenceState.ONLINE:
            self.state, self._confirm_by = PresenceState.UNCONFIRMED, at + CONFIRM_ONLINE_S

    def expire(self, *, at: float) -> bool:
        """Count an ``online`` that was not confirmed in time as offline; returns whether it was."""
        if self.state is not PresenceState.UNCONFIRMED or at < self._confirm_by:
            return False
        self.state = PresenceState.OFFLINE
        return True
