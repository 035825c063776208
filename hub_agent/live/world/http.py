"""The world over HTTP: ``GET /api/world``."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat.http.requests import answer, read_query
from hub_agent.live.world.world import World
from hub_registry.access.bearer import Gate

_Name = Annotated[str, Field(min_length=1, max_length=256)]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    area: _Name | None = None
    kind: _Name | None = None
    name: _Name | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 200


def world_routes(world: World, gate: Gate) -> list[BaseRoute]:
    """Make the route."""
    may_look = gate.require("chat")

    async def look(request: Request) -> Response:
        await may_look(request)
        query = read_query(request, _Query)
        view = world.view(area=query.area, kind=query.kind, name=query.name, limit=query.limit)
        return answer(await world.seen(view))

    return [Route("/api/world", look)]
