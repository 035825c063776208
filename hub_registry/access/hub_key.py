"""The hub's identity key, which belongs to its database."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from contracts.errors import ConfigError
from identity.keys import KeyPair

_LOOK_S, _WAIT_S = 0.05, 1.0
"""Another process that starts with the same new home makes the database right after the key."""


def load_hub_key(directory: Path, place: Path | str | None = None) -> KeyPair:
    """Return the key of the hub with this directory; create it only where there is no database yet.

    With another key the hub would be a stranger to all its devices, and with another database it would know
    neither devices nor people.

    Args:
        place: The database, where it is not in the directory.

    Raises:
        ConfigError: If the key cannot be read, or one of key and database is missing.
    """
    path, database = directory / "key.pem", place or directory / "hub.db"
    if _is_there(database) and not path.exists():
        raise ConfigError(
            "{path} is missing: it is the identity of the hub whose database is {database}",
            path=path,
            database=shown(database),
            hint="Restore it from a backup. To start with an empty home, where every device joins again, "
            "move the database away too.",
        )
    until = time.monotonic() + _WAIT_S
    while path.exists() and is_empty(database):
        if time.monotonic() > until:
            raise ConfigError(
                "the database {database} is missing or empty, but the key of its hub exists",
                database=shown(database),
                path=path,
                hint="Restore a backup: 'strawberry restore FILE --replace', or copy the database with "
                "'strawberry database copy'. To start with an empty home, where every device joins again, "
                "move {path} and what is left of the database away.",
            )
        time.sleep(_LOOK_S)
    return KeyPair.load_or_create(path)


def _is_there(database: Path | str) -> bool:
    return database.exists() if isinstance(database, Path) else not is_empty(database)


def is_empty(database: Path | str) -> bool:
    """Return whether a database has no tables; what else is wrong with a file, the store reports.

    Raises:
        ConfigError: If a server's database cannot be used.
    """
    if isinstance(database, str):
        from hub_registry.storage.postgresql import is_empty

        return is_empty(database)
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
    except sqlite3.Error:
        return not database.exists()


def shown(database: Path | str) -> Path | str:
    """Return the place of a database for people, without a password."""
    if isinstance(database, Path):
        return database
    from hub_registry.storage.postgresql import parsed
    from hub_registry.storage.postgresql import shown as shown_url

    return shown_url(parsed(database))
