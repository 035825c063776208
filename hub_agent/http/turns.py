"""``POST /api/turns``: a device hands in the turns that it answered without the hub."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chat.http.requests import read
from contracts.chat import PushedTurns
from contracts.errors import Forbidden
from hub_agent.chat.assistant import key_of
from hub_agent.chat.record import ConversationRecord
from hub_registry.access.bearer import Bearer


def push_route(record: ConversationRecord, *, authenticate: Callable[[Request], Awaitable[Bearer]]) -> Route:
    """Return the route."""

    async def push(request: Request) -> Response:
        caller = await authenticate(request)
        device, key = caller.device, key_of(caller)
        if device is None or key is None:
            raise Forbidden("only devices hand in turns", hint="Use the token of a device.")
        body = await read(request, PushedTurns)
        recorded = await record.take(caller.user.id, device, key, body.turns)
        return JSONResponse({"recorded": recorded})

    return Route("/api/turns", push, methods=["POST"])
