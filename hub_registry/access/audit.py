"""What was called, by whom, and how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert
from sqlmodel import Session, col, select

from contracts.rpc import Actor
from hub_registry.storage.store import Store
from hub_registry.storage.tables import AuditRow


@dataclass(frozen=True)
class CallRecord:
    """One call as it is remembered.

    Attributes:
        at: When it ended.
        call: Its id.
        arguments: SHA-256 of the arguments; they themselves may hold secrets and are not kept.
        outcome: ``result``, or the code of the error.
    """

    at: datetime
    call: str
    actor: Actor
    device: str
    skill: str
    method: str
    arguments: str
    outcome: str


class Audit:
    """The list of all calls."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(self, record: CallRecord) -> None:
        """Remember a call that has ended."""
        await self.record_all([record])

    async def record_all(self, records: Iterable[CallRecord]) -> None:
        """Remember several calls, in one transaction and in this order."""
        rows = [_row(record) for record in records]
        if not rows:
            return
        # A plain INSERT with many rows: objects that the session follows would take ten times as long.
        await self._store.write(lambda session: session.execute(insert(AuditRow), rows))

    async def latest(self, *, limit: int = 100, user: str | None = None) -> list[CallRecord]:
        """List calls, the latest first.

        Args:
            limit: How many at most.
            user: Only those on behalf of this user.
        """

        def work(session: Session) -> list[CallRecord]:
            wanted = select(AuditRow).order_by(col(AuditRow.id).desc()).limit(limit)
            if user is not None:
                wanted = wanted.where(AuditRow.user == user)
            return [_record(row) for row in session.exec(wanted)]

        return await self._store.read(work)


def _row(record: CallRecord) -> dict[str, Any]:
    return {
        "at": record.at,
        "call": record.call,
        "user": record.actor.user,
        "actor": record.actor.model_dump(exclude_defaults=True),
        "device_id": record.device,
        "class_name": record.skill,
        "function_name": record.method,
        "arguments": record.arguments,
        "outcome": record.outcome,
    }


def _record(row: AuditRow) -> CallRecord:
    return CallRecord(
        at=row.at,
        call=row.call,
        actor=Actor.model_validate(row.actor),
        device=row.device_id,
        skill=row.class_name,
        method=row.function_name,
        arguments=row.arguments,
        outcome=row.outcome,
    )
