"""The database: SQLite in WAL mode, behind one thread, brought up to date when it is opened."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DatabaseError
from sqlmodel import Session, create_engine

from contracts.errors import ConfigError
from identity.files import make_private_directory

T = TypeVar("T")

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_BUSY_MS: Final = 10_000
"""Several hub processes share one database; a batch of one may keep the others waiting."""
_WRITES: Final = "strawberry_writes"


@dataclass(frozen=True)
class Schema:
    """Which migrations a store lives by; several schemas can share one database.

    Attributes:
        scripts: Directory of the Alembic environment.
        version_table: Where this schema's version stands.
    """

    scripts: Path = _MIGRATIONS
    version_table: str = "alembic_version"


class Store:
    """Runs pieces of work on the database, one at a time, in a thread of its own."""

    def __init__(self, engine: Engine, thread: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._writing = engine.execution_options(**{_WRITES: True})
        self._thread = thread

    async def read(self, work: Callable[[Session], T]) -> T:
        """Run work that only reads, in one transaction."""
        return await self._run(self._engine, work)

    async def write(self, work: Callable[[Session], T]) -> T:
        """Run work that writes, in one transaction: all of it is stored when this returns, or none."""
        return await self._run(self._writing, work)

    async def _run(self, engine: Engine, work: Callable[[Session], T]) -> T:
        def transaction() -> T:
            with Session(engine, expire_on_commit=False) as session, session.begin():
                return work(session)

        return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)


@asynccontextmanager
async def open_store(path: Path, *, schema: Schema | None = None) -> AsyncIterator[Store]:
    """Open the database, make it if need be, and migrate it to the newest schema.

    Args:
        path: The SQLite file; it and its directory are made for their owner only.

    Raises:
        ConfigError: If the file is no database, or was written by a newer version.
    """
    loop = asyncio.get_running_loop()
    # One thread, because SQLite has one writer, and so that work is done in the order it was asked.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="store") as thread:
        engine = await loop.run_in_executor(thread, _open, path, schema or Schema())
        try:
            yield Store(engine, thread)
        finally:
            await asyncio.shield(loop.run_in_executor(thread, engine.dispose))


def _open(path: Path, schema: Schema) -> Engine:
    make_private_directory(path.parent)
    # The journal files take over the mode of the database file. A file that is there is not opened: closing
    # it would drop the locks that SQLite holds on it for another store of this process, and the next process
    # that looks in would take the journal for abandoned and delete it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    try:
        migrate(engine.execution_options(**{_WRITES: True}), schema)
    except DatabaseError as error:
        engine.dispose()
        raise ConfigError(f"cannot use the database {path}: {error.orig}", hint="Restore a backup.") from None
    except CommandError:
        engine.dispose()
        raise ConfigError(
            f"the database {path} was written by another version of Strawberry",
            hint="Update Strawberry, or restore a backup of this version.",
        ) from None
    return engine


def _prepare(connection: Any, _: object) -> None:
    # SQLAlchemy says BEGIN below; the driver must not do so by itself.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", f"busy_timeout={_BUSY_MS}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    # A transaction that turns from reading to writing fails at once where another process wrote
    # meanwhile; one that says so at its start waits for its turn.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def migrate(engine: Engine, schema: Schema) -> None:
    """Bring the database to the newest schema, in one transaction."""
    config = Config()
    config.set_main_option("script_location", str(schema.scripts).replace("%", "%%"))
    config.attributes["version_table"] = schema.version_table
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
