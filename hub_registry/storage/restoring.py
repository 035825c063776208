"""The hub's database in a backup: copied while it is in use, and made safe to go on with when it is restored.

A database from a backup knows nothing of what was revoked since. So what may log in is never taken from it
alone: see `settle`.
"""

import sqlite3
import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contracts.errors import ConfigError, NotFound
from contracts.wire import rfc3339
from hub_registry import limits
from hub_registry.storage.schema import HEAD
from hub_registry.storage.tables import now

_LATEST: Final = {
    # What a device is recognised by, and what follows from it.
    "device": ("public_key", "key_id", "epoch", "connection", "seq", "ended", "revoked_at"),
    "user": ("password", "removed_at", "role"),
}
"""Of rows that both databases have, what is as in the replaced one."""
_RIGHTS: Final = {
    "enrolment": "device_id IN (SELECT id FROM main.device)",
    "password_code": "user IN (SELECT id FROM main.user)",
}
"""Rights to be used once, and which of them are kept."""


@dataclass(frozen=True)
class Contents:
    """What a database holds, for a person who decides whether to restore it.

    Attributes:
        hub_id: Of the hub it belongs to.
        devices: By id, the names of those that may log in.
        people: Names of the users.
        conversations: How many there are.
    """

    hub_id: str
    revision: str
    devices: dict[str, str]
    people: tuple[str, ...]
    conversations: int


