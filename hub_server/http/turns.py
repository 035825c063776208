"""``/api/turns``: the turns of people, where their time went; and those that a device hands in."""

from starlette.requests import Request
from starlette.routing import Route

from chat.http.requests import Answer, answer, read, read_query
from contracts.chat import PushedTurns
from contracts.errors import Forbidden
from contracts.wire import Part, Timestamp
from hub_agent.calls.audit_log import AuditLog
from hub_agent.chat.assistant import key_of
from hub_agent.chat.record import ConversationRecord
from hub_agent.chat.traces import Traces, TurnFilter, TurnPage, TurnShown
from hub_registry.access.bearer import Gate
from hub_registry.devices.directory import Directory, Entry
from hub_registry.storage.tables import AuditRow


class RecordedTurns(Part):
    """The turns of a device that the hub has now."""

    recorded: list[str]


class TurnChange(Part):
    """A call of a turn that changed something, or may have."""

    device: str
    skill: str
    method: str
    outcome: str
    at: Timestamp
    device_name: str


class TurnChanges(Part):
    """All of them, the oldest first."""

    changes: list[TurnChange]


def turn_routes(
    record: ConversationRecord, traces: Traces, log: AuditLog, directory: Directory, gate: Gate
) -> list[Route]:
    """Make the routes."""
    may_chat, may_look = gate.require("chat"), gate.require_user("chat")

    async def push(request: Request) -> Answer[RecordedTurns]:
        caller = await may_chat(request)
        device, key = caller.device, key_of(caller)
        if device is None or key is None:
            raise Forbidden("only devices hand in turns", hint="Use the token of a device.")
        body = await read(request, PushedTurns)
        recorded = await record.take(caller.user.id, device, key, body.turns)
        return answer(RecordedTurns(recorded=recorded))

    async def look(request: Request) -> Answer[TurnPage]:
        bearer, wanted = await may_look(request), read_query(request, TurnFilter)
        return answer(await traces.page(wanted, user=bearer.user.id, all_people=bearer.is_admin))

    async def one(request: Request) -> Answer[TurnShown]:
        bearer, turn = await may_look(request), request.path_params["turn"]
        return answer(await traces.get(turn, user=bearer.user.id, all_people=bearer.is_admin))

    async def changes(request: Request) -> Answer[TurnChanges]:
        user = (await may_look(request)).user.id
        found = await log.changes(user, await record.from_on(user, request.path_params["turn"]))
        return answer(TurnChanges(changes=[shown(each) for each in found]))

    def shown(row: AuditRow) -> TurnChange:
        entry: Entry | None = directory.get(row.device)
        return TurnChange(
            device=row.device,
            skill=row.skill,
            method=row.method,
            outcome=row.outcome,
            at=row.at,
            device_name=row.device if entry is None else entry.display_name,
        )

    return [
        Route("/api/turns", push, methods=["POST"]),
        Route("/api/turns", look),
        Route("/api/turns/{turn}", one),
        Route("/api/turns/{turn}/changes", changes),
    ]
