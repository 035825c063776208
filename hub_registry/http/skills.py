"""Skills: all of them, searched, described."""

from contextlib import aclosing
from typing import Annotated

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from agent_core.search import targets
from agent_core.search.catalogue import FoundMethod, SearchPage, raised_flags
from chat.http.requests import Answer, answer, answer_joined, read, read_query
from contracts.wire import Part, Strict
from hub_registry.access.bearer import Gate
from hub_registry.devices.review import APPROVED_RANK
from hub_registry.registry import Registry

_ALL_BYTES = 1024 * 1024
"""A person's list of all skills; the 4 kB of a search are for a model's context."""


class ResultBody(Strict):
    """A skill method with the devices that have it.

    Attributes:
        path: What to call, on the first of the devices.
        devices: Keys of the devices, the current one first.
        more_devices: How many further ones there are.
        flags: Those that are set, for example ``read_only``.
        available: Whether the path can be called right now.
        unavailable: By device, why it cannot be called right now.
    """

    path: str
    signature: str
    summary: str
    devices: list[str]
    more_devices: int
    flags: list[str]
    available: bool
    unavailable: dict[str, str]

    @classmethod
    def of(cls, found: FoundMethod) -> "ResultBody":
        """Make it of a search result."""
        reasons = dict(found.offline)
        if found.unavailable and not reasons:
            reasons = {found.devices[0]: found.unavailable}
        return cls(
            path=found.path,
            signature=found.signature,
            summary=found.summary,
            devices=list(found.devices),
            more_devices=found.more_devices,
            flags=raised_flags(found.flags),
            available=not found.unavailable,
            unavailable=reasons,
        )


class SearchBody(Strict):
    """What a search found.

    Attributes:
        results: Best first.
        more: How many further results there are.
        hint: How to see them; empty if there are none.
        silent: Names of the devices whose skills are left out because they were silent for too long.
    """

    results: list[ResultBody]
    more: int
    hint: str
    silent: list[str]

    @classmethod
    def of(cls, page: SearchPage, silent: list[str]) -> "SearchBody":
        """Make it of a page of results."""
        hint = "search with other words, or describe one path" if page.more else ""
        results = [ResultBody.of(found) for found in page.results]
        return cls(results=results, more=page.more, hint=hint, silent=silent)


class Description(Part):
    """What a device, a skill or a method is, in words."""

    path: str
    text: str


class ProvidersBody(Strict):
    """The order of the providers of a device-agnostic skill, by any of their names."""

    devices: list[str]


class ProviderAnswer(Strict):
    """A device that serves a device-agnostic skill, in the order of calls.

    Attributes:
        preferred: Whether it has its place from the owner; others are called after these.
    """

    id: str
    key: str
    name: str
    online: bool
    preferred: bool


class _Search(Strict):
    """Query parameters of a search; ``device`` is the current one, which the token of a device implies."""

    q: Annotated[str, Field(max_length=1_000)] = ""
    limit: Annotated[int, Field(gt=0, le=1_000)] = 20
    device: Annotated[str | None, Field(max_length=64)] = None


class _Describe(Strict):
    """Query parameters of a description."""

    path: Annotated[str, Field(max_length=300)]


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    may_look = gate.require("chat", "call")

    async def list_skills(request: Request) -> Answer[SearchBody]:
        user = (await may_look(request)).user.id
        results: list[bytes] = []
        room = _ALL_BYTES
        async with aclosing(registry.search.listing(user)) as listing:
            async for found in listing:
                results.append(to_json(ResultBody.of(found)))
                room -= len(results[-1])
                if room < 0:
                    break
        more = max(0, registry.search.total(user) - len(results))
        page = SearchBody.of(SearchPage((), more), registry.search.silent(user))
        return answer_joined(page, "results", results)

    async def search_skills(request: Request) -> Answer[SearchBody]:
        bearer, query = await may_look(request), read_query(request, _Search)
        user = bearer.user.id
        directory = registry.directory.seen_by(user)
        current = bearer.device or (query.device and directory.resolve(query.device).id)
        found = await registry.search.find(query.q, current=current, user=user, limit=query.limit)
        return answer(SearchBody.of(found, registry.search.silent(user)))

    async def describe_skill(request: Request) -> Answer[Description]:
        bearer, path = await may_look(request), read_query(request, _Describe).path
        directory = registry.directory.seen_by(bearer.user.id)
        text = targets.describe(directory, path, current=bearer.device)
        return answer(Description(path=path, text=text))

    async def list_providers(request: Request) -> Answer[list[ProviderAnswer]]:
        await gate.require_admin(request)
        return answer(_providers(registry, request.path_params["skill"]))

    async def prefer_providers(request: Request) -> Answer[list[ProviderAnswer]]:
        await gate.require_admin(request)
        skill, body = request.path_params["skill"], await read(request, ProvidersBody)
        await registry.prefer(skill, [registry.directory.resolve(name) for name in body.devices])
        return answer(_providers(registry, skill))

    return [
        Route("/api/skills/{skill}/providers", list_providers),
        Route("/api/skills/{skill}/providers", prefer_providers, methods=["PUT"]),
        Route("/api/skills", list_skills),
        Route("/api/skills/search", search_skills),
        Route("/api/skills/describe", describe_skill),
    ]


def _providers(registry: Registry, skill: str) -> list[ProviderAnswer]:
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
