"""Devices and their skills, in memory: lookups by name that hub and spoke share."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Generic, Protocol, TypeVar

from agent_core.schemas.foreign_schema import check_schema
from agent_core.schemas.nearest import suggestion
from agent_core.times import ago
from contracts.devices.registration import MAX_SCHEMA, Method, Registration
from contracts.errors import CallError, ErrorCode, InvalidMessage
from contracts.listeners import Listeners
from contracts.phrases import Phrase

HUB_KEY: Final = "hub"
"""Key of the virtual device on which device-agnostic skills are called."""


@dataclass(frozen=True)
class RegisteredSkill:
    """One skill of one device, as its registration says.

    Attributes:
        digest: SHA-256 of the payload, as the device's manifest lists it.
        methods: By name, in the order of the registration.
        payload: What the device signed; this is what the database keeps.
        own_sentences: Sentence templates that only an utterance on this very device may match.
        rank: Of a device-agnostic skill; a provider with a lower one is called first.
    """

    registration: Registration
    digest: str
    methods: Mapping[str, Method]
    payload: bytes = field(default=b"", repr=False)
    own_sentences: frozenset[str] = frozenset()
    rank: int = 0

    @classmethod
    def of(cls, registration: Registration, digest: str, payload: bytes = b"") -> "RegisteredSkill":
        """Check what the types of a registration leave open, and index its methods.

        Raises:
            InvalidMessage: A method is there twice, or a schema is malformed or too large.
        """
        for method in registration.methods:
            try:
                _check_schemas(method)
            except ValueError as error:
                raise InvalidMessage(
                    "{skill}.{name}: {error}", skill=registration.skill, name=method.name, error=error
                ) from None
        if len({method.name for method in registration.methods}) != len(registration.methods):
            raise InvalidMessage("{skill} registers a method twice", skill=registration.skill)
        return cls(registration, digest, {method.name: method for method in registration.methods}, payload)

    @property
    def name(self) -> str:
        return self.registration.skill

    @property
    def device_agnostic(self) -> bool:
        return self.registration.device_agnostic

    @property
    def unavailable(self) -> str:
        """Why it cannot be called on a device that is connected; empty if it can."""
        why = self.registration.unavailable
        return why.text if why is not None and not why.is_callable else ""

    @property
    def problem(self) -> str:
        """Return what fails of the skill, even where it can be called; empty if nothing does."""
        why = self.registration.unavailable
        return why.text if why is not None and why.kind != "saved" else ""


def _check_schemas(method: Method) -> None:
    if max(len(method.parameters_json), len(method.result_json)) > MAX_SCHEMA:
        raise ValueError(f"a JSON Schema has more than {MAX_SCHEMA:,} characters")
    check_schema(method.parameters)
    if method.result is not None:
        check_schema(method.result)


class DeviceEntry(Protocol):
    """A device as the directory needs to know it."""

    @property
    def id(self) -> str:
        """The device's id."""

    @property
    def key(self) -> str:
        """The device's name in generated code."""

    @property
    def display_name(self) -> str:
        """The device's name for people."""

    @property
    def names(self) -> Iterable[str]:
        """Display name and aliases."""

    @property
    def places(self) -> Iterable[str]:
        """Area and floor, where they are known."""

    @property
    def audience(self) -> str | None:
        """Id of the only person for whom it exists, None where it is everybody's."""

    @property
    def connected(self) -> bool:
        """Return whether calls may be sent to it."""

    @property
    def unavailable(self) -> str | None:
        """Why its skills cannot be called, None where they can."""

    @property
    def revoked(self) -> bool:
        """Return whether it was locked out; its skills are then in no search."""

    @property
    def last_heartbeat(self) -> datetime | None:
        """The last live sign of life, None before the first."""

    @property
    def skills(self) -> Mapping[str, RegisteredSkill]:
        """Return its skills, by class name."""


