"""The table of captures in the hub's database."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, Session, col, delete, select

from contracts.errors import StorageError
from hub_registry.storage.store import Store
from hub_registry.storage.tables import Moment, Table

_log = logging.getLogger(__name__)


class CaptureRow(Table, table=True):
    """A capture that was started; it is kept when it is stopped, so that its files are still known.

    Attributes:
        instance: The hub process that records.
        spec: See `hub_live.captures.spec.CaptureSpec`.
        root: The allowed folder that its path counts from.
        begun_at: When its last file was begun, Unix seconds.
    """

    __tablename__ = "capture"

    id: str = Field(primary_key=True)
    instance: str
    owner: str
    spec: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    root: str
    is_stopped: bool = False
    messages: int = 0
    gaps: int = 0
    begun_at: float = 0
    created_at: datetime = Field(sa_type=Moment)


class CaptureRows:
    """Reads and writes the table; what cannot be written is logged, and written with the next change."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, instance: str) -> list[CaptureRow]:
        """Return the captures of a hub process, the oldest first."""

        def work(session: Session) -> list[CaptureRow]:
            chosen = select(CaptureRow).where(CaptureRow.instance == instance)
            return list(session.exec(chosen.order_by(col(CaptureRow.created_at))))

        return await self._store.read(work)

    async def write(self, rows: Iterable[CaptureRow]) -> None:
        """Store these captures as they are now."""
        given = list(rows)
        if given:
            await self._try(lambda session: [session.merge(row) for row in given])

    async def delete(self, capture: str) -> None:
        await self._try(lambda session: session.exec(delete(CaptureRow).where(col(CaptureRow.id) == capture)))

    async def _try(self, work: Callable[[Session], object]) -> None:
        try:
            await self._store.write(work)
        except StorageError as error:
            _log.error("the state of captures cannot be stored: %s", error)
