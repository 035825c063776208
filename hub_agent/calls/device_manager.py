"""Skill calls of the hub: rights, choice of the device, audit."""

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime

from agent_core.schemas.arguments import arguments_digest, without_secrets
from agent_core.search.catalogue import SkillCall, Target
from agent_core.search.directory import HUB_KEY, Found, RegisteredSkill, SkillDirectory
from agent_core.search.targets import on_device, strictest
from bus.rpc import Caller, CallRequest, Served, call_any
from contracts.devices.registration import MethodFlags
from contracts.devices.rpc import MAX_TTL_MS, Actor
from contracts.errors import CallError, ErrorCode
from contracts.phrases import Phrase
from contracts.wire import Json
from hub_agent import limits
from hub_agent.calls.audit import AuditTrail, CallRecord, Origin
from hub_agent.calls.own_skills import OwnSkills
from hub_registry.devices.directory import Directory, Entry
from hub_registry.devices.presence import PresenceState
from hub_registry.storage.tables import now


@dataclass(eq=False)
class DeviceManager:
    """Checks, routes and records the skill calls of the hub.

    Attributes:
        directory: The devices and their skills.
        caller: Sends calls over the bus.
        own: Runs the hub's own skills.
        trail: Where every call is recorded.
        on_ended: Called with where a call ran, ``hub`` or ``device``, its outcome, and its seconds.
    """

    directory: Directory
    _: KW_ONLY
    caller: Caller
    own: OwnSkills
    trail: AuditTrail
    on_ended: Callable[[str, str, float], None] | None = None
    _confirm: Callable[[], Awaitable[None]] | None = field(default=None, init=False)
    _all_back_at: float = field(default_factory=lambda: time.monotonic() + limits.RETURN_S, init=False)
    # By device that did not answer: its last sign of life at that time.
    _silent: dict[str, datetime | None] = field(default_factory=dict, init=False)

    def fenced(self, confirm: Callable[[], Awaitable[None]]) -> "DeviceManager":
        """Return one that does nothing any more once this raises: another replica leads."""
        made = copy.copy(self)
        made._confirm = confirm
        return made

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
        with self._recorded(actor, call, origin) as record:
            if self._confirm is not None:
                await self._confirm()
            if call.target.is_hub_own:
                _permit(actor, call, call.target.method.flags)
                return await self.own.call(actor, call, origin=origin, conversation=conversation)
            if call.target.device == HUB_KEY:
                record.device, value = await self._call_any(actor, call)
                return value
            return await self._call_one(actor, call)

    async def when_back(self, user: str, target: Target) -> None:
        """Wait for a device that was not heard yet while the hub has only just started.

        Devices come back a moment after the hub. What the home does by itself, and does once, waits for them.
        """
        while time.monotonic() < self._all_back_at and not self._is_back(user, target):  # noqa: ASYNC110
            await asyncio.sleep(limits.RETURN_LOOK_S)

    def _is_back(self, user: str, target: Target) -> bool:
        if target.is_hub_own:
            return True
        seen = self.directory.seen_by(user)
        if target.device == HUB_KEY:
            offered = seen.candidates(target.skill, target.method.name)
        else:
            offered = [seen.find(target.device, target.skill, target.method.name)]
        # What the broker retained of a device may be of before the power went.
        return any(found.entry.presence.state is PresenceState.ONLINE for found in offered)

    async def run(
        self, actor: Actor, call: SkillCall, work: Callable[[], Awaitable[Json]], *, origin: Origin
    ) -> Json:
        """Run an action that is no method of a skill, with the same rights and audit.

        Args:
            call: What it is in the audit, and its flags.

        Raises:
            CallError: If the actor may not, or there is no result.
        """
        with self._recorded(actor, call, origin):
            if self._confirm is not None:
                await self._confirm()
            _permit(actor, call, call.target.method.flags)
            return await work()

    async def administer(
        self,
        actor: Actor,
        entry: Entry,
        skill: RegisteredSkill,
        method: str,
        arguments: dict[str, Json],
        *,
        origin: Origin,
    ) -> Json:
        """Call what a device serves without registering it; who calls here has checked the actor's right.

        Raises:
            CallError: If the actor may not, or there is no result.
        """
        found = Found(entry, skill, skill.methods[method])
        call = SkillCall(on_device(found), arguments)
        request = _request(actor, call, [found], found.method.flags)
        return await self.run(actor, call, lambda: self.caller.call(request), origin=origin)

    @contextmanager
    def _recorded(self, actor: Actor, call: SkillCall, origin: Origin) -> Iterator[CallRecord]:
        began = time.monotonic()
        # What is neither a result nor an error of ours was cancelled.
        record = _record(actor, call, origin, ErrorCode.CANCELLED)
        try:
            yield record
        except CallError as error:
            record.outcome = error.code.value
            raise
        else:
            record.outcome = "result"
        finally:
            record.at = now()
            self.trail.note(record)
            if self.on_ended is not None:
                where = "hub" if call.target.is_hub_own else "device"
                self.on_ended(where, record.outcome, time.monotonic() - began)

    def open_request(self, device: str, call: str) -> CallRequest | None:
        return self.caller.open_request(device, call)

    def note_refused(self, actor: Actor, call: SkillCall, *, origin: Origin) -> None:
        # It was refused before it came here: a person did not confirm it.
        self.trail.note(_record(actor, call, origin, ErrorCode.REFUSED))

    async def _call_one(self, actor: Actor, call: SkillCall) -> Json:
        target, seen = call.target, self.directory.seen_by(actor.user)
        # Looked up again: what the device declares now is what counts.
        found = seen.find_connected(target.device, target.skill, target.method.name)
        _permit(actor, call, found.method.flags)
        try:
            return await self.caller.call(
                _request(actor, call, [found], found.method.flags), call.on_progress
            )
        except CallError as error:
            raise _named(error, found, seen) from None

    async def _call_any(self, actor: Actor, call: SkillCall) -> Served:
        target = call.target
        offered = [
            found
            for found in self.directory.seen_by(actor.user).candidates(target.skill, target.method.name)
            if found.method.parameters == target.method.parameters
        ]
        if not offered:
            raise CallError(
                ErrorCode.OFFLINE,
                "no device that is online has {skill}.{method} with these parameters",
                skill=target.skill,
                method=target.method.name,
                hint="Search for the skill again.",
                device=HUB_KEY,
            )
        # One that did not answer costs seconds, so it is asked last until it is heard again.
        offered.sort(key=self._is_silent)
        flags = strictest([found.method.flags for found in offered])
        _permit(actor, call, flags)
        return await call_any(
            self.caller,
            [found.entry.id for found in offered],
            _request(actor, call, offered, flags),
            call.on_progress,
            on_silent=self._note_silent,
        )

    def _note_silent(self, device: str) -> None:
        if (entry := self.directory.get(device)) is not None:
            self._silent[device] = entry.last_heartbeat

    def _is_silent(self, found: Found[Entry]) -> bool:
        entry = found.entry
        if entry.id in self._silent and self._silent[entry.id] != entry.last_heartbeat:
            del self._silent[entry.id]
        return entry.id in self._silent


