"""The history of conversations, as devices sync it."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from contracts.errors import Forbidden
from contracts.history import SyncRequest
from hub_agent.calls.rate import RateLimit
from hub_agent.chat.history import History
from hub_registry.access.bearer import Bearer, Gate

_PER_MINUTE: Final = 120
_BURST: Final = 300
"""A device that was away for a year sends some thirty thousand entries, a hundred at a time."""


def make_router(history: History, *, gate: Gate) -> APIRouter:
    """Make the route ``/api/history/sync``."""
    router = APIRouter()
    rate = RateLimit(per_minute=_PER_MINUTE, burst=_BURST)

    @router.post("/api/history/sync", response_model=None)
    async def sync(
        body: SyncRequest, bearer: Annotated[Bearer, Depends(gate.require("chat"))]
    ) -> JSONResponse:
        device = bearer.device
        if device is None:
            raise Forbidden("only devices sync history", hint="Use the token of a device.")
        rate.spend(device)
        answer = await history.sync(bearer.user.id, device, body)
        return JSONResponse(answer.model_dump(mode="json"))

    return router
