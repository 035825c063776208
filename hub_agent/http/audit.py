"""``/api/audit``: who called what, and what was refused."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat.http.requests import answer, read_query
from chat.http.streams import Connections, EventStream
from contracts.errors import CallError, InvalidMessage, NotFound
from hub_agent.calls.audit_log import AuditFilter, AuditLog, ExportFormat
from hub_agent.live.times import parse_since
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.registry import Registry

_Text = Annotated[str, Field(max_length=200)]
_Time = Annotated[str, Field(max_length=40)]


class _Query(BaseModel):
    """Query parameters; see `AuditFilter`.

    Attributes:
        user: Name or id.
        device: Any of its names.
        since: A duration before now, or a time; ``until`` likewise.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    q: _Text = ""
    user: _Text | None = None
    device: _Text | None = None
    outcome: _Text | None = None
    since: _Time | None = None
    until: _Time | None = None


class _Page(_Query):
    before: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class _Export(_Query):
    format: ExportFormat = "jsonl"


class _Document(EventStream):
    """An export, sent slice by slice; it ends when the client leaves or its token is revoked."""

    media_type = "application/octet-stream"


def audit_routes(
    log: AuditLog, registry: Registry, gate: Gate, *, connections: Connections
) -> list[BaseRoute]:
    """Make the routes: admins read all, others what they called and what was called on their devices."""
    may_look = gate.require_user("chat", "call", "admin")

    async def chosen(bearer: Bearer, query: _Query, before: int | None = None) -> AuditFilter:
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
        return AuditFilter(
            concerning=None if bearer.is_admin else bearer.user.id,
            own=() if bearer.is_admin else own,
            q=query.q,
            user=user,
            device=device,
            outcome=query.outcome,
            since=_moment(query.since),
            until=_moment(query.until),
            before=before,
        )

    async def look(request: Request) -> Response:
        bearer, query = await may_look(request), read_query(request, _Page)
        found = await log.page(await chosen(bearer, query, query.before), limit=query.limit + 1)
        entries = found[: query.limit]
        return answer(
            {"entries": entries, "before": entries[-1]["id"] if len(found) > len(entries) else None}
        )

    async def export(request: Request) -> Response:
        bearer, query = await may_look(request), read_query(request, _Export)
        chunks = log.export(await chosen(bearer, query), query.format)
        headers = {"content-disposition": f'attachment; filename="audit.{query.format}"'}
        return _Document(chunks, connections=connections, headers=headers, token=bearer.claims.jti)

    return [Route("/api/audit", look), Route("/api/audit/export", export)]


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromtimestamp(parse_since(text), UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidMessage(
            f"{text!r} is no time that there was", hint="Write 10m, 7d, or a date."
        ) from None
