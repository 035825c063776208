"""The spoke's database: one SQLite file, by the standard library alone, behind one thread."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from contracts.errors import ConfigError, StorageError
from identity.files import make_private_directory

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

FILE_NAME: Final = "conversations.db"

_VERSION: Final = 1
_SCHEMA: Final = """
    CREATE TABLE turn (
        number INTEGER PRIMARY KEY,
        home TEXT NOT NULL,
        id TEXT NOT NULL,
        conversation TEXT NOT NULL,
        at TEXT NOT NULL,
        said TEXT NOT NULL,
        state TEXT NOT NULL,
        in_outbox INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (home, id)
    );
    CREATE INDEX turn_conversation ON turn (home, conversation, at);
"""

_PRAGMAS: Final = (
    "journal_mode=WAL",
    # A few words a minute, on machines that are switched off at the wall: each is on the disk.
    "synchronous=FULL",
    "busy_timeout=10000",
)


class Database:
    """Runs pieces of work, one at a time, each in a transaction."""

    def __init__(self, connection: sqlite3.Connection, path: Path, thread: ThreadPoolExecutor) -> None:
        self._path = path
        self._connection = connection
        self._thread = thread

    async def run(self, work: Work[T]) -> T:
        """Run work: all that it writes is stored when this returns, or nothing.

        Raises:
            StorageError: If the database cannot be used; nothing is stored then.
        """

        def transaction() -> T:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                # Commits at the end; rolls back where the work raises.
                with self._connection:
                    return work(self._connection)
            except sqlite3.DatabaseError as error:
                raise _explained(self._path, error) from None

        return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)

    async def rows(self, statement: str, *values: object) -> list[Any]:
        """Run one statement as `run` does; return its rows."""
        return await self.run(lambda connection: connection.execute(statement, values).fetchall())


@asynccontextmanager
async def open_database(path: Path) -> AsyncIterator[Database]:
    """Open the database; create it if need be.

    Args:
        path: The file; it and its directory are made for their owner only.

    Raises:
        ConfigError: If the file is no database, or was written by another version.
    """
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="database") as thread:
        connection = await loop.run_in_executor(thread, _open, path)
        try:
            yield Database(connection, path, thread)
        finally:
            await asyncio.shield(loop.run_in_executor(thread, connection.close))


def _open(path: Path) -> sqlite3.Connection:
    make_private_directory(path.parent)
    # The journal files take over its mode. A file that is there is not opened: closing it would drop the
    # locks that SQLite may hold on it elsewhere in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        _create(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        explained = _explained(path, error)
        raise ConfigError(explained.message, hint=explained.hint) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _explained(path: Path, error: sqlite3.DatabaseError) -> StorageError:
    return StorageError.of(path, str(error), without="and lose what the hub does not have yet")


def _create(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == _VERSION:
            return
        if version != 0:
            raise ConfigError(
                f"the database {path} was written by another version of Strawberry",
                hint="Update Strawberry, or move the file away.",
            )
        # One by one: `executescript` would commit what stands before it.
        for statement in filter(str.strip, _SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")
