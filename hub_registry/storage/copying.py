"""Copying all rows of a hub's database into another one, of either kind, checked row by row."""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import zip_longest
from typing import Any, Final

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    CursorResult,
    MetaData,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    insert,
    literal_column,
    select,
)
from sqlalchemy.exc import DatabaseError

from contracts.errors import ConfigError
from hub_registry.storage.postgresql import PostgreSQL, clean
from hub_registry.storage.schema import VERSION_TABLE
from hub_registry.storage.store import Place, opened

_BATCH: Final = 500
_NOT_COPIED: Final = ("turn_words", VERSION_TABLE)
"""The full-text index of SQLite follows its table."""
_NUMBER: Final = "rowid"
_NUMBERED: Final = ("turn", "token")
"""Tables whose rows have a number beside their key, which says what came first."""
_OF_POSTGRESQL: Final = (_NUMBER, "words")
"""Columns that SQLite has by itself."""

Progress = Callable[[str, int], None]
"""Called with each table that was copied and the number of its rows."""


def copy_rows(
    source: Place,
    target: Place,
    *,
    is_move: bool = False,
    progress: Progress = lambda _table, _rows: None,
) -> None:
    """Put all rows of a database into another one, in place of those that are there, in one transaction.

    A SQLite file that is not there is made. The text of a row may have no NUL in PostgreSQL; a mark is in its
    place.

    Args:
        is_move: No hub may use the first one either: what it wrote meanwhile would be lost.

    Raises:
        ConfigError: If one cannot be used, a hub uses the other one, or a row is not the same in it.
    """
    with closing(opened(source)) as from_, closing(opened(target)) as to:
        if is_move:
            from_.claim()
        to.claim()  # no hub may use it meanwhile, also on another machine
        try:
            with from_.engine.begin() as reading, to.writing.begin() as writing:
                if isinstance(to, PostgreSQL):
                    # No request waits for this one: reading from a distant source may take its time.
                    writing.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
                metadata = MetaData()
                metadata.reflect(
                    reading, only=lambda name, _: not name.startswith(("turn_words", VERSION_TABLE))
                )
                for each in reversed(metadata.sorted_tables):
                    writing.execute(delete(each))
                for each in metadata.sorted_tables:
                    progress(each.name, _copy(each, reading, writing))
        except DatabaseError as error:
            reason = " ".join(str(error.orig).split())[:300]
            raise ConfigError(
                "the database cannot be copied: {reason}",
                reason=reason,
                hint="Nothing was changed. Look whether the server runs, and try again.",
            ) from None


def _copy(table: Table, reading: Connection, writing: Connection) -> int:
    columns = [each for each in table.c if each.name not in _OF_POSTGRESQL]
    to_postgresql = writing.dialect.name == "postgresql"

    def value(each: Column[Any]) -> Any:
        if not isinstance(each.type, JSON):
            return bindparam(each.name, type_=each.type)
        # As text, so that it stays as it was written.
        return (
            cast(bindparam(each.name, type_=Text), JSON)
            if to_postgresql
            else bindparam(each.name, type_=Text)
        )

    statement = insert(table).values({each.name: value(each) for each in columns})
    copied = 0
    for rows in _rows(table, columns, reading).mappings().partitions(_BATCH):
        writing.execute(statement, [dict(row) for row in rows])
        copied += len(rows)
    pairs = zip_longest(_rows(table, columns, reading), _rows(table, columns, writing))
    if any(
        one is None or other is None or [*map(clean, one)] != [*map(clean, other)] for one, other in pairs
    ):
        raise ConfigError("a row of the table {table} is not the same in the copy", table=table.name)
    if to_postgresql and "id" in table.c and table.c["id"].type.python_type is int:
        number = f"pg_get_serial_sequence('{table.name}', 'id')"
        writing.exec_driver_sql(f"SELECT setval({number}, (SELECT max(id) FROM {table.name}))")  # noqa: S608
    return copied


def _rows(table: Table, columns: Sequence[Column[Any]], connection: Connection) -> CursorResult[Any]:
    """Return the rows in an order that both kinds of database have."""
    order = [literal_column(_NUMBER)] if table.name in _NUMBERED else [*table.primary_key]
    read = [
        cast(each, Text).label(each.name) if isinstance(each.type, JSON) else each.label(each.name)
        for each in columns
    ]
    query = select(*read).order_by(*order).execution_options(yield_per=_BATCH)
    return connection.execute(query)
