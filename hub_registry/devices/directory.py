"""Devices, their presence and their skills, in memory: what the agent and the API look things up in."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agent_core.search.nearest import suggestion
from contracts.errors import CallError, ErrorCode
from contracts.registration import Method
from hub_registry.devices.devices import Device
from hub_registry.devices.presence import HighWater, Presence
from hub_registry.devices.registrations import RegisteredSkill
from hub_registry.storage.tables import now
from identity.keys import PublicKey

HUB_KEY = "hub"
"""The virtual device: device-agnostic skills are called on it."""

_PROBLEMS = 20
_DAY_H = 24


@dataclass(frozen=True)
class Problem:
    """Something of a device that was refused, for its owner to see."""

    at: datetime
    message: str


@dataclass(eq=False)
class Entry:
    """What the hub knows of one device at this moment.

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
    def connected(self) -> bool:
        """Whether calls may be sent to it."""
        return self.presence.connected and not self.device.revoked

    @property
    def unavailable(self) -> str | None:
        """Why its skills cannot be called, or None where they can."""
        if self.device.revoked:
            return "revoked"
        if self.device.public_key is None:
            return "not joined yet"
        return None if self.presence.connected else "offline"

    def fresh(self, *, since: datetime) -> bool:
        """Whether it gave a sign of life after that moment; its skills leave the search otherwise."""
        return self.last_heartbeat is not None and self.last_heartbeat >= since


@dataclass(frozen=True)
class Found:
    """A method on a device."""

    entry: Entry
    skill: RegisteredSkill
    method: Method


