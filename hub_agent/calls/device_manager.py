"""Skill calls of the hub: rights, choice of the device, audit."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from agent_core.search.catalogue import SkillCall
from agent_core.search.directory import HUB_KEY, Found, SkillDirectory
from agent_core.search.targets import strictest
from agent_core.skills.arguments import arguments_digest
from bus.rpc import Caller, CallRequest, call_any
from contracts.devices.registration import MethodFlags
from contracts.devices.rpc import MAX_TTL_MS, Actor
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json
from hub_agent.calls.audit import AuditTrail, CallRecord, Origin
from hub_agent.own_skills import OwnSkills
from hub_registry.devices.directory import Directory, Entry
from hub_registry.storage.tables import now
from identity.ids import uuid7

_MARGIN_MS: Final = 3_000
"""Beyond a method's own time: the way there and back, so that the spoke reports the timeout."""


class DeviceManager:
    """Checks, routes and records the skill calls of the hub.

    Args:
        directory: The devices and their skills.
        caller: Sends calls over the bus.
        own: Runs the hub's own skills.
        trail: Where every call is recorded.
        on_ended: Called with where a call ran, ``hub`` or ``device``, its outcome, and its seconds.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        caller: Caller,
        own: OwnSkills,
        trail: AuditTrail,
        on_ended: Callable[[str, str, float], None] | None = None,
    ) -> None:
        self._on_ended = on_ended
        self._directory = directory
        self._caller = caller
        self._own = own
        self._trail = trail
        # By device that did not answer: its last sign of life at that time.
        self._silent: dict[str, datetime | None] = {}

    async def call(
        self, actor: Actor, call: SkillCall, *, origin: Origin, conversation: str | None = None
    ) -> Json:
        """Call a method on behalf of an actor and wait for its result.

        Args:
            origin: For the audit.
            conversation: In which it is called, for the hub's own skills.

        Raises:
            CallError: If the actor may not, or there is no result.
        """
        record = _Record(actor, call, origin)
        with self._recorded(record):
            if call.target.is_hub_own:
                _permit(record, call.target.method.flags)
                return await self._own.call(actor, call, origin=origin, conversation=conversation)
            if call.target.device == HUB_KEY:
                return await self._call_any(record)
            return await self._call_one(record)

    async def run(
        self, actor: Actor, call: SkillCall, work: Callable[[], Awaitable[Json]], *, origin: Origin
    ) -> Json:
        """Run an action that is no method of a skill, with the same rights and audit.

        Args:
            call: What it is in the audit, and its flags.

        Raises:
            CallError: If the actor may not, or there is no result.
        """
        record = _Record(actor, call, origin)
        with self._recorded(record):
            _permit(record, call.target.method.flags)
            return await work()

    @contextmanager
    def _recorded(self, record: "_Record") -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except CallError as error:
            record.outcome = error.code.value
            raise
        else:
            record.outcome = "result"
        finally:
            self._trail.note(record.made())
            if self._on_ended is not None:
                where = "hub" if record.call.target.is_hub_own else "device"
                self._on_ended(where, record.outcome, time.monotonic() - began)

    def note_refused(self, actor: Actor, call: SkillCall, *, origin: Origin) -> None:
        """Record a call that was refused before it came here: a person did not confirm it."""
        record = _Record(actor, call, origin)
        record.outcome = ErrorCode.REFUSED.value
        self._trail.note(record.made())

    async def _call_one(self, record: "_Record") -> Json:
        target = record.call.target
        # Looked up again: what the device declares now is what counts.
        found = self._seen(record).find_connected(target.device, target.skill, target.method.name)
        _permit(record, found.method.flags)
        try:
            return await self._caller.call(record.request(found, found.method.flags), record.call.on_progress)
        except CallError as error:
            raise self._named(error, found, record) from None

    async def _call_any(self, record: "_Record") -> Json:
        target = record.call.target
        offered = [
            found
            for found in self._seen(record).candidates(target.skill, target.method.name)
            if found.method.parameters == target.method.parameters
        ]
        if not offered:
            raise CallError(
                ErrorCode.OFFLINE,
                f"no device that is online has {target.skill}.{target.method.name} with these parameters",
                hint="Search for the skill again.",
                device=HUB_KEY,
            )
        # One that did not answer costs seconds, so it is asked last until it is heard again.
        offered.sort(key=self._is_silent)
        flags = strictest([found.method.flags for found in offered])
        _permit(record, flags)
        served = await call_any(
            self._caller,
            [found.entry.id for found in offered],
            record.request(offered[0], flags),
            record.call.on_progress,
            on_silent=self._note_silent,
        )
        record.device = served.device
        return served.value

    def _seen(self, record: "_Record") -> SkillDirectory[Entry]:
        """Return the devices that exist for who calls; a call can reach no other."""
        return self._directory.seen_by(record.actor.user)

    def _note_silent(self, device: str) -> None:
        if (entry := self._directory.get(device)) is not None:
            self._silent[device] = entry.last_heartbeat

    def _is_silent(self, found: Found[Entry]) -> bool:
        entry = found.entry
        if entry.id in self._silent and self._silent[entry.id] != entry.last_heartbeat:
            del self._silent[entry.id]
        return entry.id in self._silent

    def _named(self, error: CallError, found: Found[Entry], record: "_Record") -> CallError:
        """Add to an error the name of the device and, where that helps, where else the skill is."""
        device = found.entry.device
        message, hint = error.message, error.hint
        if device.display_name not in message:
            message = f"{device.display_name}: {message}"
        if error.code is ErrorCode.OFFLINE:
            others = [
                entry.key
                for entry in self._seen(record).entries()
                if entry is not found.entry and entry.connected and _has(entry, found)
            ]
            hint = (
                f"{found.skill.name}.{found.method.name} is also on {', '.join(others)}" if others else hint
            )
        return CallError(error.code, message, hint=hint, device=found.entry.key)


def _has(entry: Entry, found: Found[Entry]) -> bool:
    skill = entry.skills.get(found.skill.name)
    return skill is not None and found.method.name in skill.methods


def _permit(record: "_Record", flags: MethodFlags) -> None:
    actor, target = record.actor, record.call.target
    name = f"{target.skill}.{target.method.name}"
    if actor.read_only and not flags.read_only:
        raise CallError(
            ErrorCode.REFUSED,
            f"{actor.user} has read-only access; {name} modifies state",
            hint="Ask a user with full access.",
            device=target.device,
        )
    if flags.confirm and not record.call.confirmed:
        raise CallError(
            ErrorCode.NEEDS_CONFIRMATION,
            f"{name} needs a person's confirmation",
            device=target.device,
        )


class _Record:
    """One call on its way into the audit."""

    def __init__(self, actor: Actor, call: SkillCall, origin: Origin) -> None:
        self.actor = actor
        self.call = call
        self.device = call.target.device
        # What is neither a result nor an error of ours was cancelled.
        self.outcome = ErrorCode.CANCELLED.value
        self._id = uuid7()
        self._origin = origin

    def request(self, found: Found[Entry], flags: MethodFlags) -> CallRequest:
        """Make the request to a device."""
        return CallRequest(
            device=found.entry.id,
            skill=found.skill.name,
            method=found.method.name,
            actor=self.actor,
            kwargs=dict(self.call.arguments),
            ttl_ms=min(found.method.timeout_ms + _MARGIN_MS, MAX_TTL_MS),
            confirmed=self.call.confirmed,
            read_only=flags.read_only,
            idempotent=flags.idempotent,
            interactive=self.actor.watcher is None,
        )

    def made(self) -> CallRecord:
        """Return what is kept."""
        return CallRecord(
            at=now(),
            call=self._id,
            user=self.actor.user,
            actor=self.actor.model_dump(exclude_defaults=True),
            device=self.device,
            skill=self.call.target.skill,
            method=self.call.target.method.name,
            arguments=arguments_digest(self.call.arguments),
            outcome=self.outcome,
            read_only=self.call.target.method.flags.read_only,
            **vars(self._origin),
        )


@dataclass(frozen=True)
class ActingCaller:
    """A ``SkillCaller`` with the rights of one actor.

    Attributes:
        origin: Gives the token that it acts for, and the one with which a confirmed call was confirmed.
        conversation: In which it calls, where there is one.
    """

    manager: DeviceManager
    actor: Actor
    origin: Callable[[], Origin]
    conversation: str | None = None

    async def call(self, call: SkillCall) -> Json:
        """See ``agent_core.tools.skill_calls.SkillCaller``."""
        return await self.manager.call(
            self.actor, call, origin=self._origin(call), conversation=self.conversation
        )

    async def run(self, call: SkillCall, work: Callable[[], Awaitable[Json]]) -> Json:
        """Run an action that is no method of a skill; see ``DeviceManager.run``."""
        return await self.manager.run(self.actor, call, work, origin=self._origin(call))

    def note_refused(self, call: SkillCall) -> None:
        """Record a call that a person did not confirm."""
        self.manager.note_refused(self.actor, call, origin=self._origin(replace(call, confirmed=False)))

    def _origin(self, call: SkillCall) -> Origin:
        origin = self.origin()
        return origin if call.confirmed else replace(origin, confirmed_by=None)
