"""The audit of skill calls, written behind them: a commit for each would double the time of a short one."""

import asyncio
import logging

from sqlalchemy.exc import SQLAlchemyError

from hub_registry.audit import Audit, CallRecord

_log = logging.getLogger(__name__)


class AuditTrail:
    """Gathers records and writes them in the order they came, many in one transaction."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._records: asyncio.Queue[CallRecord] = asyncio.Queue()

    def note(self, record: CallRecord) -> None:
        """Note a call that has ended; it is written within moments."""
        self._records.put_nowait(record)

    async def run(self) -> None:
        """Write records as they come, until cancelled."""
        while True:
            first = await self._records.get()
            await self._write([first, *self._waiting()])

    async def flush(self) -> None:
        """Write what has not been written yet."""
        await self._write(self._waiting())

    def _waiting(self) -> list[CallRecord]:
        return [self._records.get_nowait() for _ in range(self._records.qsize())]

    async def _write(self, records: list[CallRecord]) -> None:
        if not records:
            return
        try:
            # What has begun is finished in the store's thread, also when the hub is told to stop.
            await asyncio.shield(self._audit.record_all(records))
        except SQLAlchemyError:
            _log.exception("%d calls could not be written into the audit", len(records))