class Directory:
    """All devices with what they can do."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_key: dict[str, Entry] = {}
        self._listeners: list[Callable[[str], None]] = []

    def on_change(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Have a function called with the id of each device that changes; gives its undoing."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def changed(self, device: str) -> None:
        """Tell the listeners that something about a device is different."""
        for listener in tuple(self._listeners):
            listener(device)

    def put(self, device: Device, high: HighWater | None = None) -> Entry:
        """Add a device, or replace what it is called, where it stands and what it signs with.

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
        """Forget a device."""
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

    def get(self, device: str) -> Entry | None:
        """Give the device with this id."""
        return self._entries.get(device)

    def entries(self) -> list[Entry]:
        """List all devices, in the order of their keys."""
        return sorted(self._entries.values(), key=lambda entry: entry.key)

    def public_key(self, device: str) -> PublicKey | None:
        """Give what a device signs with; None where it is unknown, revoked or has not joined."""
        entry = self._entries.get(device)
        return None if entry is None or entry.device.revoked else entry.device.public_key

    def resolve(self, name: str) -> Entry:
        """Find a device by key, id, display name or alias.

        Raises:
            CallError: ``unknown_skill``, with the nearest names.
        """
        named = self._by_key.get(name) or self._entries.get(name)
        if named is not None:
            return named
        folded = name.strip().casefold()
        for entry in self._entries.values():
            if any(folded == each.casefold() for each in entry.device.names):
                return entry
        raise CallError(
            ErrorCode.UNKNOWN_SKILL,
            f"there is no device {name!r}",
            hint=suggestion(name, [entry.key for entry in self._entries.values()]),
            device=name,
        )

    def find(self, device: str, skill: str, method: str) -> Found:
        """Find a method on a device that is named by key, id, display name or alias.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """
        entry = self.resolve(device)
        owned = entry.skills.get(skill)
        if owned is None:
            elsewhere = self._keys_with(skill, method, besides=entry)
            hint = f"it is on {elsewhere}" if elsewhere else suggestion(skill, entry.skills)
            raise CallError(
                ErrorCode.UNKNOWN_SKILL,
                f"{entry.device.display_name} has no skill {skill!r}",
                hint=hint,
                device=entry.key,
            )
        return Found(entry, owned, _method(owned, method, entry.key))

    def find_connected(self, device: str, skill: str, method: str) -> Found:
        """Find a method on a device that is there.

        Raises:
            CallError: ``unknown_skill``, or ``offline`` with where else the skill is.
        """
        found = self.find(device, skill, method)
        reason = found.entry.unavailable
        if reason is not None:
            elsewhere = self._keys_with(skill, method, besides=found.entry, connected=True)
            seen = found.entry.last_heartbeat
            raise CallError(
                ErrorCode.OFFLINE,
                f"{found.entry.device.display_name} is {reason}"
                + (f", last seen {_ago(seen)}" if seen else ""),
                hint=f"{skill}.{method} is also on {elsewhere}" if elsewhere else "",
                device=found.entry.key,
            )
        return found

    def agnostic(self, skill: str, method: str) -> list[Found]:
        """List the devices that have a device-agnostic method, there or not; at least one.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """
        offered = [
            Found(entry, owned, owned.methods[method])
            for entry in self.entries()
            if (owned := entry.skills.get(skill)) and owned.device_agnostic and method in owned.methods
        ]
        if not offered:
            raise self._unknown_agnostic(skill, method)
        return offered

    def candidates(self, skill: str, method: str) -> list[Found]:
        """List the connected devices that serve a device-agnostic method, most recent heartbeat first.

        Raises:
            CallError: ``unknown_skill`` where no device has such a method that is device-agnostic,
                ``offline`` where none of those that have it is connected.
        """
        offered = self.agnostic(skill, method)
        there = [found for found in offered if found.entry.connected]
        if not there:
            names = ", ".join(sorted(found.entry.key for found in offered))
            raise CallError(
                ErrorCode.OFFLINE,
                f"every device with {skill} is offline: {names}",
                device=HUB_KEY,
            )
        return sorted(there, key=_by_heartbeat, reverse=True)

    def _unknown_agnostic(self, skill: str, method: str) -> CallError:
        agnostic = [
            owned
            for entry in self._entries.values()
            for owned in entry.skills.values()
            if owned.device_agnostic
        ]
        same = [owned for owned in agnostic if owned.name == skill]
        if same:
            hint = suggestion(method, {name for owned in same for name in owned.methods})
            return CallError(
                ErrorCode.UNKNOWN_SKILL, f"{skill} has no function {method!r}", hint=hint, device=HUB_KEY
            )
        elsewhere = self._keys_with(skill, method)
        return CallError(
            ErrorCode.UNKNOWN_SKILL,
            f"no device offers {skill!r} to be run on any device",
            hint=f"name one: it is on {elsewhere}"
            if elsewhere
            else suggestion(skill, {owned.name for owned in agnostic}),
            device=HUB_KEY,
        )

    def _keys_with(
        self, skill: str, method: str, *, besides: Entry | None = None, connected: bool = False
    ) -> str:
        having: Iterable[Entry] = (
            entry
            for entry in self.entries()
            if entry is not besides and skill in entry.skills and method in entry.skills[skill].methods
        )
        return ", ".join(entry.key for entry in having if entry.connected or not connected)


def _method(skill: RegisteredSkill, method: str, device: str) -> Method:
    found = skill.methods.get(method)
    if found is None:
        raise CallError(
            ErrorCode.UNKNOWN_SKILL,
            f"{skill.name} on {device} has no function {method!r}",
            hint=suggestion(method, skill.methods),
            device=device,
        )
    return found


def _by_heartbeat(found: Found) -> float:
    moment = found.entry.last_heartbeat
    return moment.timestamp() if moment else 0.0


def _ago(moment: datetime) -> str:
    passed = now() - moment
    if passed < timedelta(minutes=2):
        return f"{max(0, int(passed.total_seconds()))} seconds ago"
    if passed < timedelta(hours=2):
        return f"{int(passed.total_seconds() // 60)} minutes ago"
    hours = int(passed.total_seconds() // 3600)
    return f"{hours} hours ago" if hours < 2 * _DAY_H else f"{hours // _DAY_H} days ago"
