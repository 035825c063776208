"""The audit log: ``/api/audit``, who called what, and what was refused; and its page."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from chat.http.requests import Download
from chat.http.streams import Connections, EventStream
from chat.operations import Needs, Resource
from contracts.answers.record import AuditPage
from contracts.errors import CallError, NotFound
from hub_agent.calls.audit_log import AuditFilter, AuditLog, ExportFormat, Seer
from hub_registry.access.bearer import Bearer
from hub_registry.registry import Registry

_LOOK: Final = Needs(("chat", "call", "admin"))


class AuditQuery(AuditFilter):
    """Which records a page of the log has."""

    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class AuditExport(AuditFilter):
    """Which records a document has."""

    format: ExportFormat = "jsonl"


@dataclass(frozen=True)
class Audit:
    """The log, of which admins read all, others what they called and what was called on their devices."""

    log: AuditLog
    registry: Registry
    connections: Connections

    async def chosen(self, bearer: Bearer, query: AuditFilter) -> tuple[AuditFilter, Seer | None]:
        """Return what is asked for with ids in place of names, and who asks, where that limits it."""
        user, directory = query.user, self.registry.directory
        if user is not None:
            try:
                user = (await self.registry.accounts.find(user, or_removed=True)).id
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


audit: Resource[Audit, Bearer] = Resource("audit", "/api/audit")


@audit.get(_LOOK)
async def look(audit: Audit, asking: Bearer, query: AuditQuery) -> AuditPage:
    """List records, newest first; `before` is for the next page, null at the end.

    `outcome` is `result` or the code of an error; `since` and `until` are durations before now or times.
    """
    return await audit.log.page(*await audit.chosen(asking, query), limit=query.limit)


@audit.get(_LOOK, "/export")
async def export(audit: Audit, asking: Bearer, query: AuditExport) -> Download:
    """Return all records, without pages, as `jsonl` (default) or `csv`, where no cell is a formula."""
    return EventStream(
        audit.log.export(*await audit.chosen(asking, query), query.format),
        connections=audit.connections,
        headers={"content-disposition": f'attachment; filename="audit.{query.format}"'},
        token=asking.claims.jti,
        media_type="application/octet-stream",
    )
