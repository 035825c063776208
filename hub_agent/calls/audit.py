"""The audit of skill calls, written in batches: a commit for each would double the time of a short one."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import insert

from contracts.errors import StorageError
from contracts.wire import Json
from hub_registry.storage.store import Store
from hub_registry.storage.tables import AuditRow

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 5.0
"""Seconds until the next attempt where the database cannot be written."""
_MOST: Final = 10_000
"""Records that are kept while the database cannot be written."""
_GATHER_S: Final = 0.25
"""Records of this time go into one transaction. The thread that writes takes turns with the event loop, so
writing after each call of a program would make every one of them wait: 100 calls took half as long again."""


@dataclass(frozen=True)
class CallRecord:
    """One call; its fields are the columns of the table.

    Attributes:
        at: When it ended.
        call: Its id.
        user: On whose behalf it was made; ``actor`` says through what.
        arguments: SHA-256 of the arguments; they themselves may hold secrets and are not kept.
        outcome: ``result``, or the code of the error.
    """

    at: datetime
    call: str
    user: str
    actor: Json
    device: str
    skill: str
    method: str
    arguments: str
    outcome: str


class AuditTrail:
    """Gathers records and writes them in the order they came, many in one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: list[CallRecord] = []
        self._noted = asyncio.Event()

    def note(self, record: CallRecord) -> None:
        """Note a call that has ended; it is written within moments."""
        self._records.append(record)
        self._noted.set()

    async def run(self) -> None:
        """Write records as they come, until cancelled."""
        while True:
            await self._noted.wait()
            await asyncio.sleep(_GATHER_S)
            if not await self.flush():
                await asyncio.sleep(_AGAIN_S)
                self._noted.set()

    async def flush(self) -> bool:
        """Write what has not been written yet; return whether that worked."""
        records, self._records = self._records, []
        self._noted.clear()
        if not records:
            return True
        # A plain INSERT with many rows: objects that the session follows would take ten times as long.
        rows = [vars(record) for record in records]
        try:
            # A write that has begun is finished in the store's thread, also when the hub stops.
            await asyncio.shield(self._store.write(lambda session: session.execute(insert(AuditRow), rows)))
        except StorageError as error:
            _log.error("%d calls are written into the audit later: %s", len(records), error)
            self._records = [*records, *self._records][-_MOST:]
            return False
        return True
