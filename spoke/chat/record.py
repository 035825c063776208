"""The turns of this device: an outbox of those that the hub lacks, and a cache of recent conversations.

The record of conversations is the hub's. A turn is in the outbox from its beginning on, and leaves it when
the hub has it: because the hub answered it, or because the hub took it from the outbox. It stays in the
cache then, which is only read: for the context of an answer without the hub, and to show what was said.
"""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from chat.turns import Turn, came_before, cancelled_before
from contracts.chat.messages import MAX_PUSHED, ConversationSummary, TurnRecord, TurnState, moment_after
from contracts.wire import rfc3339
from spoke import limits
from spoke.chat.database import FILE_NAME, Database, open_database

_log = logging.getLogger(__name__)

_ENDED: Final = ("answer", "mode", "untrusted", "state", "outcome", "problem", "reason")
"""What is recorded of a turn that has ended, under the same names."""


@dataclass(frozen=True)
class Cached:
    """What the cache had at a moment.

    Attributes:
        number: Of the newest turn; what is recorded later is not dropped for a hub that did not know it yet.
        latest: When something was last said, by conversation.
    """

    number: int
    latest: dict[str, datetime]


@dataclass(eq=False)
class SpokeRecord:
    """The record of one device in one home; see `chat.turns.TurnStore`.

    Attributes:
        home: Whose conversations these are: what was said in one home, or by one owner, stays out of others.
        clock: Returns seconds since 1970, by the hub's clock where it is known.
        recorded: Called when the outbox has something new.
    """

    database: Database
    _: KW_ONLY
    home: str
    clock: Callable[[], float]
    recorded: Callable[[], None]
    # Turns that were cancelled before they arrived: only the owner's programs can name any. Used by the
    # database's thread alone, so that of a request and its cancel only one finds nothing of the other.
    _cancelled: set[str] = field(default_factory=set, init=False)

    async def clean_up(self) -> None:
        """Mark turns that an earlier process left running as cancelled."""
        await self.database.rows(
            "UPDATE turn SET state = 'cancelled', body ="
            " json_set(body, '$.state', 'cancelled', '$.outcome', 'interrupted') WHERE state = 'running'"
        )

    # Running turns

    async def begin(self, turn: Turn) -> None:
        """See `chat.turns.TurnStore`."""

        def work(connection: sqlite3.Connection) -> bool:
            if turn.id in self._cancelled:
                raise cancelled_before(turn.id)
            if self._find(connection, turn.id) is not None:
                return False
            (latest,) = connection.execute(
                "SELECT max(at) FROM turn WHERE home = ? AND conversation = ?",
                (self.home, turn.conversation),
            ).fetchone()
            record = TurnRecord(
                turn=turn.id,
                conversation=turn.conversation,
                question=turn.request.message,
                agent=turn.request.agent,
                device=turn.device,
                state="running",
                at=moment_after(self._now(), datetime.fromisoformat(latest) if latest else None),
            )
            self._put(connection, record, in_outbox=True)
            return True

        if not await self.database.run(work):
            raise came_before(turn.id)

    async def end(self, turn: Turn) -> None:
        """See `chat.turns.TurnStore`."""

        def work(connection: sqlite3.Connection) -> None:
            begun = self._find(connection, turn.id)
            # None where the conversation was deleted meanwhile.
            if begun is not None:
                ended = {each: getattr(turn, each) for each in _ENDED}
                ended |= {"did": tuple(turn.did), "ended_at": max(begun.at, self._now())}
                self._put(connection, begun.model_copy(update=ended), in_outbox=not turn.at_hub)

        await self.database.run(work)
        if not turn.at_hub:
            self.recorded()

    async def state(self, user: str, turn: str, *, through: str | None) -> TurnState:
        """See `chat.turns.TurnStore`."""

        def work(connection: sqlite3.Connection) -> TurnState:
            known = self._find(connection, turn)
            if known is not None:
                return known.state
            self._cancelled.add(turn)
            return "not_started"

        return await self.database.run(work)

    # Reading

    async def turns(
        self, conversation: str, *, limit: int, before: str | None = None, ended: bool = False
    ) -> list[TurnRecord]:
        """Return the last turns of a conversation, oldest first.

        Args:
            before: Id of a turn of it; only those before that one are returned.
            ended: Whether running turns are left out.
        """
        rows = await self.database.rows(
            "SELECT body FROM turn WHERE home = ?1 AND conversation = ?2 AND state != ?3"
            " AND (?4 IS NULL OR (at, id) < (SELECT at, id FROM turn WHERE home = ?1 AND id = ?4))"
            " ORDER BY at DESC, id DESC LIMIT ?5",
            *(self.home, conversation, "running" if ended else "", before, limit),
        )
        return [TurnRecord.model_validate_json(body) for (body,) in reversed(rows)]

    async def conversations(self, *, limit: int) -> list[ConversationSummary]:
        """Return the conversations of this device, newest first."""
        rows = await self.database.rows(
            "SELECT conversation, max(said) AS last, (SELECT body FROM turn AS first WHERE"
            " first.home = turn.home AND first.conversation = turn.conversation"
            " ORDER BY first.at, first.id LIMIT 1)"
            " FROM turn WHERE home = ? GROUP BY conversation ORDER BY last DESC, conversation LIMIT ?",
            *(self.home, limit),
        )
        return [
            ConversationSummary(
                id=id_,
                asked=TurnRecord.model_validate_json(first).question,
                at=datetime.fromisoformat(said),
            )
            for id_, said, first in rows
        ]

    # Outbox

    async def outbox(self) -> list[TurnRecord]:
        """Return the first turns that the hub lacks, in their order: as many as fit into one push."""

        def work(connection: sqlite3.Connection) -> list[TurnRecord]:
            rows = connection.execute(
                "SELECT body FROM turn WHERE home = ? AND in_outbox AND state != 'running'"
                " ORDER BY number LIMIT ?",
                (self.home, MAX_PUSHED),
            )
            page: list[TurnRecord] = []
            size = 0
            # One after the other: all of them may be a hundred times as large as a push.
            for (body,) in rows:
                size += len(body.encode())
                if page and size > limits.PUSH_BYTES:
                    break
                page.append(TurnRecord.model_validate_json(body))
            return page

        return await self.database.run(work)

    async def pushed(self, turns: Iterable[str]) -> None:
        """Remove turns from the outbox."""
        ids = list(turns)

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "UPDATE turn SET in_outbox = 0 WHERE home = ? AND id = ?", [(self.home, id_) for id_ in ids]
            )

        await self.database.run(work)

    # Cache

    async def cached(self) -> Cached:
        """Return what the cache has."""
        rows = await self.database.rows(
            "SELECT conversation, max(number), max(said) FROM turn WHERE home = ? GROUP BY conversation",
            self.home,
        )
        latest = {conversation: datetime.fromisoformat(said) for conversation, _, said in rows}
        return Cached(max((number for _, number, _ in rows), default=0), latest)

    async def cache(self, turns: Sequence[TurnRecord]) -> None:
        """Store turns as the hub records them."""

        def work(connection: sqlite3.Connection) -> None:
            for turn in turns:
                row = connection.execute(
                    "SELECT in_outbox FROM turn WHERE home = ? AND id = ?", (self.home, turn.turn)
                ).fetchone()
                # What is still to be pushed is better known here; what still runs is read later.
                if turn.state != "running" and (row is None or not row[0]):
                    self._put(connection, turn, in_outbox=False)

        await self.database.run(work)

    async def evict(self, before: Cached, *, known: Collection[str]) -> None:
        """Drop the conversations that the hub does not name any more.

        Args:
            before: What `cached` returned before the hub was asked.
            known: Ids of the conversations that the hub named.
        """

        def work(connection: sqlite3.Connection) -> None:
            for conversation in before.latest.keys() - set(known):
                connection.execute(
                    "DELETE FROM turn WHERE home = ? AND conversation = ? AND number <= ? AND NOT in_outbox",
                    (self.home, conversation, before.number),
                )

        await self.database.run(work)

    async def forget(self, conversation: str) -> None:
        """Delete a conversation here."""
        statement = "DELETE FROM turn WHERE home = ? AND conversation = ?"
        await self.database.rows(statement, self.home, conversation)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)

    def _find(self, connection: sqlite3.Connection, turn: str) -> TurnRecord | None:
        row = connection.execute(
            "SELECT body FROM turn WHERE home = ? AND id = ?", (self.home, turn)
        ).fetchone()
        return None if row is None else TurnRecord.model_validate_json(row[0])

    def _put(self, connection: sqlite3.Connection, record: TurnRecord, *, in_outbox: bool) -> None:
        connection.execute(
            "INSERT INTO turn (home, id, conversation, at, said, state, in_outbox, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (home, id) DO UPDATE SET"
            " at = excluded.at, said = excluded.said, state = excluded.state,"
            " in_outbox = excluded.in_outbox, body = excluded.body",
            (
                self.home,
                record.turn,
                record.conversation,
                rfc3339(record.at),
                rfc3339(record.ended_at or record.at),
                record.state,
                in_outbox,
                record.model_dump_json(),
            ),
        )


@asynccontextmanager
async def open_record(
    directory: Path, *, home: str, clock: Callable[[], float], recorded: Callable[[], None]
) -> AsyncIterator[SpokeRecord]:
    """Open this device's record; see `SpokeRecord` for the arguments.

    Args:
        directory: Where the spoke keeps its own files.

    Raises:
        ConfigError: If the file cannot be used.
    """
    async with open_database(directory / FILE_NAME) as database:
        record = SpokeRecord(database, home=home, clock=clock, recorded=recorded)
        await record.clean_up()
        yield record
