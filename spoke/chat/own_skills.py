"""The skills of this device, found and called without the hub."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agent_core.finder import DirectoryCatalogue, SkillFinder
from agent_core.search.catalogue import SkillCall
from agent_core.search.directory import RegisteredSkill, SkillDirectory
from contracts.devices.joining import DeviceProfile
from contracts.devices.registration import Registration
from contracts.devices.rpc import MAX_TTL_MS, Actor, Call
from contracts.errors import CallError, ErrorCode, StillRunning
from contracts.wire import Json
from identity.ids import uuid7
from spoke.skill_host import OWN_INSTANCE, SkillHost


@dataclass(frozen=True)
class OwnDevice:
    """This device as its own directory knows it; see ``DeviceEntry``."""

    id: str
    profile: DeviceProfile
    skills: Mapping[str, RegisteredSkill]
    audience: str | None = None
    connected: bool = True
    revoked: bool = False
    unavailable: str | None = None
    last_heartbeat: datetime | None = None

    @property
    def key(self) -> str:
        return self.profile.key

    @property
    def display_name(self) -> str:
        return self.profile.name

    @property
    def names(self) -> tuple[str, ...]:
        return (self.profile.name, *self.profile.aliases)

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(place for place in (self.profile.area, self.profile.floor) if place)


class OwnDirectory(SkillDirectory[OwnDevice]):
    """The directory of a device without its hub: this device alone."""

    routes_agnostic = False

    def put(self, own: OwnDevice) -> None:
        """Set what is known of this device."""
        self._entries = {own.id: own}
        self._by_key = {own.key: own}
        self.changed(own.id)

    def unknown_device(self, name: str) -> CallError:
        """Make the error for any other device."""
        (own,) = self._entries.values()
        return CallError(
            ErrorCode.OFFLINE,
            f"{name} cannot be reached while the hub is away",
            hint=f"Only this device can be used now: devices.{own.key}.",
            device=name,
        )


class OwnSkills(DirectoryCatalogue):
    """A ``Catalogue`` over the skills of one device, which is the current one of every turn.

    Args:
        device: Its id.
        profile: Returns its names as the hub last sent them.
    """

    def __init__(
        self,
        registrations: Iterable[Registration],
        *,
        device: str,
        profile: Callable[[], DeviceProfile],
    ) -> None:
        self._directory = OwnDirectory()
        super().__init__(SkillFinder(self._directory), device, user=None)
        self._profile = profile
        self.own = OwnDevice(device, profile(), {})
        self.offer(registrations)

    def offer(self, registrations: Iterable[Registration]) -> None:
        """Offer these skills, in place of those before."""
        skills = {
            each.skill: RegisteredSkill(each, "", {method.name: method for method in each.methods})
            for each in registrations
        }
        self.own = replace(self.own, skills=skills)
        self._directory.put(self.own)

    def close(self) -> None:
        self.finder.close()

    def refresh(self) -> None:
        """Apply the names that the hub has given the device since the last call."""
        profile = self._profile()
        if profile != self.own.profile:
            self.own = replace(self.own, profile=profile)
            self._directory.put(self.own)


@dataclass(frozen=True)
class OwnCaller:
    """Calls the skills of this device for one turn, the way the hub's calls go; see ``SkillCaller``.

    Attributes:
        epoch: Of this start of the spoke.
    """

    host: SkillHost
    actor: Actor
    epoch: int

    async def call(self, call: SkillCall) -> Json:
        """See ``agent_core.tools.skill_calls.SkillCaller``."""
        sent = Call(
            id=uuid7(),
            instance=OWN_INSTANCE,
            epoch=self.epoch,
            issued_at=datetime.now(UTC),
            ttl_ms=MAX_TTL_MS,
            actor=self.actor,
            confirmed=call.confirmed,
            kwargs=dict(call.arguments),
        )

        async def report(value: Json) -> None:
            if call.on_progress is not None:
                call.on_progress(value)

        try:
            result = await self.host.execute(sent, call.target.skill, call.target.method.name, report)
        except StillRunning:
            raise asyncio.CancelledError from None
        if (task := asyncio.current_task()) is not None and task.cancelling():
            # The method came to its end all the same, and has its line in the audit log; the turn has not.
            raise asyncio.CancelledError
        return result
