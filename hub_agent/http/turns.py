"""``/api/turns``: the turns of people, where their time went; and those that a device hands in."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chat.http.requests import answer, read, read_query
from contracts.chat import PushedTurns, TurnOutcome
from contracts.errors import Forbidden
from contracts.names import Token
from hub_agent.calls.audit_log import AuditLog
from hub_agent.chat.assistant import key_of
from hub_agent.chat.record import ConversationRecord
from hub_agent.chat.traces import Traces, TurnFilter
from hub_agent.live.times import parse_since
from hub_registry.access.bearer import Gate
from hub_registry.devices.directory import Directory


class _Query(BaseModel):
    """Query parameters of the list; see `TurnFilter`.

    Attributes:
        since: A duration before now, or a time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    conversation: Token | None = None
    device: Token | None = None
    outcome: TurnOutcome | Literal["running"] | None = None
    since: Annotated[str, Field(max_length=40)] | None = None
    before: Annotated[str, Field(max_length=200)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


def turn_routes(
    record: ConversationRecord, traces: Traces, log: AuditLog, directory: Directory, gate: Gate
) -> list[Route]:
    """Make the routes."""
    may_chat, may_look = gate.require("chat"), gate.require_user("chat")

    async def push(request: Request) -> Response:
        caller = await may_chat(request)
        device, key = caller.device, key_of(caller)
        if device is None or key is None:
            raise Forbidden("only devices hand in turns", hint="Use the token of a device.")
        body = await read(request, PushedTurns)
        recorded = await record.take(caller.user.id, device, key, body.turns)
        return JSONResponse({"recorded": recorded})

    async def look(request: Request) -> Response:
        bearer, query = await may_look(request), read_query(request, _Query)
        wanted = TurnFilter(
            **query.model_dump(exclude={"since"}),
            user=bearer.user.id,
            all_people=bearer.is_admin,
            since=None if query.since is None else parse_since(query.since),
        )
        return answer(await traces.page(wanted))

    async def one(request: Request) -> Response:
        bearer, turn = await may_look(request), request.path_params["turn"]
        return answer(await traces.get(turn, user=bearer.user.id, all_people=bearer.is_admin))

    async def changes(request: Request) -> Response:
        user = (await may_look(request)).user.id
        found = await log.changes(user, await record.from_on(user, request.path_params["turn"]))
        for each in found:
            entry = directory.get(str(each["device"]))
            each["device_name"] = each["device"] if entry is None else entry.device.display_name
        return answer({"changes": found})

    return [
        Route("/api/turns", push, methods=["POST"]),
        Route("/api/turns", look),
        Route("/api/turns/{turn}", one),
        Route("/api/turns/{turn}/changes", changes),
    ]
