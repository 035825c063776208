"""Skills: ``/api/skills``, ``strawberry skills`` and their page."""

from collections.abc import Iterable, Iterator
from contextlib import aclosing, suppress
from itertools import islice
from typing import Annotated, Final

from pydantic import Field
from pydantic_core import to_json

from agent_core.search import targets
from agent_core.search.catalogue import FailingSkill, FoundMethod, raised_flags
from agent_core.search.directory import DeviceEntry, RegisteredSkill
from chat.operations import ADMIN, Command, Needs, Resource
from contracts.answers.skills import (
    Description,
    FailingBody,
    MethodBody,
    MethodsBody,
    ProviderAnswer,
    ResultBody,
    SearchBody,
    SkillBody,
    SkillLabels,
)
from contracts.devices.registration import Method
from contracts.errors import CallError
from contracts.names import SkillName
from hub_registry import limits
from hub_registry.access.bearer import Bearer
from hub_registry.devices.directory import Entry
from hub_registry.devices.review import APPROVED_RANK
from hub_registry.registry import Registry

_LOOK: Final = Needs(("chat", "call"), devices=True)


skills: Resource[Registry, Bearer] = Resource("skills", "/api/skills")


@skills.get(_LOOK)
async def list_skills(registry: Registry, asking: Bearer) -> SearchBody:
    """List the methods of all skills.

    `unavailable` gives a reason per device, `silent` names the devices whose skills are left out because they
    were not heard for half an hour, and `failing` skills that did not load or whose task fails.
    """
    user = asking.user.id
    results: list[ResultBody] = []
    room = limits.ALL_SKILLS_BYTES
    async with aclosing(registry.search.listing(user)) as listing:
        async for found in listing:
            results.append(_result(found))
            room -= len(to_json(results[-1]))
            if room < 0:
                break
    more = max(0, registry.search.total(user) - len(results))
    failing = islice(registry.search.failing(user=user), limits.FAILING_SKILLS)
    return _page(results, more, registry.search.silent(user), failing)


@skills.get(_LOOK, "/search")
async def search_skills(
    registry: Registry,
    asking: Bearer,
    q: Annotated[str, Field(max_length=1_000)] = "",
    limit: Annotated[int, Field(gt=0, le=1_000)] = 20,
    device: Annotated[str | None, Field(max_length=64)] = None,
) -> SearchBody:
    """Find methods, the best match first.

    Args:
        device: The current one, which the token of a device implies.
    """
    user = asking.user.id
    current = asking.device or (device and registry.directory.seen_by(user).resolve(device).id)
    found = await registry.search.find(q, current=current, user=user, limit=limit)
    results = [_result(each) for each in found.results]
    return _page(results, found.more, registry.search.silent(user), found.failing)


@skills.get(_LOOK, "/describe", command=Command("describe PATH", says="{text}"))
async def describe_skill(
    registry: Registry, asking: Bearer, path: Annotated[str, Field(max_length=300)]
) -> Description:
    """Show a skill, or one of its methods.

    Args:
        path: for example LampSkill, LampSkill.turn_on or devices.bedroom_pc.LampSkill.turn_on
    """
    directory = registry.directory.seen_by(asking.user.id)
    text = targets.describe(directory, path, current=asking.device)
    with suppress(CallError):  # a skill
        method = targets.find_named(directory, path, current=asking.device).method
        said = (
            f"# say ({language}): {each}" for language, texts in method.sentences.items() for each in texts
        )
        text = "\n".join((text, *islice(said, limits.SENTENCES_DESCRIBED)))
    return Description(path=path, text=text)


@skills.get(_LOOK, "/methods")
async def list_methods(
    registry: Registry,
    asking: Bearer,
    device: Annotated[str | None, Field(max_length=64)] = None,
    skill: SkillName | None = None,
    arguments: Annotated[int | None, Field(ge=0, le=200)] = None,
) -> MethodsBody:
    """List methods with the JSON Schema of arguments and result.

    `methods` have `name`, `path`, `signature`, `summary`, `doc`, `parameters`, `result`, `flags`, `digest`,
    `sentences` and `timeout_s`. `more` is how many skills were left out of 2 MiB.

    Args:
        arguments: How many a method may have at most.
    """
    directory = registry.directory.seen_by(asking.user.id)
    entries: list[DeviceEntry] = [each for each in directory.entries() if not each.revoked]
    if device is None:
        entries.append(directory.hub)
    else:
        own = device == directory.hub.key
        entries = [directory.hub if own else directory.resolve(device)]
    found: list[SkillBody] = []
    more, room = 0, limits.ALL_METHODS_BYTES
    for entry in entries:
        for body in _skills(entry, skill, arguments):
            room -= len(to_json(body))
            if room < 0:
                more += 1
            else:
                found.append(body)
    return MethodsBody(skills=found, more=more)


