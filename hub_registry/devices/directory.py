"""The hub's directory: devices with their presence, keys and problems."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from agent_core.search.directory import RegisteredSkill, SkillDirectory
from contracts.answers.devices import Item, Load
from contracts.claims import Claims
from contracts.devices.presence import Heartbeat
from contracts.text import shortened
from hub_registry.devices.approvals import Approvals
from hub_registry.devices.devices import Device
from hub_registry.devices.presence import HighWater, Presence
from hub_registry.storage.tables import now
from identity.keys import PublicKey

_PROBLEMS = 20
_LONGEST_PROBLEM = 500
_LOAD_EVERY_S = 30.0
_LOADS = 120
"""An hour of load for a plot, in 20 kB of a device."""


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
        version: Of its software; empty before its first status.
        heartbeat: What it last said of itself.
        loads: The last hour, oldest first.
        listed: The skills of its last manifest with their digests, None before one was heard.
        registered: Its skills as it signed them.
        skills: What counts of them; see `hub_registry.devices.review`.
        withheld: What does not count, by skill.
    """

    device: Device
    presence: Presence
    last_heartbeat: datetime | None = None
    version: str = ""
    heartbeat: Heartbeat | None = None
    loads: deque[Load] = field(default_factory=lambda: deque(maxlen=_LOADS))
    listed: Mapping[str, str] | None = None
    registered: dict[str, RegisteredSkill] = field(default_factory=dict)
    skills: dict[str, RegisteredSkill] = field(default_factory=dict)
    withheld: dict[str, tuple[Item, ...]] = field(default_factory=dict)
    problems: deque[Problem] = field(default_factory=lambda: deque(maxlen=_PROBLEMS))

    def hear(self, heartbeat: Heartbeat, at: datetime) -> None:
        """Store what the device reports of itself."""
        self.heartbeat = heartbeat
        if not self.loads or at.timestamp() - self.loads[-1].at >= _LOAD_EVERY_S:
            self.loads.append(Load(at.timestamp(), heartbeat.load, heartbeat.memory_mb))

    @property
    def id(self) -> str:
        return self.device.id

    @property
    def key(self) -> str:
        return self.device.key

    @property
    def display_name(self) -> str:
        return self.device.display_name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.device.names)

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(place for place in (self.device.area, self.device.floor) if place)

    @property
    def audience(self) -> str | None:
        # The owner alone sees and calls it; None if it is shared.
        return None if self.device.shared else self.device.owner

    @property
    def revoked(self) -> bool:
        return self.device.revoked

    @property
    def items(self) -> list[Item]:
        return [item for items in self.withheld.values() for item in items]

    @property
    def to_review(self) -> int:
        return sum(not item.denied for item in self.items)

    @property
    def connected(self) -> bool:
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
    """All devices of the home with what they can do, as far as the owner approves it."""

    def __init__(self, approvals: Approvals | None = None) -> None:
        super().__init__()
        self.approvals = approvals or Approvals()

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
            self.review(entry)
        self._by_key[device.key] = entry
        self._forget_views()
        self.changed(device.id)
        return entry

    def _forget_key(self, entry: Entry) -> None:
        # Another device may have been given the name meanwhile.
        if self._by_key.get(entry.key) is entry:
            del self._by_key[entry.key]

    def follow(self, device: Device, high: HighWater, *, was: Device | None) -> None:
        """Apply a device as another process has stored it, unless it was changed here meanwhile.

        Args:
            was: The device of the directory before the row was read.
        """
        entry = self._entries.get(device.id)
        present = entry.device if entry is not None else None
        if present is was and (was is None or replace(was, last_seen=device.last_seen) != device):
            self.put(device, high)

    def drop(self, device: str) -> None:
        """Remove a device."""
        entry = self._entries.pop(device, None)
        self.approvals.forget(device)
        self._forget_views()
        if entry is not None:
            self._forget_key(entry)
            self.changed(device)
            for other in self._entries.values():
                if not entry.registered.keys().isdisjoint(other.withheld):
                    self.review(other)

    def note_problem(self, device: str, message: str) -> None:
        """Show the owner of a device that something of it was refused."""
        entry, message = self._entries.get(device), shortened(message, _LONGEST_PROBLEM)
        if entry is not None:
            # The same again moves to the end, so that it does not push out the others.
            known = [problem for problem in entry.problems if problem.message != message]
            entry.problems = deque([*known, Problem(now(), message)], maxlen=_PROBLEMS)

    def put_skill(self, device: str, skill: RegisteredSkill) -> None:
        """Add or replace a skill of a device, as the device signed it."""
        entry = self._entries[device]
        self._forget_problems(entry, skill.name)
        entry.registered[skill.name] = skill
        self._review(entry, skill)
        self.changed(device)

    @staticmethod
    def _forget_problems(entry: Entry, skill: str) -> None:
        """Forget what was wrong with the sentences of a skill: each is named as ``LampSkill.turn_on: …``."""
        left = [each for each in entry.problems if not each.message.startswith(f"{skill}.")]
        entry.problems = deque(left, maxlen=_PROBLEMS)

    def drop_skill(self, device: str, skill: str) -> None:
        """Remove a skill of a device."""
        entry = self._entries[device]
        self._forget_problems(entry, skill)
        for kept in (entry.registered, entry.skills, entry.withheld):
            kept.pop(skill, None)
        self.changed(device)

    def review(self, entry: Entry) -> None:
        """Apply the owner's decisions to all skills of a device."""
        for skill in entry.registered.values():
            self._review(entry, skill)
        self.changed(entry.id)

    def _review(self, entry: Entry, skill: RegisteredSkill) -> None:
        reviewed = self.approvals.review(entry.id, skill, trusted=entry.device.trusted)
        entry.skills[skill.name], entry.withheld[skill.name] = reviewed.skill, reviewed.items

    def providers(self, skill: str) -> list[Entry]:
        """List the devices that serve a device-agnostic skill in the order of calls, connected ones first."""
        serving = [e for e in self.entries() if skill in e.skills and e.skills[skill].device_agnostic]
        return sorted(serving, key=lambda entry: (not entry.connected, entry.skills[skill].rank))

    def may_confirm(self, claims: Claims) -> bool:
        """Return whether a person confirms calls through a token.

        That is a user's token with this scope, or a device that the owner marked; never a broker's login.
        """
        if claims.kind == "device":
            entry = self.get(claims.sub)
            return entry is not None and bool(entry.device.may_confirm)
        return claims.kind == "user" and "confirm" in claims.scopes

    def public_key(self, device: str) -> PublicKey | None:
        """Return the key a device signs with; None where it is unknown, revoked or has not joined."""
        entry = self._entries.get(device)
        return None if entry is None or entry.device.revoked else entry.device.public_key
