"""Methods of skills that run elsewhere: arguments are bound here and read there."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_core.schemas.arguments import bind
from agent_core.skills.loading.exposure import LoadedMethod, LoadedSkill
from agent_core.skills.schema import MethodSchema
from contracts.devices.registration import Method, Registration
from contracts.wire import Json

Invocation = Callable[[str, str, dict[str, Json], Callable[[Json], Awaitable[None]]], Awaitable[Json]]
"""Calls a method: skill, method, arguments by name, and what takes its progress."""


@dataclass(frozen=True)
class RemoteSchema(MethodSchema):
    """A contract without the types behind it."""

    def coerce(self, args: Sequence[Json], kwargs: Mapping[str, Json]) -> tuple[list[Any], dict[str, Any]]:
        return [], bind(self.contract, args, kwargs)


@dataclass(frozen=True)
class RemoteMethod(LoadedMethod):
    """A method whose function takes arguments by name, as a dictionary, and a sink of progress."""


def remote_skill(registration: Registration, *, concurrency: int, invoke: Invocation) -> LoadedSkill:
    """Return a skill whose calls are passed on."""

    def method(contract: Method) -> RemoteMethod:
        async def function(arguments: dict[str, Json], progress: Callable[[Json], Awaitable[None]]) -> Json:
            return await invoke(registration.skill, contract.name, arguments, progress)

        return RemoteMethod(RemoteSchema(contract, {}, {}), function, None)

    methods = {contract.name: method(contract) for contract in registration.methods}
    return LoadedSkill(registration.skill, object(), methods, registration, concurrency)
