"""The skills of this device as a turn of its own sees them, and the way by which they are called."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from agent_core.search.catalogue import (
    FoundMethod,
    SearchPage,
    Target,
    describe_target,
    method_info,
    raised_flags,
    split_path,
)
from agent_core.search.index import HUB, IndexedDevice, SearchResult, SkillIndex
from agent_core.search.nearest import suggestion
from agent_core.sentences.index import SentenceIndex
from bus.rpc import StillRunning
from contracts.errors import CallError, ErrorCode
from contracts.registration import MethodFlags, Registration
from contracts.rpc import MAX_TTL_MS, Actor, Call
from contracts.wire import Json
from identity.ids import uuid7
from spoke.skill_host import SkillHost

_INSTANCE: Final = "spoke"
"""Who calls, in place of a process of the hub."""


class OwnSkills:
    """A ``Catalogue`` over the skills of one device, which is the current one of every turn.

    Args:
        device: Its id, by which it also goes in paths.
        name: What people call it.

    Attributes:
        device: Its id.
        name: What people call it.
        sentences: What can be said without a model.
    """

    def __init__(self, registrations: Iterable[Registration], *, device: str, name: str) -> None:
        self.device = device
        self.sentences = SentenceIndex()
        self.name = name
        self._skills = {each.skill: each for each in registrations}
        self._index = SkillIndex()
        self._index.set_device(IndexedDevice(device, device, (name,)))
        for registration in self._skills.values():
            self._index.put_skill(device, registration)
            self.sentences.put(self._targets(registration))

    def close(self) -> None:
        """Give the memory back."""
        self._index.close()

    async def search(self, query: str) -> SearchPage:
        """See ``agent_core.search.catalogue.Catalogue``."""
        answer = self._index.search(query, current=self.device)
        return SearchPage(tuple(map(_found, answer.results)), len(answer.results) + answer.more)

    async def resolve(self, path: str) -> Target:
        """See ``agent_core.search.catalogue.Catalogue``."""
        parts = split_path(path)
        if parts.device not in (None, self.device, HUB):
            raise CallError(
                ErrorCode.OFFLINE,
                f"{parts.device} cannot be reached while the hub is away",
                hint=f"Only this device can be used now: devices.{self.device}.",
                device=parts.device,
            )
        return self._target(parts.skill, parts.method)

    async def describe(self, path: str) -> str:
        """See ``agent_core.search.catalogue.Catalogue``."""
        return describe_target(await self._named(path), (self.device,))

    async def describe_skill(self, name: str) -> dict[str, Json]:
        """See ``agent_core.search.catalogue.Catalogue``."""
        registration = self._skills.get(name)
        if registration is None:
            return method_info(await self._named(name), (self.device,))
        return {
            "name": name,
            "docstring": registration.doc,
            "devices": [self.device],
            "functions": [
                {
                    "name": target.method.name,
                    "path": target.path,
                    "signature": target.method.signature,
                    "summary": target.method.summary,
                    "flags": raised_flags(target.method.flags),
                }
                for target in self._targets(registration)
            ],
        }

    async def _named(self, name: str) -> Target:
        """Find a method by its path, by ``Skill.method``, or by its name alone."""
        match name.strip().partition("(")[0].split("."):
            case [skill, method] if skill in self._skills:
                return self._target(skill, method)
            case [method]:
                known: defaultdict[str, list[Target]] = defaultdict(list)
                for registration in self._skills.values():
                    for target in self._targets(registration):
                        known[target.method.name].append(target)
                if method not in known:
                    raise _unknown(f"{method[:200]!r}", suggestion(method[:200], known))
                return known[method][0]
            case parts:
                return await self.resolve(".".join(parts))

    def _target(self, skill: str, method: str) -> Target:
        registration = self._skills.get(skill)
        if registration is None:
            raise _unknown(f"a skill {skill[:200]!r}", suggestion(skill[:200], self._skills))
        targets = {target.method.name: target for target in self._targets(registration)}
        if method not in targets:
            raise _unknown(f"{skill}.{method[:200]}", suggestion(method[:200], targets))
        return targets[method]

    def _targets(self, registration: Registration) -> list[Target]:
        key = HUB if registration.device_agnostic else self.device
        return [
            Target(
                f"devices.{key}.{registration.skill}.{method.name}",
                self.device,
                self.name,
                registration.skill,
                method,
            )
            for method in registration.methods
        ]


@dataclass(frozen=True)
class OwnCaller:
    """Calls the skills of this device for one turn, the way the hub's calls go; see ``SkillCaller``.

    Attributes:
        epoch: Of this start of the spoke.
    """

    host: SkillHost
    actor: Actor
    epoch: int

    async def call(
        self,
        target: Target,
        arguments: Mapping[str, Json],
        *,
        confirmed: bool,
        on_progress: Callable[[Json], None],
    ) -> Json:
        """See ``agent_core.tools.skill_calls.SkillCaller``."""
        call = Call(
            id=uuid7(),
            instance=_INSTANCE,
            epoch=self.epoch,
            issued_at=datetime.now(UTC),
            ttl_ms=MAX_TTL_MS,
            actor=self.actor,
            confirmed=confirmed,
            kwargs=dict(arguments),
        )

        async def report(value: Json) -> None:
            on_progress(value)

        try:
            result = await self.host.execute(call, target.skill, target.method.name, report)
        except StillRunning:
            raise asyncio.CancelledError from None
        if (task := asyncio.current_task()) is not None and task.cancelling():
            # The method came to its end all the same, and has its line in the audit log; the turn has not.
            raise asyncio.CancelledError
        return result


def _unknown(what: str, hint: str) -> CallError:
    return CallError(ErrorCode.UNKNOWN_SKILL, f"this device does not have {what}", hint=hint)


def _found(result: SearchResult) -> FoundMethod:
    return FoundMethod(
        path=result.path,
        signature=result.signature,
        summary=result.summary,
        devices=tuple(result.devices),
        flags=MethodFlags.model_validate(dict.fromkeys(result.flags, True)),
    )
