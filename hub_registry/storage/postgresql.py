"""The database of a home with more than one machine: PostgreSQL, by ``[database] url``.

Work that writes runs one at a time, as with SQLite, whichever process it is of: it holds a lock of the
database until it is stored.
"""

import re
import secrets
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from threading import RLock
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DisconnectionError, OperationalError, SQLAlchemyError
from sqlmodel import create_engine

from contracts.errors import ConfigError, Conflict, StorageError
from hub_registry import limits
from hub_registry.storage.news import HubSession, tell_changes
from hub_registry.storage.schema import AnotherVersion, create_tables, lock_key, tables_of_postgresql
from hub_registry.storage.sqlite import WRITES, read_json

_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_WRITER: Final = lock_key(0x57726974)
_LEAD: Final = lock_key(0x4C656164)
"""Keys of advisory locks: of the transaction that writes, and of the replica that leads."""
_NO_SCHEMA: Final = "3F000"
_BEGIN_READING: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ"
# Another one that writes may have stored while this one waited for the lock; it sees that.
_BEGIN_WRITING: Final = (
    f"BEGIN; SET LOCAL lock_timeout = {{}}; SELECT pg_advisory_xact_lock({_WRITER}); "
    "SET LOCAL lock_timeout TO DEFAULT"
)
_END_STOPPED: Final = f"""
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND (classid::bigint << 32 | objid::bigint) = ({_WRITER})
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND wait_event = 'ClientRead' AND state_change < now() - interval '{{}} ms'
"""  # noqa: S608  constants
"""Ends the session of a process that was stopped while it wrote. The server's own limit would also end one
that is only slow and that no other waits for, and does not count within a batch of statements."""
_USED: Final = "strawberry_used"


class PostgreSQL:
    """A database of a PostgreSQL server.

    Attributes:
        engine: For work that reads: it sees one moment.
        writing: The same for work that writes.

    Args:
        url: ``postgresql://user@host/database``; a password belongs into ``~/.pgpass``, or into the owner's
            file that has this URL.

    Raises:
        ConfigError: If the database cannot be used, or was written by another version.
    """

    def __init__(self, url: str) -> None:
        self._url = parsed(url)
        self._origin = secrets.token_hex(8)
        self._claim: HubSession | None = None
        self.engine = create_engine(
            self._url,
            # Each transaction begins by `_begin`, in one round trip.
            isolation_level="AUTOCOMMIT",
            json_deserializer=_read_json,
            connect_args={
                "connect_timeout": limits.DATABASE_CONNECT_S,
                "tcp_user_timeout": limits.DATABASE_SILENT_MS,
                "application_name": "strawberry",
            },
        )
        self.writing: Engine = self.engine.execution_options(**{WRITES: True})
        event.listen(self.engine, "begin", _begin)
        event.listen(self.engine, "checkin", _note_use)
        event.listen(self.engine, "checkout", _require_alive)
        event.listen(self.engine, "before_cursor_execute", _without_nul, retval=True)
        tell_changes(self.engine, origin=self._origin)
        try:
            create_tables(self.engine, self.writing, tables=_TABLES, schema=tables_of_postgresql())
        except DatabaseError as error:
            self.engine.dispose()
            raise _unusable(self._url, error.orig) from None
        except AnotherVersion as error:
            self.engine.dispose()
            raise ConfigError(
                "the database {url} was written by another version of Strawberry, or by another program",
                url=shown(self._url),
                hint=error.hint or "Update Strawberry, or name an empty database.",
            ) from None

    def explained(self, error: DatabaseError) -> StorageError:
        return self._lost(error.orig)

    def claim(self, *, replica: str = "") -> None:
        """See `Store.claim`."""
        url = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._claim = HubSession(url, origin=self._origin, replica=replica)
        self.claim_again()

    def claim_again(self) -> None:
        """Claim the database after the session that had the claim was lost.

        Raises:
            ConfigError: If another hub has claimed it meanwhile, or another replica has the name.
            StorageError: If the server cannot be reached.
        """
        import psycopg

        assert self._claim is not None
        try:
            self._claim.open()
        except psycopg.Error as error:
            raise self._lost(error) from None
        except Conflict as error:
            raise ConfigError(
                "another hub uses the database {url}",
                url=shown(self._url),
                hint="Stop it, start each hub of a home with --replica, "
                "or name another database in [database] url.",
            ) from error

    def wait_for_changes(self) -> frozenset[str]:
        """Wait until other processes of this hub have changed tables, and return their names.

        Raises:
            StorageError: If the session at the server is lost.
        """
        import psycopg

        assert self._claim is not None
        try:
            return self._claim.wait()
        except psycopg.Error as error:
            raise self._lost(error) from None

    def interrupt(self) -> None:
        if self._claim is not None:
            self._claim.interrupt()

    def _lost(self, error: object) -> StorageError:
        return StorageError("the database {url}: {reason}", url=shown(self._url), reason=_shortened(error))

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()
        self.engine.dispose()