@dataclass(frozen=True)
class Settled:
    """What came of `settle`.

    Attributes:
        revoked: The ``jti`` of all tokens that are revoked and have not expired.
        is_same_hub: Whether the replaced database is of the same hub.
    """

    revoked: tuple[str, ...]
    is_same_hub: bool


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite database as it is at one moment, also while others write to it.

    Raises:
        ConfigError: If it cannot be read.
        FileNotFoundError: If there is none.
    """
    try:
        with (
            _opened(source) as database,
            closing(sqlite3.connect(target)) as copy,
        ):
            database.backup(copy)
            # One file, whatever journal the original has.
            copy.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        source.stat()  # raises where it went away meanwhile
        raise ConfigError(
            "{file} cannot be read: {reason}",
            file=source,
            reason=error,
            hint="'strawberry doctor' looks at it.",
        ) from None


def inspect(path: Path) -> Contents:
    """Check a hub's database through, and return what is in it; nothing is changed.

    Raises:
        ConfigError: If it is damaged, no database of a hub, or of another version of Strawberry.
    """
    try:
        with _opened(path) as database:
            _bound(database)
            problem = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
            if problem != "ok":
                raise ConfigError("the database in the backup is damaged: {problem}", problem=problem)
            (revision,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
            if revision != HEAD:
                raise ConfigError(
                    "the backup is of another version of Strawberry: database {revision}, here {head}",
                    revision=revision,
                    head=HEAD,
                    hint="Restore it with the version that made it.",
                )
            (hub_id,) = database.execute("SELECT id FROM hub").fetchone()
            devices = database.execute(
                "SELECT id, display_name FROM device "
                "WHERE key_id IS NOT NULL AND revoked_at IS NULL ORDER BY display_name LIMIT ?",
                (limits.MOST_NAMED,),
            )
            people = database.execute(
                "SELECT display_name FROM user ORDER BY created_at LIMIT ?", (limits.MOST_NAMED,)
            )
            (conversations,) = database.execute("SELECT count(DISTINCT conversation) FROM turn").fetchone()
            return Contents(
                str(hub_id), str(revision), dict(devices), tuple(name for (name,) in people), conversations
            )
    except (sqlite3.Error, TypeError) as error:
        raise ConfigError("the backup holds no database of a hub: {error}", error=error) from None


def _bound(database: sqlite3.Connection) -> None:
    """Bound what a database that comes from anybody makes SQLite do: it is a program as well."""
    until = time.monotonic() + limits.DATABASE_CHECK_S
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.MAX_RESTORED_VALUE_BYTES)
    database.set_progress_handler(lambda: time.monotonic() > until, 100_000)
    # Ours has three triggers, which keep the words of turns; others would act on what `settle` changes.
    if database.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'view' OR (type = 'trigger' AND tbl_name != 'turn')"
    ).fetchone():
        raise ConfigError("the backup holds no database of a hub: it has views or triggers")


def settle(path: Path, *, replaced: Path | None, revoke: Collection[str] = ()) -> Settled:
    """Make a database from a backup safe to go on with: no revoked token counts again. May be repeated.

    Where the database that it replaces is of the same hub, that one says who may log in: tokens, keys,
    passwords, roles, revocations and invitations are as there, and what was added or removed since the
    backup stays out. Otherwise nothing is known of the time since the backup: all tokens end that are worth
    something to anybody who has them, which are those of people and of MQTT programs, and so do
    invitations. Tokens of devices stay: each is worth nothing without the key of its device.

    Args:
        replaced: The database that was in use until now; None where there is none.
        revoke: Ids of devices to revoke besides.

    Raises:
        NotFound: If there is no device of such an id.
    """
    is_same_hub = replaced is not None and _hub_of(replaced) == _hub_of(path)
    with _opened(path) as database:
        if is_same_hub:
            database.execute("ATTACH ? AS replaced", (str(replaced),))
            with database:
                _follow_replaced(database)
        else:
            with database:
                database.execute(
                    "UPDATE token SET revoked_at = ? WHERE kind != 'device' AND revoked_at IS NULL", (_now(),)
                )
                for table in _RIGHTS:
                    if _columns(database, "main", table):
                        database.execute(f"DELETE FROM {table}")  # noqa: S608  a constant
        with database:
            for device in revoke:
                found = database.execute("UPDATE device SET revoked_at = ? WHERE id = ?", (_now(), device))
                if not found.rowcount:
                    raise NotFound("the backup has no device {name!r}", name=device)
                database.execute(
                    "UPDATE token SET revoked_at = ? "
                    "WHERE kind = 'device' AND subject = ? AND revoked_at IS NULL",
                    (_now(), device),
                )
        ended = database.execute(
            "SELECT jti FROM token WHERE revoked_at IS NOT NULL AND expires_at > ?", (_now(),)
        )
        return Settled(tuple(str(jti) for (jti,) in ended), is_same_hub)


def _follow_replaced(database: sqlite3.Connection) -> None:
    """Copy from the attached database ``replaced`` who may log in."""
    database.execute("DELETE FROM main.token")
    _copy(database, "token")
    for table, latest in _LATEST.items():
        names = ", ".join(name for name in latest if name in _shared_columns(database, table))
        database.execute(
            f"UPDATE main.{table} SET ({names}) = "  # noqa: S608  constants
            f"(SELECT {names} FROM replaced.{table} AS other WHERE other.id = main.{table}.id) "
            f"WHERE id IN (SELECT id FROM replaced.{table})"
        )
    database.execute(
        "UPDATE main.device SET revoked_at = ? "
        "WHERE revoked_at IS NULL AND id NOT IN (SELECT id FROM replaced.device)",
        (_now(),),
    )
    database.execute(
        "UPDATE main.token SET revoked_at = ? WHERE revoked_at IS NULL AND ("
        "owner NOT IN (SELECT id FROM main.user) "
        "OR (kind = 'device' AND subject NOT IN (SELECT id FROM main.device WHERE revoked_at IS NULL)))",
        (_now(),),
    )
    # No id is given out again that a device had, whether it was removed or added since the backup.
    database.execute(
        "INSERT OR IGNORE INTO main.retired_device SELECT id, retired_at FROM replaced.retired_device "
        "WHERE id NOT IN (SELECT id FROM main.device)"
    )
    database.execute(
        "INSERT OR IGNORE INTO main.retired_device SELECT id, ? FROM replaced.device "
        "WHERE id NOT IN (SELECT id FROM main.device)",
        (_now(),),
    )
    for table, which in _RIGHTS.items():
        if _columns(database, "main", table):
            database.execute(f"DELETE FROM main.{table}")  # noqa: S608  a constant
            _copy(database, table, f"WHERE {which}")


def _copy(database: sqlite3.Connection, table: str, which: str = "") -> None:
    """Copy rows from the attached database, if it has such a table."""
    if columns := ", ".join(_shared_columns(database, table)):
        database.execute(
            f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM replaced.{table} {which}"  # noqa: S608
        )


def _shared_columns(database: sqlite3.Connection, table: str) -> list[str]:
    """List the columns that both databases have: they may be of different versions."""
    theirs = _columns(database, "replaced", table)
    return [column for column in _columns(database, "main", table) if column in theirs]


def _columns(database: sqlite3.Connection, schema: str, table: str) -> list[str]:
    return [column[1] for column in database.execute(f"PRAGMA {schema}.table_info({table})")]


def _hub_of(path: Path) -> str | None:
    """Return the id of the hub of a database; None where it cannot be read."""
    try:
        with _opened(path) as database:
            found: Any = database.execute("SELECT id FROM hub").fetchone()
            # Of a damaged one nothing is taken over.
            sound = database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except sqlite3.Error:
        return None
    return str(found[0]) if found and sound else None


def _opened(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=limits.RESTORE_BUSY_S))


def _now() -> str:
    return rfc3339(now())
