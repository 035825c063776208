"""Captures over HTTP: ``/api/captures``."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat.http.requests import answer, read
from hub_agent.live.captures.captures import Captures
from hub_agent.live.captures.spec import CaptureSpec
from hub_registry.access.bearer import Gate


def capture_routes(captures: Captures, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    may_look, may_change = gate.require_user("chat"), gate.require_user("call")

    async def list_captures(request: Request) -> Response:
        bearer = await may_look(request)
        return answer(await captures.list(bearer.user))

    async def start(request: Request) -> Response:
        bearer = await may_change(request)
        return answer(await captures.start(bearer.user, await read(request, CaptureSpec)), status=201)

    async def get(request: Request) -> Response:
        bearer = await may_look(request)
        return answer(await captures.get(bearer.user, request.path_params["capture"]))

    async def stop(request: Request) -> Response:
        bearer = await may_change(request)
        return answer(await captures.stop(bearer.user, request.path_params["capture"]))

    return [
        Route("/api/captures", list_captures),
        Route("/api/captures", start, methods=["POST"]),
        Route("/api/captures/{capture}", get),
        Route("/api/captures/{capture}", stop, methods=["DELETE"]),
    ]