class Candidacy:
    """A session that may hold the lock of the lead.

    The server ends it with its connection, and where it is silent: that of a process that is stopped.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: Connection | None = None
        # A caller that was cancelled leaves its thread behind.
        self._lock = RLock()

    def _open(self) -> None:
        with ExitStack() as stack:
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            stack.callback(session.close)
            # Not of the pool any more: its locks end with it.
            session.detach()
            session.exec_driver_sql(f"SET idle_session_timeout = {limits.LEAD_SILENT_MS}")
            stack.pop_all()
        self._session = session

    def gain(self) -> bool:
        """Acquire the lock if it is free; return whether it is held now.

        Raises:
            DatabaseError: If the server is away.
        """
        with self._lock:
            if self._session is None:
                self._open()
            assert self._session is not None
            return bool(self._session.exec_driver_sql(f"SELECT pg_try_advisory_lock({_LEAD})").scalar_one())

    def keep(self) -> None:
        """Keep the session alive.

        Raises:
            DatabaseError: If the session is gone, and the lock with it.
        """
        with self._lock:
            assert self._session is not None
            self._session.exec_driver_sql("SELECT 1")

    def close(self) -> None:
        """Release the lock."""
        with self._lock, suppress(SQLAlchemyError):
            session, self._session = self._session, None
            if session is not None:
                session.close()


def is_empty(url: str) -> bool:
    """Return whether a database has none of our tables.

    Raises:
        ConfigError: If it cannot be used.
    """
    where = parsed(url)
    import psycopg

    try:
        address = where.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, connect_timeout=limits.DATABASE_CONNECT_S) as connection:
            found = connection.execute("SELECT current_schema(), to_regclass('hub')").fetchone()
            if found is None or found[0] is None:
                raise psycopg.errors.InvalidSchemaName("the schema of the home is missing")
    except psycopg.Error as error:
        raise _unusable(where, error) from None
    return found[1] is None


def _unusable(url: URL, error: object) -> ConfigError:
    # Of a connection that the server refused.
    login = getattr(error, "pgconn", None)
    hint = "Look at the URL (in strawberry.toml: [database] url), and whether the server runs."
    if getattr(error, "sqlstate", None) == _NO_SCHEMA:
        hint = "Make the schema of [home] name: CREATE SCHEMA NAME AUTHORIZATION USER."
    elif login is not None and login.needs_password:
        hint = "Write the user's password to ~/.pgpass, as HOST:PORT:DATABASE:USER:PASSWORD."
    elif login is not None and login.used_password:
        # It may be wrong, or good and something else is.
        hint = "Look at the URL (in strawberry.toml: [database] url), and at the password in ~/.pgpass."
    return ConfigError(
        "the database {url} cannot be used: {reason}", url=shown(url), reason=_shortened(error), hint=hint
    )


def of_home(url: str, name: str) -> str:
    """Return the URL by which each connection sees the schema of this name, and no other.

    Raises:
        ConfigError: If the URL has options, which may name another.
    """
    if re.search(r"[?&]options=", url):
        raise ConfigError("[home] name and options in the URL of the database exclude each other")
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"


def parsed(url: str) -> URL:
    """Return the URL of a PostgreSQL database for its driver.

    Raises:
        ConfigError: If it is none.
    """
    try:
        made = make_url(url)
    except ArgumentError:
        made = None
    if made is None or made.drivername not in ("postgresql", "postgres"):
        raise ConfigError(
            "the URL of the database is none of PostgreSQL", hint="Write postgresql://user@host/database."
        )
    if find_spec("psycopg") is None:
        raise ConfigError(
            "a PostgreSQL database needs the package psycopg",
            hint="Install it: pip install 'strawberry-home[postgresql]'.",
        )
    return made.set(drivername="postgresql+psycopg")


def shown(url: URL) -> str:
    return url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)


def _read_json(value: str | bytes) -> Any:
    return read_json(value if isinstance(value, str) else value.decode())


def _shortened(error: object) -> str:
    return " ".join(str(error).split())[: limits.MAX_DATABASE_REASON]


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get("isolation_level") == "AUTOCOMMIT":
        return
    import psycopg

    driver: Any = connection.connection.driver_connection
    try:
        if options.get(WRITES, False):
            _begin_writing(driver)
        else:
            driver.execute(_BEGIN_READING, prepare=False)
    except psycopg.Error as error:
        connection.invalidate(error)
        raise OperationalError("BEGIN", None, error) from None


def _begin_writing(driver: Any) -> None:
    import psycopg

    while True:
        try:
            # As a prepared statement it would have to be one command.
            driver.execute(_BEGIN_WRITING.format(limits.DATABASE_WAIT_MS), prepare=False)
        except psycopg.errors.LockNotAvailable:
            driver.execute("ROLLBACK")
            driver.execute(_END_STOPPED.format(limits.DATABASE_STOPPED_MS))
        else:
            return


def _note_use(_connection: Any, record: Any) -> None:
    record.info[_USED] = time.monotonic()


def _require_alive(connection: Any, record: Any, _: object) -> None:
    # The server may have gone since the connection was used last: then the pool connects again.
    if time.monotonic() - record.info.get(_USED, 0.0) > limits.DATABASE_TRUSTED_S:
        import psycopg

        try:
            connection.execute("")
        except psycopg.Error:
            raise DisconnectionError from None


def _without_nul(
    _connection: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool
) -> tuple[str, Any]:
    """Replace what PostgreSQL cannot keep in a text: devices and people may send it."""
    if isinstance(parameters, list | tuple):
        return statement, type(parameters)(map(clean, parameters))
    return statement, clean(parameters)


def clean(value: Any) -> Any:
    """Return a value as PostgreSQL keeps it: it has no NUL in a text."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {name: clean(each) for name, each in value.items()}
    return value
