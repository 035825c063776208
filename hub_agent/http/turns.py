"""``POST /api/turns``: a device hands in the turns that it answered without the hub."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chat.http.requests import read
from contracts.chat import PushedTurns
from contracts.errors import Forbidden
from hub_agent.calls.rate import RateLimit
from hub_agent.chat.assistant import key_of
from hub_agent.chat.record import ConversationRecord
from hub_registry.access.bearer import Bearer

_PER_MINUTE: Final = 120
_BURST: Final = 300
"""A device that was away for a year hands in some ten thousand turns, a hundred at a time."""


def push_route(record: ConversationRecord, *, authenticate: Callable[[Request], Awaitable[Bearer]]) -> Route:
    """Return the route."""
    rate = RateLimit(per_minute=_PER_MINUTE, burst=_BURST)

    async def push(request: Request) -> Response:
        caller = await authenticate(request)
        device, key = caller.device, key_of(caller)
        if device is None or key is None:
            raise Forbidden("only devices hand in turns", hint="Use the token of a device.")
        rate.spend(device)
        body = await read(request, PushedTurns)
        recorded = await record.take(caller.user.id, device, key, body.turns)
        return JSONResponse({"recorded": recorded})

    return Route("/api/turns", push, methods=["POST"])
