"""Skills: all of them, searched, described."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from agent_core.search import targets
from agent_core.search.catalogue import FoundMethod, SearchPage, raised_flags
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.http.parts import Body
from hub_registry.registry import Registry

_ALL_BYTES = 1024 * 1024
"""A person's list of all skills; the 4 kB of a search are for a model's context."""


class ResultBody(Body):
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


class SearchBody(Body):
    """What a search found.

    Attributes:
        results: Best first.
        more: How many further results there are.
        hint: How to see them; empty if there are none.
    """

    results: list[ResultBody]
    more: int
    hint: str

    @classmethod
    def of(cls, page: SearchPage) -> "SearchBody":
        """Make it of a page of results."""
        hint = "search with other words, or describe one path" if page.more else ""
        return cls(results=[ResultBody.of(found) for found in page.results], more=page.more, hint=hint)


def add(router: APIRouter, registry: Registry, gate: Gate) -> None:
    """Add the routes."""
    anyone = Depends(gate.require("chat", "call"))

    @router.get("/api/skills", dependencies=[anyone])
    async def list_skills() -> SearchBody:
        return SearchBody.of(registry.search.search(max_bytes=_ALL_BYTES))

    @router.get("/api/skills/search")
    async def search_skills(
        bearer: Annotated[Bearer, anyone],
        q: Annotated[str, Query(max_length=1_000)] = "",
        limit: Annotated[int, Query(gt=0, le=1_000)] = 20,
    ) -> SearchBody:
        return SearchBody.of(registry.search.search(q, current=bearer.device, limit=limit))

    @router.get("/api/skills/describe")
    async def describe_skill(
        bearer: Annotated[Bearer, anyone], path: Annotated[str, Query(max_length=300)]
    ) -> dict[str, str]:
        return {"path": path, "text": targets.describe(registry.directory, path, current=bearer.device)}