def _named(error: CallError, found: Found[Entry], seen: SkillDirectory[Entry]) -> CallError:
    """Add to an error the name of the device and, where that helps, where else the skill is."""
    device = found.entry.device
    message, hint = error.message, error.hint
    if device.display_name not in message:
        message = Phrase("{device}: {reason}", device=device.display_name, reason=Phrase(message))
    if error.code is ErrorCode.OFFLINE:
        others = [
            entry.key
            for entry in seen.entries()
            if entry is not found.entry and entry.connected and _has(entry, found)
        ]
        hint = (
            Phrase(
                "{skill}.{method} is also on {elsewhere}",
                skill=found.skill.name,
                method=found.method.name,
                elsewhere=", ".join(others),
            )
            if others
            else hint
        )
    return CallError(error.code, message, hint=hint, device=found.entry.key, exception=error.exception)


def _has(entry: Entry, found: Found[Entry]) -> bool:
    skill = entry.skills.get(found.skill.name)
    return skill is not None and found.method.name in skill.methods


def _permit(actor: Actor, call: SkillCall, flags: MethodFlags) -> None:
    target = call.target
    name = f"{target.skill}.{target.method.name}"
    if actor.read_only and not flags.read_only:
        raise CallError(
            ErrorCode.REFUSED,
            "{user} has read-only access; {name} modifies state",
            user=actor.user,
            name=name,
            hint="Ask a user with full access.",
            device=target.device,
        )
    if flags.confirm and not call.confirmed:
        raise CallError(
            ErrorCode.NEEDS_CONFIRMATION,
            "{name} needs a person's confirmation",
            name=name,
            device=target.device,
        )


def _request(
    actor: Actor, call: SkillCall, offered: Sequence[Found[Entry]], flags: MethodFlags
) -> CallRequest:
    found = offered[0]
    return CallRequest(
        device=found.entry.id,
        skill=found.skill.name,
        method=found.method.name,
        actor=actor,
        kwargs=dict(call.arguments),
        ttl_ms=min(found.method.timeout_ms + limits.CALL_MARGIN_MS, MAX_TTL_MS),
        confirmed=call.confirmed,
        read_only=flags.read_only,
        idempotent=flags.idempotent,
        interactive=actor.watcher is None,
        names={each.entry.id: each.entry.key for each in offered},
    )


def _record(actor: Actor, call: SkillCall, origin: Origin, outcome: ErrorCode) -> CallRecord:
    return CallRecord(
        user=actor.user,
        actor=actor.model_dump(exclude_defaults=True),
        device=call.target.device,
        skill=call.target.skill,
        method=call.target.method.name,
        arguments=arguments_digest(without_secrets(call.target.method, call.arguments)),
        outcome=outcome.value,
        read_only=call.target.method.flags.read_only,
        **vars(origin),
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
        return await self.manager.run(self.actor, call, work, origin=self._origin(call))

    def note_refused(self, call: SkillCall) -> None:
        self.manager.note_refused(self.actor, call, origin=self._origin(replace(call, confirmed=False)))

    def _origin(self, call: SkillCall) -> Origin:
        origin = self.origin()
        return origin if call.confirmed else replace(origin, confirmed_by=None)