@dataclass(frozen=True)
class HubEntry:
    """The virtual device, with the skills that run in the hub's own process; see ``DeviceEntry``.

    It is in no list of devices. A spoke's directory has none of these skills.
    """

    skills: Mapping[str, RegisteredSkill] = field(default_factory=dict)
    id: str = HUB_KEY
    key: str = HUB_KEY
    display_name: str = "Hub"
    names: tuple[str, ...] = ("Hub",)
    places: tuple[str, ...] = ()
    audience: str | None = None
    connected: bool = True
    unavailable: str | None = None
    revoked: bool = False

    @property
    def last_heartbeat(self) -> datetime:
        # The caller runs in the same process.
        return datetime.now(UTC)


def is_for(user: str, entry: DeviceEntry) -> bool:
    """Return whether a person may see and call a device: the only place that decides this."""
    return entry.audience is None or entry.audience == user


E = TypeVar("E", bound=DeviceEntry)


@dataclass(frozen=True)
class Found(Generic[E]):
    """A method on a device."""

    entry: E
    skill: RegisteredSkill
    method: Method


class SkillDirectory(Generic[E]):
    """Devices with what they can do.

    Attributes:
        routes_agnostic: Whether the caller chooses the device of a device-agnostic call.
        hub: The virtual device with the hub's own skills.
    """

    routes_agnostic = True

    def __init__(self) -> None:
        self._entries: dict[str, E] = {}
        self._by_key: dict[str, E] = {}
        # With the id of each device that changes.
        self.on_change: Listeners[Callable[[str], None]] = Listeners()
        self._views: dict[str, SkillDirectory[E]] = {}
        # When people may see other devices than before.
        self.on_sharing: Listeners[Callable[[], None]] = Listeners()
        self.hub = HubEntry()

    def seen_by(self, user: str) -> "SkillDirectory[E]":
        """Return the directory as it is for one person, in which the devices of others do not exist.

        Everything that is listed, found or called on behalf of a person is looked up in this. It is out of
        date as soon as devices come, go or change, so it is asked for again each time and never kept.
        """
        view = self._views.get(user)
        if view is None:
            view = self._views[user] = SkillDirectory()
            view.routes_agnostic, view.hub = self.routes_agnostic, self.hub
            view._entries = {entry.id: entry for entry in self._entries.values() if is_for(user, entry)}
            view._by_key = {key: entry for key, entry in self._by_key.items() if entry.id in view._entries}
        return view

    def __contains__(self, device: object) -> bool:
        return device == HUB_KEY or device in self._entries

    def put_own(self, skills: Iterable[RegisteredSkill]) -> None:
        """Offer these as the hub's own skills, in place of those before."""
        self.hub = HubEntry({skill.name: skill for skill in skills})
        self._forget_views()
        self.changed(HUB_KEY)

    def _forget_views(self) -> None:
        self._views.clear()
        for listener in self.on_sharing:
            listener()

    def changed(self, device: str) -> None:
        for listener in self.on_change:
            listener(device)

    def get(self, device: str) -> E | None:
        return self._entries.get(device)

    def entries(self) -> list[E]:
        return sorted(self._entries.values(), key=lambda entry: entry.key)

    def resolve(self, name: str) -> E:
        """Find a device by key, id, display name or alias.

        Raises:
            CallError: ``unknown_skill``, with the nearest names.
        """
        named = self._by_key.get(name) or self._entries.get(name)
        if named is not None:
            return named
        folded = name.strip().casefold()
        for entry in self._entries.values():
            if any(folded == each.casefold() for each in entry.names):
                return entry
        raise self.unknown_device(name)

    def by_key(self, key: str) -> E:
        """Find a device by its key alone, as generated code names it.

        A renamed device is then not found by an old name that happens to be its id.

        Raises:
            CallError: ``unknown_skill``, with the key where it is known by another name.
        """
        entry = self._by_key.get(key) or self.resolve(key)
        if entry.key == key:
            return entry
        raise CallError(
            ErrorCode.UNKNOWN_SKILL,
            "there is no device {name!r}",
            name=key,
            device_name=entry.display_name,
            key=entry.key,
            hint="{device_name} is devices.{key}",
            device=key,
        )

    def unknown_device(self, name: str) -> CallError:
        """Make the error for a name that no device has."""
        return CallError(
            ErrorCode.UNKNOWN_SKILL,
            "there is no device {name!r}",
            name=name,
            hint=suggestion(name, [entry.key for entry in self._entries.values()]),
            device=name,
        )

    def find(self, device: str, skill: str, method: str) -> Found[E]:
        """Find a method on a device that is named by key, id, display name or alias.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """
        return self.find_on(self.resolve(device), skill, method)

    def find_on(self, entry: E, skill: str, method: str) -> Found[E]:
        """Find a method on this device.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """
        owned = entry.skills.get(skill)
        if owned is None:
            elsewhere = self._keys_with(skill, method, besides=entry)
            hint = (
                Phrase("it is on {elsewhere}", elsewhere=elsewhere)
                if elsewhere
                else suggestion(skill, entry.skills)
            )
            raise CallError(
                ErrorCode.UNKNOWN_SKILL,
                "{name} has no skill {skill!r}",
                name=entry.display_name,
                skill=skill[:200],
                hint=hint,
                device=entry.key,
            )
        found = owned.methods.get(method)
        if found is None and owned.unavailable:
            raise CallError(
                ErrorCode.OFFLINE,
                "{skill} is unavailable: {reason}",
                skill=owned.name,
                reason=owned.unavailable,
                device=entry.key,
            )
        if found is None:
            raise CallError(
                ErrorCode.UNKNOWN_SKILL,
                "{name} on {key} has no function {method!r}",
                name=owned.name,
                key=entry.key,
                method=method[:200],
                hint=suggestion(method, owned.methods),
                device=entry.key,
            )
        return Found(entry, owned, found)

    def find_connected(self, device: str, skill: str, method: str) -> Found[E]:
        """Find a method on a device that is connected.

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
                f"{found.entry.display_name} is {reason}"
                + (f", last seen {ago(time.time() - seen.timestamp())}" if seen else ""),
                hint=Phrase(
                    "{skill}.{method} is also on {elsewhere}", skill=skill, method=method, elsewhere=elsewhere
                )
                if elsewhere
                else "",
                device=found.entry.key,
            )
        return found

    def agnostic(self, skill: str, method: str) -> list[Found[E]]:
        """List the devices that have a device-agnostic method, connected ones first, by rank; at least one.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """
        offered = [
            Found(entry, owned, owned.methods[method])
            for entry in self.entries()
            if (owned := entry.skills.get(skill))
            and owned.device_agnostic
            and method in owned.methods
            and not entry.revoked
        ]
        if not offered:
            raise self._unknown_agnostic(skill, method)
        return sorted(
            offered,
            key=lambda found: (not found.entry.connected, bool(found.skill.unavailable), found.skill.rank),
        )

    def candidates(self, skill: str, method: str) -> list[Found[E]]:
        """List the connected devices that serve a device-agnostic method, in the order of their calls.

        Rank comes first: how often a device says that it is alive decides only among equals.

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
                "every device with {skill} is offline: {names}",
                skill=skill,
                names=names,
                device=HUB_KEY,
            )
        return sorted(
            there, key=lambda found: (bool(found.skill.unavailable), found.skill.rank, -_heartbeat(found))
        )

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
                ErrorCode.UNKNOWN_SKILL,
                "{skill} has no function {method!r}",
                skill=skill,
                method=method,
                hint=hint,
                device=HUB_KEY,
            )
        elsewhere = self._keys_with(skill, method)
        return CallError(
            ErrorCode.UNKNOWN_SKILL,
            "no device offers {skill!r} to be run on any device",
            skill=skill,
            hint=Phrase("name one: it is on {elsewhere}", elsewhere=elsewhere)
            if elsewhere
            else suggestion(skill, {*self.hub.skills, *(owned.name for owned in agnostic)}),
            device=HUB_KEY,
        )

    def _keys_with(
        self, skill: str, method: str, *, besides: E | None = None, connected: bool = False
    ) -> str:
        all_entries: list[DeviceEntry] = [*self.entries(), self.hub]
        having = (
            entry
            for entry in all_entries
            if entry is not besides and skill in entry.skills and method in entry.skills[skill].methods
        )
        return ", ".join(entry.key for entry in having if entry.connected or not connected)


def _heartbeat(found: Found[E]) -> float:
    moment = found.entry.last_heartbeat
    return moment.timestamp() if moment else 0.0
