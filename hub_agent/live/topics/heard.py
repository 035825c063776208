"""Until when each link was heard, kept in the database so that the time after it is known to be a gap."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final, cast

from sqlmodel import Session, select

from contracts.errors import StorageError
from hub_agent.live.topics.samples import LinkName
from hub_agent.tables import HeardRow
from hub_registry.storage.store import Store

_log = logging.getLogger(__name__)

_STORE_S: Final = 30.0
"""After a crash a gap begins up to so many seconds too early; a write is a page of the journal."""


class LastHeard:
    """The last time at which each link of this hub process had a connection."""

    def __init__(self, store: Store, *, instance: str) -> None:
        self._store = store
        self._instance = instance

    async def read(self) -> dict[LinkName, float]:
        """Return the Unix time for each link that was ever heard."""

        def work(session: Session) -> dict[LinkName, float]:
            rows = session.exec(select(HeardRow).where(HeardRow.instance == self._instance))
            return {cast(LinkName, row.link): row.at for row in rows}

        return await self._store.read(work)

    async def write(self, links: Collection[LinkName]) -> None:
        """Note that these links have a connection now."""
        at = time.time()

        def work(session: Session) -> None:
            for link in links:
                session.merge(HeardRow(instance=self._instance, link=link, at=at))

        try:
            if links:
                await self._store.write(work)
        except StorageError as error:
            _log.error("the end of this run may be reported as a longer gap: %s", error)

    async def run(self, connected: Callable[[], Collection[LinkName]]) -> None:
        """Note which links have a connection, now and then until cancelled."""
        while True:
            await self.write(connected())
            await asyncio.sleep(_STORE_S)
