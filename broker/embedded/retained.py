"""Retained messages: in memory for use, in SQLite for the next start."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.embedded.topic_tree import TopicTree
from identity.files import make_private_directory

_log = logging.getLogger(__name__)

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS retained"
    " (topic TEXT PRIMARY KEY, payload BLOB NOT NULL, qos INTEGER NOT NULL, owner TEXT NOT NULL)"
    " WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class Retained:
    """One retained message and the name of its publisher."""

    topic: str
    payload: bytes
    qos: int
    owner: str

    @property
    def size(self) -> int:
        # A topic may be as long as a payload.
        return len(self.topic.encode()) + len(self.payload)


@dataclass(slots=True)
class Share:
    """What one principal has retained: topics, and bytes of these and their payloads."""

    topics: int = 0
    size: int = 0


class RetainedStore:
    """The retained messages of the broker.

    Sessions are not kept: spokes use clean sessions, and what is retained is a cache that the spokes fill
    again. So a file that cannot be read is put aside, and the broker starts without.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree: TopicTree[Retained] = TopicTree()
        self._shares: dict[str, Share] = {}
        self._unsaved: dict[str, Retained | None] = {}
        self._waiting: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self._finished = False
        self._database: sqlite3.Connection | None = None

    def load(self) -> None:
        """Read what an earlier run has kept; blocks for as long as that takes."""
        make_private_directory(self._path.parent)
        try:
            rows = self._open()
        except sqlite3.DatabaseError as error:
            aside = self._path.with_suffix(".broken")
            _log.warning("%s cannot be read (%s): put aside as %s", self._path, error, aside.name)
            self._path.replace(aside)
            rows = self._open()
        for message in rows:
            self._keep(message)

    def get(self, topic: str) -> Retained | None:
        return self._tree.get(topic)

    def matching(self, filter_: str) -> list[Retained]:
        return self._tree.of_filter(filter_)

    def share_with(self, message: Retained) -> Share:
        """Return what the message's owner would have retained once it is kept."""
        share = self._shares.get(message.owner, Share())
        before = self._tree.get(message.topic)
        if before is not None and before.owner == message.owner:
            return Share(share.topics, share.size - before.size + message.size)
        return Share(share.topics + 1, share.size + message.size)

    def put(self, message: Retained, stored: Callable[[], None] | None = None) -> None:
        """Keep a message; an empty payload removes the one on its topic.

        Args:
            stored: Called in the event loop as soon as the change is in the file.
        """
        if message.payload:
            self._keep(message)
            self._unsaved[message.topic] = message
        else:
            self._forget(message.topic)
            self._unsaved[message.topic] = None
        if stored is not None:
            self._waiting.append(stored)
        self._changed.set()

    async def run(self) -> None:
        """Write changes to the file until finished."""
        while not self._finished or self._unsaved:
            await self._changed.wait()
            await self._flush()

    def finish(self) -> None:
        """Make :meth:`run` write what is not in the file yet, and return."""
        self._finished = True
        self._changed.set()

    async def _flush(self) -> None:
        """Write all changes at once; what comes meanwhile waits for the next time."""
        self._changed.clear()
        changes, self._unsaved = self._unsaved, {}
        waiting, self._waiting = self._waiting, []
        if changes:
            try:
                await asyncio.to_thread(self._write, changes)
            except sqlite3.Error as error:
                # The messages are delivered and kept in memory; only the next start will miss them.
                _log.warning("retained messages were not stored in %s: %s", self._path, error)
        for stored in waiting:
            stored()

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _keep(self, message: Retained) -> None:
        self._forget(message.topic)
        self._tree.set(message.topic, message)
        share = self._shares.setdefault(message.owner, Share())
        share.topics += 1
        share.size += message.size

    def _forget(self, topic: str) -> None:
        message = self._tree.get(topic)
        if message is None:
            return
        self._tree.remove(topic)
        share = self._shares[message.owner]
        share.topics -= 1
        share.size -= message.size
        if not share.topics:
            del self._shares[message.owner]

    def _open(self) -> list[Retained]:
        if not self._path.exists():
            self._path.touch(mode=0o600)
        # Used by one thread at a time: by this one, then by the thread of one flush after the other.
        database = sqlite3.connect(self._path, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            # In WAL mode this survives a crash of the process; only a loss of power loses the last commits.
            database.execute("PRAGMA synchronous=NORMAL")
            database.execute(_SCHEMA)
            rows = database.execute("SELECT topic, payload, qos, owner FROM retained").fetchall()
        except sqlite3.DatabaseError:
            database.close()
            raise
        self._database = database
        return [Retained(*row) for row in rows]

    def _write(self, changes: dict[str, Retained | None]) -> None:
        assert self._database is not None
        kept = [(m.topic, m.payload, m.qos, m.owner) for m in changes.values() if m is not None]
        gone = [(topic,) for topic, message in changes.items() if message is None]
        with self._database as transaction:
            transaction.executemany("INSERT OR REPLACE INTO retained VALUES (?, ?, ?, ?)", kept)
            transaction.executemany("DELETE FROM retained WHERE topic = ?", gone)
