"""``/api/audit``: who called what, and what was refused."""

from contextlib import suppress
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, Download, answer, read_query
from chat.http.streams import Connections, EventStream
from contracts.errors import CallError, NotFound
from hub_agent.calls.audit_log import AuditFilter, AuditLog, AuditPage, ExportFormat, Seer
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.registry import Registry


class _Page(AuditFilter):
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class _Export(AuditFilter):
    format: ExportFormat = "jsonl"


def audit_routes(
    log: AuditLog, registry: Registry, gate: Gate, *, connections: Connections
) -> list[BaseRoute]:
    """Make the routes: admins read all, others what they called and what was called on their devices."""
    may_look = gate.require_user("chat", "call", "admin")

    async def chosen(bearer: Bearer, query: AuditFilter) -> tuple[AuditFilter, Seer | None]:
        user, directory = query.user, registry.directory
        if user is not None:
            try:
                user = (await registry.accounts.find(user, or_removed=True)).id
            except NotFound:
                # Others learn nothing of who lives here.
                if bearer.is_admin:
                    raise
        device = query.device
        if device is not None:
            seen = directory if bearer.is_admin else directory.seen_by(bearer.user.id)
            with suppress(CallError):  # likewise a device that was removed, and the hub itself
                device = seen.resolve(device).id
        own = [each.id for each in directory.entries() if each.device.owner == bearer.user.id]
        seer = None if bearer.is_admin else Seer(bearer.user.id, own)
        return query.model_copy(update={"user": user, "device": device}), seer

    async def look(request: Request) -> Answer[AuditPage]:
        bearer, query = await may_look(request), read_query(request, _Page)
        return answer(await log.page(*await chosen(bearer, query), limit=query.limit))

    async def export(request: Request) -> Download:
        bearer, query = await may_look(request), read_query(request, _Export)
        chunks = log.export(*await chosen(bearer, query), query.format)
        headers = {"content-disposition": f'attachment; filename="audit.{query.format}"'}
        return EventStream(
            chunks,
            connections=connections,
            headers=headers,
            token=bearer.claims.jti,
            media_type="application/octet-stream",
        )

    return [Route("/api/audit", look), Route("/api/audit/export", export)]
