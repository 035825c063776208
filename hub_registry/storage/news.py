"""Changes that other processes of this hub have stored, as PostgreSQL tells them by LISTEN and NOTIFY."""

import socket
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, event

from contracts.errors import ConfigError, Conflict
from hub_registry import limits
from hub_registry.storage.schema import lock_key

if TYPE_CHECKING:
    import psycopg

FOLLOWED: Final = frozenset({"user", "device", "token", "approval", "registration"})
"""The tables whose changes are announced: of these a hub holds rows in memory."""
SILENT: Final = "strawberry_silent"
"""The execution option of a statement whose change need not be told: no other process holds it."""
_CHANGED: Final = "strawberry_changed"
_CHANNEL: Final = "(SELECT 'strawberry_' || oid FROM pg_namespace WHERE nspname = current_schema())"
"""A channel is of the database, which may have several homes."""
_HUB: Final = lock_key(0x48756220)
"""Key of the advisory lock of the hub that the database is of; replicas of one hub share it."""
NAME_LOCK: Final = "hashtextextended(current_schema() || ' ' || {}, 0)"
"""Key of the lock of a replica's name."""
_KEEPALIVE: Final = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
"""Within a minute the server knows that a machine is gone; seconds, and how often it asks."""


def tell_changes(engine: Engine, *, origin: str) -> None:
    """Tell other processes with each commit which of the tables it changed, in the same transaction.

    Args:
        origin: Of this process, which does not hear itself.
    """

    def note(
        connection: Connection, _cursor: Any, _statement: str, _values: Any, context: Any, _many: bool
    ) -> None:
        if context.compiled is None or context.execution_options.get(SILENT, False):
            return
        if context.isinsert or context.isupdate or context.isdelete:
            table = context.compiled.statement.table.name
            if table in FOLLOWED:
                connection.info.setdefault(_CHANGED, set()).add(table)

    def tell(connection: Connection) -> None:
        if changed := connection.info.pop(_CHANGED, None):
            said = " ".join((origin, *sorted(changed)))
            connection.exec_driver_sql(f"SELECT pg_notify({_CHANNEL}, %s)", (said,))

    def forget(connection: Connection) -> None:
        # A connection that is gone has forgotten by itself.
        if not connection.invalidated:
            connection.info.pop(_CHANGED, None)

    event.listen(engine, "after_cursor_execute", note)
    event.listen(engine, "commit", tell)
    event.listen(engine, "rollback", forget)


class HubSession:
    """A session of this process at the server: it holds the hub's claim, and hears what others change.

    The server forgets the claim of a session that is gone. Its methods block; `interrupt` is for any thread.

    Args:
        replica: The name of this process, which the session holds, too; others with another name may then
            claim the database as well. Empty for a hub alone.
    """

    def __init__(self, url: str, *, origin: str, replica: str) -> None:
        self._url = url
        self._origin = origin
        self._replica = replica
        self._function = f"pg_try_advisory_lock{'_shared' if replica else ''}"
        self._look_s = limits.REPLICA_SEEN_S if replica else limits.DATABASE_LOOK_S
        # A replica that is silent loses its name; it may be so for longer while it reads what there is.
        self._look = f"SET idle_session_timeout = {limits.LEAD_SILENT_MS}" if replica else "SELECT 1"
        self._connection: psycopg.Connection | None = None
        self._interrupted, self._interrupting = socket.socketpair()

    def open(self) -> None:
        """Claim the database, and listen from now on.

        Raises:
            Conflict: If another hub has claimed it.
            ConfigError: If another replica has the name.
            psycopg.Error: If the server cannot be reached.
        """
        import psycopg

        self._leave()
        connection = psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=limits.DATABASE_CONNECT_S,
            # Here, too, a server that is gone is noticed.
            tcp_user_timeout=limits.DATABASE_SILENT_MS,
            application_name="strawberry",
        )
        self._connection = connection
        # After a power cut here the server would keep the claim for two hours.
        for name, seconds in _KEEPALIVE.items():
            connection.execute(f"SET {name} = {seconds}".encode())
        claimed = connection.execute(f"SELECT {self._function}({_HUB})".encode()).fetchone()
        if claimed != (True,):
            self._leave()
            raise Conflict("another hub uses the database")
        if self._replica:
            self._take_name(connection)
        named = connection.execute(f"SELECT {_CHANNEL}".encode()).fetchone()
        assert named is not None
        connection.execute(f"LISTEN {named[0]}".encode())

    def _take_name(self, connection: "psycopg.Connection") -> None:
        import psycopg

        connection.execute(f"SET lock_timeout = {limits.NAME_WAIT_MS}".encode())
        try:
            connection.execute(
                f"SELECT pg_advisory_lock({NAME_LOCK.format('%s::text')})".encode(), (self._replica,)
            )
        except psycopg.errors.LockNotAvailable:
            holder = connection.execute("SELECT url FROM replica WHERE instance = %s", (self._replica,))
            found = holder.fetchone()
            self._leave()
            raise ConfigError(
                "the name {name} is in use by the replica at {url}",
                name=self._replica,
                url=found[0] if found else "?",
                hint="Stop it, or give each replica a name of its own.",
            ) from None

    def wait(self) -> frozenset[str]:
        """Wait until other processes have changed tables, and return these; none where it was interrupted.

        Raises:
            psycopg.Error: If the session is lost.
        """
        connection = self._connection
        assert connection is not None
        with DefaultSelector() as selector:
            selector.register(connection, EVENT_READ)
            selector.register(self._interrupted, EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(self._look_s)]
                if self._interrupted in ready:
                    return frozenset()
                if not ready:
                    connection.execute(self._look.encode())
                if changed := self._heard(connection):
                    return changed

    def _heard(self, connection: "psycopg.Connection") -> frozenset[str]:
        changed: set[str] = set()
        for each in connection.notifies(timeout=0):
            origin, _, tables = each.payload.partition(" ")
            changed.update(tables.split() if origin != self._origin else ())
        return frozenset(changed)

    def interrupt(self) -> None:
        self._interrupting.send(b"1")

    def close(self) -> None:
        self._leave()
        self._interrupted.close()
        self._interrupting.close()

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
