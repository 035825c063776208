"""The conversations of this device: what was said here, and what the hub adds, in one SQLite file.

Nothing of it is opened before the first word: a spoke that only has skills never imports this.
"""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import Final

from agent_core.conversation import ConversationSummary, Exchange, Words, exchanges_of, moment_after
from contracts.history import PAGE_ENTRIES, Entry, Place, SyncAnswer, SyncRequest, page_of
from contracts.wire import rfc3339
from spoke.chat.store import SpokeStore, open_spoke_store

_LOG = logging.getLogger(__name__)

FILE_NAME: Final = "history.db"


class History:
    """The history of one device in one home.

    Args:
        home: Id of the hub: what was said in one home stays out of the next.
        device: This device's id there.
        clock: Gives seconds since 1970, by the hub's clock where it is known.

    Attributes:
        origin: As whom this start writes.
    """

    def __init__(self, store: SpokeStore, *, home: str, device: str, clock: Callable[[], float]) -> None:
        self.origin = f"{device}.{token_hex(6)}"
        self._store = store
        self._device = device
        self._home = f"{home}/{device}"
        self._clock = clock

    async def append(self, words: Words) -> None:
        """Write down what was said at this device; it is on the disk when this returns."""
        words = replace(words, device=self._device)

        def work(connection: sqlite3.Connection) -> None:
            latest = connection.execute(
                "SELECT max(at) FROM entry WHERE home = ? AND conversation = ?",
                (self._home, words.conversation),
            ).fetchone()[0]
            at = moment_after(
                datetime.fromtimestamp(self._clock(), UTC), datetime.fromisoformat(latest) if latest else None
            )
            seq = self._last(connection, self.origin) + 1
            for entry in words.entries(origin=self.origin, seq=seq, at=at):
                self._add(connection, entry)
            connection.execute("INSERT OR IGNORE INTO own VALUES (?, ?, 0)", (self._home, self.origin))

        await self._store.write(work)

    async def read(self, conversation: str, *, limit: int = 100) -> list[Exchange]:
        """Give the last turns of a conversation, wherever they ran, oldest first."""
        # Two entries for a turn, twice where two sides wrote it down, and more where a text is long.
        wanted = 6 * limit

        def work(connection: sqlite3.Connection) -> list[Entry]:
            rows = connection.execute(
                "SELECT body FROM entry WHERE home = ? AND conversation = ?"
                " ORDER BY at DESC, origin DESC, seq DESC LIMIT ?",
                (self._home, conversation, wanted),
            )
            return [Entry.model_validate_json(body) for (body,) in rows]

        exchanges = exchanges_of(await self._store.read(work))
        return exchanges[max(0, len(exchanges) - limit) :]

    async def conversations(self, *, limit: int) -> list[ConversationSummary]:
        """Give the conversations that this device knows, the latest first."""

        def work(connection: sqlite3.Connection) -> list[ConversationSummary]:
            rows = connection.execute(
                "SELECT conversation, max(at) AS last FROM entry WHERE home = ?"
                " GROUP BY conversation ORDER BY last DESC, conversation",
                (self._home,),
            ).fetchall()
            found = (
                ConversationSummary(id_, asked, datetime.fromisoformat(last))
                for id_, last in rows
                # Of a conversation that is still on its way there may be no question yet.
                if (asked := self._first_question(connection, id_)) is not None
            )
            return list(islice(found, limit))

        return await self._store.read(work)

    async def works_offline(self, conversation: str) -> bool:
        """Whether what a person was told last in this conversation is that this device works offline."""

        def work(connection: sqlite3.Connection) -> bool:
            query = "SELECT 1 FROM offline WHERE home = ? AND conversation = ?"
            return connection.execute(query, (self._home, conversation)).fetchone() is not None

        return await self._store.read(work)

    async def set_offline(self, conversation: str, *, offline: bool) -> None:
        """Write down that a person was told that this device works offline, or that the hub is back."""
        change = (
            "INSERT OR IGNORE INTO offline VALUES (?, ?)"
            if offline
            else "DELETE FROM offline WHERE home = ? AND conversation = ?"
        )

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(change, (self._home, conversation))

        await self._store.write(work)

    async def is_told(self) -> bool:
        """Whether the hub has everything that was said here."""
        return not (await self.outgoing()).entries

    # Sync

    async def outgoing(self) -> SyncRequest:
        """Give the next request: what the hub lacks as far as is known, and where this device stands."""

        def work(connection: sqlite3.Connection) -> SyncRequest:
            rows = connection.execute(
                "SELECT entry.body FROM own JOIN entry USING (home, origin)"
                " WHERE home = ? AND entry.seq > own.acked ORDER BY origin, seq LIMIT ?",
                (self._home, PAGE_ENTRIES),
            )
            page = page_of(Entry.model_validate_json(body) for (body,) in rows)
            return SyncRequest(entries=tuple(page), after=self._place(connection))

        return await self._store.read(work)

    async def take(self, request: SyncRequest, answer: SyncAnswer) -> bool:
        """Store what the hub answered, all of it or nothing.

        Returns:
            Whether this brought the two nearer to each other: the next request asks for something else.
        """

        def work(connection: sqlite3.Connection) -> bool:
            strange = [entry for entry in answer.entries if not self._take(connection, entry)]
            if strange:
                _LOG.warning(
                    "the hub has %d entries with another content than this device, first %s %d; "
                    "what came first stays",
                    len(strange),
                    *strange[0].key,
                )
            if answer.again:
                _LOG.warning("the hub has lost its place in this device's history: all is compared again")
                connection.execute("UPDATE own SET acked = 0 WHERE home = ?", (self._home,))
            is_nearer = self._acknowledge(connection, answer)
            place = answer.place
            if place is None:
                connection.execute("DELETE FROM place WHERE home = ?", (self._home,))
            elif place != request.after:
                connection.execute(
                    "INSERT OR REPLACE INTO place VALUES (?, ?)", (self._home, place.model_dump_json())
                )
            return is_nearer or place != request.after

        for origin, seq in answer.refused:
            _LOG.warning("the hub knows entry %d of %s with another content, and keeps its own", seq, origin)
        return await self._store.write(work)

    def _acknowledge(self, connection: sqlite3.Connection, answer: SyncAnswer) -> bool:
        is_nearer = False
        for origin, seq in answer.have.items():
            row = connection.execute(
                "SELECT acked FROM own WHERE home = ? AND origin = ?", (self._home, origin)
            ).fetchone()
            if row is not None:
                # Less than before where a hub was set back: what it lost is sent again.
                has = min(seq, self._last(connection, origin))
                connection.execute(
                    "UPDATE own SET acked = ? WHERE home = ? AND origin = ?", (has, self._home, origin)
                )
                is_nearer = is_nearer or has > row[0]
        return is_nearer

    def _take(self, connection: sqlite3.Connection, entry: Entry) -> bool:
        known = connection.execute(
            "SELECT body FROM entry WHERE home = ? AND origin = ? AND seq = ?", (self._home, *entry.key)
        ).fetchone()
        if known is not None:
            return Entry.model_validate_json(known[0]) == entry
        # Nobody else can have written as this start.
        if entry.origin == self.origin:
            return False
        self._add(connection, entry)
        return True

    def _add(self, connection: sqlite3.Connection, entry: Entry) -> None:
        connection.execute(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)",
            (self._home, *entry.key, entry.conversation, rfc3339(entry.at), entry.model_dump_json()),
        )

    def _last(self, connection: sqlite3.Connection, origin: str) -> int:
        found = connection.execute(
            "SELECT max(seq) FROM entry WHERE home = ? AND origin = ?", (self._home, origin)
        ).fetchone()
        return int(found[0] or 0)

    def _first_question(self, connection: sqlite3.Connection, conversation: str) -> str | None:
        rows = connection.execute(
            "SELECT body FROM entry WHERE home = ? AND conversation = ? ORDER BY at, origin, seq",
            (self._home, conversation),
        )
        entries = (Entry.model_validate_json(body) for (body,) in rows)
        return next((entry.text for entry in entries if entry.kind == "question"), None)

    def _place(self, connection: sqlite3.Connection) -> Place | None:
        row = connection.execute("SELECT body FROM place WHERE home = ?", (self._home,)).fetchone()
        return None if row is None else Place.model_validate_json(row[0])


@asynccontextmanager
async def open_history(
    directory: Path, *, home: str, device: str, clock: Callable[[], float]
) -> AsyncIterator[History]:
    """Open this device's history; see `History` for the arguments.

    Args:
        directory: Where the spoke keeps its own files.

    Raises:
        ConfigError: If the file cannot be used.
    """
    async with open_spoke_store(directory / FILE_NAME) as store:
        yield History(store, home=home, device=device, clock=clock)
