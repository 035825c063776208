"""What the owner shows to Home Assistant: whole devices, skills of them, single methods and properties."""

from collections.abc import Callable, Collection, Sequence

from sqlmodel import Session, col, delete, select

from contracts.listeners import Listeners
from hub_agent.tables import ExposureRow
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now


class Exposures:
    """The decisions of the owner. Nothing is shown that none of them names, or something above it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, ExposureRow] = {}
        # After each change.
        self.on_change: Listeners[Callable[[], None]] = Listeners()

    async def load(self) -> None:
        """Read them; once, at the start."""
        rows = await self._store.read(lambda session: session.exec(select(ExposureRow)).all())
        self._known = {each.path: each for each in rows}

    def all(self) -> Sequence[ExposureRow]:
        return sorted(self._known.values(), key=lambda each: each.path)

    def names(self, path: str) -> bool:
        """Return whether exactly this is exposed, and not only something above it."""
        return path in self._known and self._known[path].shown

    def find(self, path: str) -> ExposureRow | None:
        """Return by which decision something is shown; None where it is not."""
        for above in _chain(path):
            if (known := self._known.get(above)) is not None:
                return known if known.shown else None
        return None

    def within(self, path: str) -> bool:
        """Return whether this, or anything of it, is shown."""
        below = (each for each in self._known.values() if each.path.startswith(f"{path}."))
        return self.find(path) is not None or any(each.shown for each in below)

    async def show(self, path: str, *, user: str) -> None:
        """Show something, with all that belongs to it.

        Args:
            path: Id of a device or ``hub``, a skill of it, a member of that, with dots between them.
            user: On whose behalf Home Assistant calls it.
        """
        await self._replace(path, ExposureRow(path=path, shown=True, user=user, at=now()))

    async def hide(self, path: str, *, user: str) -> None:
        """Hide something, with all that belongs to it."""
        above = any(self._known[each].shown for each in _chain(path)[1:] if each in self._known)
        hidden = ExposureRow(path=path, shown=False, user=user, at=now())
        await self._replace(path, hidden if above else None)

    async def forget_person(self, user: str) -> None:
        await self._write([each.path for each in self._known.values() if each.user == user], None)

    async def _replace(self, path: str, decision: ExposureRow | None) -> None:
        below = [each for each in self._known if each == path or each.startswith(f"{path}.")]
        await self._write(below, decision)

    async def _write(self, gone: Collection[str], decision: ExposureRow | None) -> None:
        def work(session: Session) -> None:
            session.exec(delete(ExposureRow).where(col(ExposureRow.path).in_(gone)))
            if decision is not None:
                session.add(decision)

        await self._store.write(work)
        for path in gone:
            self._known.pop(path, None)
        if decision is not None:
            self._known[decision.path] = decision
        for listener in self.on_change:
            listener()


def _chain(path: str) -> list[str]:
    """Return a path and all above it; a property may have dots itself."""
    levels = path.split(".", 2)
    return [".".join(levels[:count]) for count in range(len(levels), 0, -1)]
