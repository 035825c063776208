"""The hub's directory: devices with their presence, keys and problems."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agent_core.search.directory import RegisteredSkill, SkillDirectory
from hub_registry.devices.devices import Device
from hub_registry.devices.presence import HighWater, Presence
from identity.keys import PublicKey

_PROBLEMS = 20


@dataclass(frozen=True)
class Problem:
    """Something of a device that was refused, for its owner to see."""

    at: datetime
    message: str


@dataclass(eq=False)
class Entry:
    """What the hub knows of one device at this moment; see ``DeviceEntry``.

    Attributes:
        last_heartbeat: The last live sign of life, None before the first.
        listed: The skills of its last manifest with their digests, None before one was heard.
    """

    device: Device
    presence: Presence
    last_heartbeat: datetime | None = None
    listed: Mapping[str, str] | None = None
    skills: dict[str, RegisteredSkill] = field(default_factory=dict)
    problems: deque[Problem] = field(default_factory=lambda: deque(maxlen=_PROBLEMS))

    @property
    def id(self) -> str:
        """The device's id."""
        return self.device.id

    @property
    def key(self) -> str:
        """The device's name in generated code."""
        return self.device.key

    @property
    def display_name(self) -> str:
        """The device's name for people."""
        return self.device.display_name

    @property
    def names(self) -> tuple[str, ...]:
        """Display name and aliases."""
        return tuple(self.device.names)

    @property
    def places(self) -> tuple[str, ...]:
        """Area and floor, where they are known."""
        return tuple(place for place in (self.device.area, self.device.floor) if place)

    @property
    def revoked(self) -> bool:
        """Whether it was locked out."""
        return self.device.revoked

    @property
    def connected(self) -> bool:
        """Whether calls may be sent to it."""
        return self.presence.connected and not self.device.revoked

    @property
    def unavailable(self) -> str | None:
        """Why its skills cannot be called, None where they can."""
        if self.device.revoked:
            return "revoked"
        if self.device.public_key is None:
            return "not joined yet"
        return None if self.presence.connected else "offline"


class Directory(SkillDirectory[Entry]):
    """All devices of the home with what they can do."""

    def put(self, device: Device, high: HighWater | None = None) -> Entry:
        """Add a device, or replace its names, its place and its key.

        A new key ends everything that the old one signed.
        """
        entry = self._entries.get(device.id)
        if entry is None or entry.device.public_key != device.public_key:
            if entry is not None:
                self._forget_key(entry)
            entry = Entry(device, Presence(high or HighWater()), last_heartbeat=device.last_seen)
            self._entries[device.id] = entry
        else:
            self._forget_key(entry)
            entry.device = device
        self._by_key[device.key] = entry
        self.changed(device.id)
        return entry

    def _forget_key(self, entry: Entry) -> None:
        # Another device may have been given the name meanwhile.
        if self._by_key.get(entry.key) is entry:
            del self._by_key[entry.key]

    def drop(self, device: str) -> None:
        """Remove a device."""
        entry = self._entries.pop(device, None)
        if entry is not None:
            self._forget_key(entry)
            self.changed(device)

    def put_skill(self, device: str, skill: RegisteredSkill) -> None:
        """Add or replace a skill of a device."""
        self._entries[device].skills[skill.name] = skill
        self.changed(device)

    def drop_skill(self, device: str, skill: str) -> None:
        """Remove a skill of a device."""
        del self._entries[device].skills[skill]
        self.changed(device)

    def public_key(self, device: str) -> PublicKey | None:
        """Return the key a device signs with; None where it is unknown, revoked or has not joined."""
        entry = self._entries.get(device)
        return None if entry is None or entry.device.revoked else entry.device.public_key
