"""The database of one machine: a SQLite file in WAL mode, created when it is opened."""

import json
import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DatabaseError
from sqlmodel import create_engine

from contracts.errors import ConfigError, StorageError
from contracts.validation import check_numbers
from hub_registry import limits
from hub_registry.storage.schema import TABLES, AnotherVersion, create_tables

WRITES: Final = "strawberry_writes"
"""The execution option of work that writes."""


class SQLite:
    """A SQLite file; it and its directory are made for their owner only, and a directory that is there stays.

    Attributes:
        engine: For work that reads.
        writing: The same for work that writes.

    Raises:
        ConfigError: If the file is no database, or was written by another version.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                "{path} cannot be used as a directory: {reason}",
                path=path.parent,
                reason=error.strerror,
                hint="Move the file that has its name, or set STRAWBERRY_HOME to another directory.",
            ) from None
        # The journal files take over the mode of the database file. A file that is there is not opened:
        # closing it would drop the locks that SQLite holds on it for another store of this process, and the
        # next process that looks in would take the journal for abandoned and delete it.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._path = path
        self.engine = create_engine(f"sqlite:///{path}", json_deserializer=read_json)
        self.writing: Engine = self.engine.execution_options(**{WRITES: True})
        event.listen(self.engine, "connect", _prepare)
        event.listen(self.engine, "begin", _begin)
        try:
            create_tables(self.engine, self.writing, tables=_TABLES, schema=TABLES)
        except DatabaseError as error:
            self.engine.dispose()
            explained = self.explained(error)
            raise ConfigError(explained.message, hint=explained.hint) from None
        except AnotherVersion as error:
            self.engine.dispose()
            raise ConfigError(
                "the database {path} was written by another version of Strawberry",
                path=path,
                hint=error.hint or "Update Strawberry, or restore a backup of this version.",
            ) from None

    def explained(self, error: DatabaseError) -> StorageError:
        """Return an error of the driver as one for people."""
        reason = str(error.orig)
        # SQLite finds no room for the index of its journal, and does not say so.
        has_room = shutil.disk_usage(self._path.parent).free >= limits.LEAST_DATABASE_BYTES
        if "disk I/O" in reason and not has_room:
            reason = "the disk is full"
        return StorageError.of(self._path, reason, without="to start with an empty home")

    def claim(self, *, replica: str = "") -> None:
        """See `Store.claim`: the directory has a lock of its own."""
        if replica:
            raise ConfigError(
                "the replica {name} needs a PostgreSQL database, and {path} is a file",
                name=replica,
                path=self._path,
                hint="Name one in [database] url of strawberry.toml; docs/scale.md says how to move to it.",
            )

    def close(self) -> None:
        self.engine.dispose()


_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"


def read_json(text: str) -> Any:
    """Read a JSON column; None where an older version or a person has left no JSON there."""
    try:
        check_numbers(text.encode())
        return json.loads(text)
    except (AttributeError, RecursionError, ValueError):
        return None


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
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
