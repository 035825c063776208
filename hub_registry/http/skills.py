"""Skills: all of them, searched, described."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from agent_core.search.index import SearchAnswer
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.devices import targets
from hub_registry.registry import Registry

_ALL_BYTES = 1024 * 1024
"""A person's list of all skills; the 4 kB of a search are for a model's context."""


def add(router: APIRouter, registry: Registry, gate: Gate) -> None:
    """Add the routes."""
    anyone = Depends(gate.require("chat", "call"))

    @router.get("/api/skills", dependencies=[anyone])
    async def list_skills() -> SearchAnswer:
        return registry.search.search(max_bytes=_ALL_BYTES)

    @router.get("/api/skills/search")
    async def search_skills(
        bearer: Annotated[Bearer, anyone],
        q: Annotated[str, Query(max_length=1_000)] = "",
        limit: Annotated[int, Query(gt=0, le=1_000)] = 20,
    ) -> SearchAnswer:
        return registry.search.search(q, current=bearer.device, limit=limit)

    @router.get("/api/skills/describe")
    async def describe_skill(
        bearer: Annotated[Bearer, anyone], path: Annotated[str, Query(max_length=300)]
    ) -> dict[str, str]:
        return {"path": path, "text": targets.describe(registry.directory, path, current=bearer.device)}
