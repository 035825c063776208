"""Skill methods with their schemas, for programs that make forms and controls of them."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from agent_core.search.catalogue import raised_flags
from agent_core.search.directory import DeviceEntry, RegisteredSkill
from chat.http.requests import Answer, answer_joined, read_query
from contracts.devices.registration import Method
from contracts.names import SkillName
from contracts.wire import Json, Strict
from hub_registry.access.bearer import Gate
from hub_registry.devices.directory import Entry
from hub_registry.registry import Registry

_MOST_BYTES = 2 * 1024 * 1024
"""Of one answer: a hundred devices with ten skills each."""


class MethodBody(Strict):
    """A method; see `contracts.devices.registration.Method`."""

    name: str
    path: str
    signature: str
    summary: str
    doc: str
    parameters: dict[str, Json]
    result: dict[str, Json] | None
    flags: list[str]
    digest: str
    sentences: dict[str, list[str]]
    timeout_s: float

    @classmethod
    def of(cls, method: Method, path: str) -> "MethodBody":
        """Make it of what is registered."""
        return cls(
            name=method.name,
            path=path,
            signature=method.signature,
            summary=method.summary,
            doc=method.doc,
            parameters=method.parameters,
            result=method.result,
            flags=raised_flags(method.flags),
            digest=method.digest,
            sentences=method.sentences,
            timeout_s=method.timeout_ms / 1000,
        )


class SkillBody(Strict):
    """A skill of a device, with methods that were asked for.

    Attributes:
        device: Its key; ``hub`` for a skill of the hub itself.
        unavailable: Why it cannot be called right now; empty if it can.
    """

    device: str
    device_name: str
    area: str | None
    unavailable: str
    skill: str
    doc: str
    device_agnostic: bool
    methods: list[MethodBody]


class MethodsBody(Strict):
    """Skills, and how many more did not fit into the answer."""

    skills: list[SkillBody]
    more: int


class _Query(Strict):
    """Query parameters.

    Attributes:
        arguments: Only methods with at most so many arguments.
    """

    device: Annotated[str | None, Field(max_length=64)] = None
    skill: SkillName | None = None
    arguments: Annotated[int | None, Field(ge=0, le=200)] = None


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the route."""
    may_look = gate.require("chat", "call")

    async def list_methods(request: Request) -> Answer[MethodsBody]:
        bearer, query = await may_look(request), read_query(request, _Query)
        directory = registry.directory.seen_by(bearer.user.id)
        entries: list[DeviceEntry] = [each for each in directory.entries() if not each.revoked]
        if query.device is None:
            entries.append(directory.hub)
        else:
            own = query.device == directory.hub.key
            entries = [directory.hub if own else directory.resolve(query.device)]
        made: list[bytes] = []
        more, room = 0, _MOST_BYTES
        for entry in entries:
            for body in _skills(entry, query):
                made.append(to_json(body))
                room -= len(made[-1])
                if room < 0:
                    made.pop()
                    more += 1
        return answer_joined(MethodsBody(skills=[], more=more), "skills", made)

    return [Route("/api/skills/methods", list_methods)]


def _skills(entry: DeviceEntry, query: _Query) -> Iterator[SkillBody]:
    for skill in entry.skills.values():
        if query.skill not in (None, skill.name):
            continue
        if methods := [method for method in skill.methods.values() if _fits(method, query.arguments)]:
            yield _body(entry, skill, methods)


def _fits(method: Method, arguments: int | None) -> bool:
    properties = method.parameters.get("properties")
    return arguments is None or not isinstance(properties, dict) or len(properties) <= arguments


def _body(entry: DeviceEntry, skill: RegisteredSkill, methods: list[Method]) -> SkillBody:
    return SkillBody(
        device=entry.key,
        device_name=entry.display_name,
        area=skill.registration.area or (entry.device.area if isinstance(entry, Entry) else None),
        unavailable=entry.unavailable or "",
        skill=skill.name,
        doc=skill.registration.doc,
        device_agnostic=skill.device_agnostic,
        methods=[MethodBody.of(each, f"devices.{entry.key}.{skill.name}.{each.name}") for each in methods],
    )
