"""The hub's database: SQLite in WAL mode behind two threads, created when it is opened."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlmodel import Session, create_engine

from contracts.errors import ConfigError, DiskFull, StorageError
from contracts.validation import check_numbers
from hub_registry import limits
from hub_registry.storage.threads import FairThread
from identity.files import make_private_directory

T = TypeVar("T")

HEAD: Final = "0010"
"""The revision of the tables, in the table of Alembic, which migrates them from the first release on."""
_SCHEMA: Final = Path(__file__).parent / "schema.sql"
_VERSION_TABLE: Final = "alembic_version"
_WRITES: Final = "strawberry_writes"


class Store:
    """Runs pieces of work on the database: one that writes and one that reads at a time.

    Each has a thread and a connection of its own, so that what a person reads does not wait for what devices
    hand in. What was written before a read began is in it.

    Attributes:
        full: Set by each write for which the disk has no room; cleared by who waits for it.
    """

    def __init__(self, path: Path, engine: Engine, *, writer: FairThread, reader: FairThread) -> None:
        self._path = path
        self._engine = engine
        self._writing = engine.execution_options(**{_WRITES: True})
        self._writer = writer
        self._reader = reader
        self.full = asyncio.Event()

    async def read(self, work: Callable[[Session], T], *, asker: str = "") -> T:
        """Run work that only reads, in one transaction.

        Args:
            asker: Whose work it is; see `FairThread`.

        Raises:
            StorageError: If the database cannot be used.
        """
        return await self._run(self._reader, self._engine, work, asker)

    async def write(self, work: Callable[[Session], T], *, asker: str = "") -> T:
        """Run work that writes, in one transaction: all of it is stored when this returns, or none.

        Args:
            asker: Whose work it is; see `FairThread`.

        Raises:
            StorageError: If the database cannot be used; nothing is stored then.
        """
        try:
            return await self._run(self._writer, self._writing, work, asker)
        except DiskFull:
            self.full.set()
            raise

    async def _run(self, thread: FairThread, engine: Engine, work: Callable[[Session], T], asker: str) -> T:
        def transaction() -> T:
            try:
                with Session(engine, expire_on_commit=False) as session, session.begin():
                    return work(session)
            except IntegrityError:
                raise
            except DatabaseError as error:
                raise _explained(self._path, error) from None

        return await thread.run(transaction, asker=asker)


@asynccontextmanager
async def open_store(path: Path) -> AsyncIterator[Store]:
    """Open the database; create it if need be.

    Args:
        path: The SQLite file; it and its directory are made for their owner only.

    Raises:
        ConfigError: If the file is no database, or was written by another version.
    """
    # SQLite has one writer, and what one asker writes is written in the order it was asked.
    with FairThread("store") as writer, FairThread("reads") as reader:
        engine = await writer.run(partial(_open, path))
        try:
            yield Store(path, engine, writer=writer, reader=reader)
        finally:
            reader.close()
            await asyncio.shield(writer.run(engine.dispose))


def _open(path: Path) -> Engine:
    try:
        make_private_directory(path.parent)
    except OSError as error:
        raise ConfigError(
            "{path} cannot be used as a directory: {reason}",
            path=path.parent,
            reason=error.strerror,
            hint="Move the file that has its name, or set STRAWBERRY_HOME to another directory.",
        ) from None
    # The journal files take over the mode of the database file. A file that is there is not opened: closing
    # it would drop the locks that SQLite holds on it for another store of this process, and the next process
    # that looks in would take the journal for abandoned and delete it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    engine = create_engine(f"sqlite:///{path}", json_deserializer=_read_json)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    try:
        _create_tables(engine)
    except DatabaseError as error:
        engine.dispose()
        explained = _explained(path, error)
        raise ConfigError(explained.message, hint=explained.hint) from None
    except _AnotherVersion:
        engine.dispose()
        raise ConfigError(
            "the database {path} was written by another version of Strawberry",
            path=path,
            hint="Update Strawberry, or restore a backup of this version.",
        ) from None
    return engine


def _read_json(text: str) -> Any:
    """Read a JSON column; None where an older version or a person has left no JSON there."""
    try:
        check_numbers(text.encode())
        return json.loads(text)
    except (AttributeError, RecursionError, ValueError):
        return None


def _explained(path: Path, error: DatabaseError) -> StorageError:
    reason = str(error.orig)
    # SQLite finds no room for the index of its journal, and does not say so.
    if "disk I/O" in reason and shutil.disk_usage(path.parent).free < limits.LEAST_DATABASE_BYTES:
        reason = "the disk is full"
    return StorageError.of(path, reason, without="to start with an empty home")


def _prepare(connection: Any, _: object) -> None:
    # SQLAlchemy says BEGIN below; the driver must not do so by itself.
    connection.isolation_level = None
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        f"busy_timeout={limits.DATABASE_BUSY_MS}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    # A transaction that turns from reading to writing fails at once where another process wrote
    # meanwhile; one that says so at its start waits for its turn.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class _AnotherVersion(Exception):
    """The database has a revision that this version does not know."""


def _create_tables(engine: Engine) -> None:
    """Create all tables in an empty database.

    Raises:
        _AnotherVersion: If there are others.
    """
    with engine.begin() as connection:
        if _revision(connection) == HEAD:
            return
    with engine.execution_options(**{_WRITES: True}).begin() as connection:
        if _revision(connection) is None:
            for statement in _SCHEMA.read_text("utf-8").split("\n\n"):
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql(
                f"CREATE TABLE {_VERSION_TABLE} (version_num VARCHAR(32) PRIMARY KEY NOT NULL)"
            )
            connection.exec_driver_sql(f"INSERT INTO {_VERSION_TABLE} VALUES (?)", (HEAD,))  # noqa: S608  a constant
        elif _revision(connection) != HEAD:
            raise _AnotherVersion


def _revision(connection: Connection) -> str | None:
    """Return the revision of the database, None for an empty one."""
    tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    if not tables:
        return None
    if _VERSION_TABLE not in tables:
        raise _AnotherVersion
    found = connection.exec_driver_sql(f"SELECT version_num FROM {_VERSION_TABLE}")  # noqa: S608  a constant
    return str(found.scalar_one())
