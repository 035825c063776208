"""Changes that other processes of this hub have stored, as PostgreSQL tells them by LISTEN and NOTIFY."""

import socket
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, event

from contracts.errors import Conflict
from hub_registry import limits
from hub_registry.storage.schema import lock_key

if TYPE_CHECKING:
    import psycopg

FOLLOWED: Final = frozenset({"user", "device", "token", "approval", "registration"})
"""The tables whose changes are told: of these a hub holds rows in memory."""
SILENT: Final = "strawberry_silent"
"""The execution option of a statement whose change need not be told: no other process holds it."""
_CHANGED: Final = "strawberry_changed"
_CHANNEL: Final = "(SELECT 'strawberry_' || oid FROM pg_namespace WHERE nspname = current_schema())"
"""A channel is of the database, which may have several homes."""
_HUB: Final = lock_key(0x48756220)
"""Key of the advisory lock of the hub that the database is of; replicas of one hub share it."""
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
        shared: Whether further processes of this hub may claim the database, too.
    """

    def __init__(self, url: str, *, origin: str, shared: bool) -> None:
        self._url = url
        self._origin = origin
        self._function = f"pg_try_advisory_lock{'_shared' if shared else ''}"
        self._connection: psycopg.Connection | None = None
        self._interrupted, self._interrupting = socket.socketpair()

    def open(self) -> None:
        """Claim the database, and listen from now on.

        Raises:
            Conflict: If another hub has claimed it.
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
        named = connection.execute(f"SELECT {_CHANNEL}".encode()).fetchone()
        assert named is not None
        connection.execute(f"LISTEN {named[0]}".encode())

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
                ready = [key.fileobj for key, _ in selector.select(limits.DATABASE_LOOK_S)]
                if self._interrupted in ready:
                    return frozenset()
                if not ready:
                    connection.execute("SELECT 1")
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