@skills.get(_LOOK, "/labels")
async def list_labels(registry: Registry, asking: Bearer) -> list[SkillLabels]:
    """List what skills and their members are called in each language, for those that declare it.

    What does not fit into 2 MiB is left out.
    """
    room, found = limits.ALL_METHODS_BYTES, list[SkillLabels]()
    directory = registry.directory.seen_by(asking.user.id)
    entries: list[DeviceEntry] = [directory.hub, *directory.entries()]
    for entry in entries:
        for skill in entry.skills.values():
            if labels := skill.registration.labels:
                found.append(SkillLabels(device=entry.id, skill=skill.name, labels=labels))
                room -= len(to_json(found[-1]))
                if room < 0:
                    return found[:-1]
    return found


@skills.get(ADMIN, "/{skill}/providers")
async def list_providers(registry: Registry, asking: Bearer, skill: str) -> list[ProviderAnswer]:
    """List the devices that serve a device-agnostic skill, in the order of calls."""
    return [
        ProviderAnswer(
            id=entry.id,
            key=entry.key,
            name=entry.display_name,
            online=entry.connected,
            preferred=entry.skills[skill].rank < APPROVED_RANK,
        )
        for entry in registry.directory.providers(skill)
    ]


@skills.put(ADMIN, "/{skill}/providers")
async def prefer_providers(
    registry: Registry, asking: Bearer, skill: str, devices: list[str]
) -> list[ProviderAnswer]:
    """Set which devices come first, in this order, and approve them as providers.

    Args:
        devices: Any of their names; an empty list resets the order.
    """
    await registry.prefer(skill, [registry.directory.resolve(name) for name in devices])
    return await list_providers(registry, asking, skill)


def _page(
    results: list[ResultBody], more: int, silent: list[str], failing: Iterable[FailingSkill]
) -> SearchBody:
    hint = "search with other words, or describe one path" if more else ""
    bodies = [FailingBody(device=e.device, skill=e.skill, reason=e.reason) for e in failing]
    return SearchBody(results=results, more=more, hint=hint, silent=silent, failing=bodies)


def _skills(entry: DeviceEntry, named: str | None, arguments: int | None) -> Iterator[SkillBody]:
    for skill in entry.skills.values():
        if named not in (None, skill.name):
            continue
        if methods := [method for method in skill.methods.values() if _fits(method, arguments)]:
            yield _body(entry, skill, methods)


def _fits(method: Method, arguments: int | None) -> bool:
    properties = method.parameters.get("properties")
    return arguments is None or not isinstance(properties, dict) or len(properties) <= arguments


def _body(entry: DeviceEntry, skill: RegisteredSkill, methods: list[Method]) -> SkillBody:
    return SkillBody(
        device=entry.key,
        device_name=entry.display_name,
        area=skill.registration.area or (entry.device.area if isinstance(entry, Entry) else None),
        unavailable=entry.unavailable or skill.unavailable,
        skill=skill.name,
        doc=skill.registration.doc,
        device_agnostic=skill.device_agnostic,
        labels=skill.registration.labels,
        methods=[_method(each, f"devices.{entry.key}.{skill.name}.{each.name}") for each in methods],
    )


def _result(found: FoundMethod) -> ResultBody:
    reasons = dict(found.offline)
    if found.unavailable and not reasons:
        reasons = {found.devices[0]: found.unavailable}
    return ResultBody(
        path=found.path,
        signature=found.signature,
        summary=found.summary,
        devices=list(found.devices),
        more_devices=found.more_devices,
        flags=raised_flags(found.flags),
        available=not found.unavailable,
        unavailable=reasons,
    )


def _method(method: Method, path: str) -> MethodBody:
    return MethodBody(
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
