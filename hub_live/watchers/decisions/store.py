"""Watchers and their decisions in the hub's database."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, cast

from sqlalchemy import Table, bindparam
from sqlmodel import Session, col, delete, func, select

from contracts.errors import Conflict, StorageError
from hub_live import limits
from hub_live.watchers.decisions.kinds import GAP, KINDS
from hub_live.watchers.tables import DecisionRow, WatcherRow
from hub_registry.access.accounts import User
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now


class WatcherStore:
    """Reads and writes the rows; the rows that it gives belong to the caller.

    Args:
        instance: Name of this hub process, whose watchers are read.

    Attributes:
        last: By watcher, the newest decision that was recorded or read.
    """

    def __init__(self, store: Store, *, instance: str) -> None:
        self._store = store
        self.instance = instance
        self.last: dict[str, DecisionRow] = {}
        self._recorded: dict[str, int] = {}

    async def add(self, row: WatcherRow, *, replace: bool = False) -> None:
        """Write a new watcher.

        Args:
            replace: Whether it takes the place of the one of this name, with its history.

        Raises:
            Conflict: If there is one of this name, also of another hub process.
        """
        values = row.model_dump()

        def work(session: Session) -> None:
            if replace:
                _delete(session, row.name)
            elif (there := session.get(WatcherRow, row.name)) is not None:
                raise _name_taken(there)
            session.add(WatcherRow(**values))

        await self._store.write(work)
        self.last.pop(row.name, None)

    async def watchers(self) -> list[WatcherRow]:
        """Return all watchers, the oldest first."""
        own = select(WatcherRow).where(WatcherRow.instance == self.instance)
        query = own.order_by(col(WatcherRow.created_at), col(WatcherRow.name))
        return await self._store.read(lambda session: list(session.exec(query)))

    async def save(self, *rows: WatcherRow) -> None:
        """Write watchers as they are now; one that was removed meanwhile stays so."""
        changed = [_bound(row) for row in rows]
        if changed:
            await self._store.write(lambda session: session.connection().execute(_CHANGE, changed))

    async def remove(self, name: str) -> None:
        """Delete a watcher and its history."""
        await self._store.write(lambda session: _delete(session, name))
        self.last.pop(name, None)

    async def record(self, row: WatcherRow, entry: DecisionRow) -> None:
        """Add an entry to the history of a watcher, and write the watcher, in one transaction."""
        pending = row.pending
        if entry.decision != GAP.name:
            row.pending = ""
        changed, added = _bound(row), entry.model_dump(exclude={"id"})
        count = self._recorded[row.name] = self._recorded.get(row.name, 0) + 1
        prunes = count % limits.HISTORY_PRUNED == 1

        def work(session: Session) -> int | None:
            # Without the ORM, which takes 5 ms for the same: a watcher without a model acts after this.
            connection = session.connection()
            if not connection.execute(_CHANGE, changed).rowcount:
                return None
            made = connection.execute(_ADD, added).inserted_primary_key
            id_ = int(made[0]) if made else None
            if not prunes:
                return id_
            mine = col(DecisionRow.watcher) == row.name
            newest = select(DecisionRow.id).where(mine).order_by(col(DecisionRow.id).desc())
            kept = newest.limit(limits.HISTORY_KEPT)
            session.exec(delete(DecisionRow).where(mine, col(DecisionRow.id).not_in(kept)))
            return id_

        try:
            entry.id = await self._store.write(work)
        except StorageError:
            row.pending = pending
            raise
        if entry.id is not None and KINDS[entry.decision].is_decision:
            self.last[row.name] = entry

    async def finish(self, entry: DecisionRow) -> None:
        """Write what came of a decision."""
        values = {"state": entry.state, "actions": entry.actions, "its_id": entry.id}
        await self._store.write(lambda session: session.connection().execute(_FINISH, values))

    async def history(self, name: str, *, limit: int, gaps: bool = True) -> list[DecisionRow]:
        """Return the last entries of a watcher, newest first.

        Args:
            gaps: Whether times without data are among them.
        """
        query = select(DecisionRow).where(DecisionRow.watcher == name).order_by(col(DecisionRow.id).desc())
        query = query if gaps else query.where(DecisionRow.decision != GAP.name)
        return await self._store.read(lambda session: list(session.exec(query.limit(limit))))

    async def interrupt(self) -> list[DecisionRow]:
        """Mark decisions during whose actions the hub was stopped, and return them."""

        def work(session: Session) -> list[DecisionRow]:
            own = select(WatcherRow.name).where(WatcherRow.instance == self.instance)
            acting = select(DecisionRow).where(DecisionRow.state == "acting")
            rows = list(session.exec(acting.where(col(DecisionRow.watcher).in_(own))))
            for row in rows:
                row.state = "interrupted"
            return rows

        return await self._store.write(work)

    async def used(self) -> tuple[int, dict[str, int]]:
        """Return the tokens of the last day, and by watcher how often it acted in the last hour."""
        day, hour = now() - timedelta(days=1), now() - timedelta(hours=1)
        # Added up by the database: a value that was altered counts as nothing, and no JSON is read.
        spent = select(func.coalesce(func.sum(DecisionRow.tokens), 0)).where(
            DecisionRow.at >= day, DecisionRow.tokens > 0
        )
        acted = select(DecisionRow.watcher, func.count()).group_by(DecisionRow.watcher)
        calls = col(DecisionRow.decision).in_([each.name for each in KINDS.values() if each.makes_calls])
        acted = acted.where(DecisionRow.at >= hour, calls, ~col(DecisionRow.dry_run))
        return await self._store.read(
            lambda session: (int(session.exec(spent).one()), dict(session.exec(acted).all()))
        )


def _delete(session: Session, name: str) -> None:
    session.exec(delete(WatcherRow).where(col(WatcherRow.name) == name))
    session.exec(delete(DecisionRow).where(col(DecisionRow.watcher) == name))


_WATCHERS: Final = cast("Table", WatcherRow.__table__)  # type: ignore[attr-defined]
_CHANGE: Final = _WATCHERS.update().where(_WATCHERS.c.name == bindparam("its_name"))
_DECISIONS: Final = cast("Table", DecisionRow.__table__)  # type: ignore[attr-defined]
_ADD: Final = _DECISIONS.insert()
_FINISH: Final = _DECISIONS.update().where(_DECISIONS.c.id == bindparam("its_id"))


def _bound(row: WatcherRow) -> dict[str, Any]:
    # An altered row is kept as it is.
    return {**row.model_dump(warnings=False), "its_name": row.name}


def check_room(rows: Mapping[str, WatcherRow], name: str, user: User, *, as_draft: bool) -> None:
    """Check that a person may add a watcher.

    Args:
        as_draft: Whether a draft of theirs with this name is replaced.

    Raises:
        Conflict: If the name is taken, or there are too many.
    """
    if (there := rows.get(name)) is not None:
        if as_draft and there.state == "draft" and there.owner == user.id:
            return
        raise _name_taken(there)
    own = sum(row.owner == user.id for row in rows.values())
    if len(rows) >= limits.MOST_WATCHERS or own >= limits.MOST_WATCHERS_OF_ONE:
        raise Conflict(
            "there are too many watchers",
            hint="Remove one that you no longer need. 'strawberry watchers remove' removes one.",
        )


def _name_taken(row: WatcherRow) -> Conflict:
    return Conflict("there is a watcher {name!r} already", name=row.display_name, hint="Choose another name.")
