"""The hub's database behind two threads."""

import asyncio
import copy
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlmodel import Session

from chat.tasks import open_tasks, supervise
from contracts.errors import DiskFull, StorageError
from contracts.rates import Backoff
from hub_registry import limits
from hub_registry.storage.sqlite import SQLite

if TYPE_CHECKING:
    from hub_registry.storage.postgresql import Candidacy, PostgreSQL

_log = logging.getLogger(__name__)


Check: TypeAlias = Callable[[Session], None]
"""Raises within a transaction where that must not be stored."""
_CHECK: ContextVar[Check | None] = ContextVar("check", default=None)

Place: TypeAlias = Path | str
"""A SQLite file, or the URL of a PostgreSQL database."""


T = TypeVar("T")


class Outage:
    """Logs what fails again and again until it works: once for each reason.

    Args:
        message: With ``%s`` for the reason.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._told = ""

    def note(self, error: Exception) -> None:
        # What the driver says, without the statement and the link that SQLAlchemy adds.
        reason = " ".join(str(getattr(error, "orig", error)).split())
        if reason != self._told:
            self._told = reason
            hint = getattr(error, "hint", "")
            _log.warning(self._message, ". ".join(filter(None, (reason[: limits.MAX_DATABASE_REASON], hint))))

    def over(self) -> None:
        self._told = ""


class FairThread:
    """Runs work in one thread: that of each asker in its order, and one piece of each asker in turn.

    Who asks for much waits for itself. Others wait for the piece that runs, and for one of each asker.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T], *, asker: str = "") -> T:
        done: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(asker, deque()).append((done, work))
        self._thread.submit(self._next)
        return await asyncio.wrap_future(done)

    def _next(self) -> None:
        with self._lock:
            asker, own = self._waiting.popitem(last=False)
            done, work = own.popleft()
            if own:
                self._waiting[asker] = own
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001  it is for who asked
                done.set_exception(error)

    def close(self) -> None:
        # Waits for what runs and what waits.
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Store:
    """Runs pieces of work on the database: one that writes and one that reads at a time.

    Each has a thread and a connection of its own, so that what a person reads does not wait for what devices
    hand in. What was written before a read began is in it.

    Attributes:
        full: Set by each write for which the disk has no room; cleared by who waits for it.
    """

    def __init__(self, database: "SQLite | PostgreSQL", *, writer: FairThread, reader: FairThread) -> None:
        self._database = database
        self._writer = writer
        self._reader = reader
        self.full = asyncio.Event()
        self._check: Check | None = None
        self._followers: list[tuple[frozenset[str], asyncio.Event, Callable[[], Awaitable[None]]]] = []

    async def claim(self, *, replica: str = "") -> None:
        """Keep hubs on other machines from this database until it is closed.

        Args:
            replica: Name of this hub where further replicas, of other names, may use it, too.

        Raises:
            ConfigError: If another hub uses it, another replica has the name, or replicas need a server.
            StorageError: If the database cannot be used.
        """
        await self._writer.run(partial(self._database.claim, replica=replica))

    def fenced(self, check: Check) -> "Store":
        """Return this store with a check that each write makes first, in its transaction."""
        made = copy.copy(self)
        made._check = check
        return made

    def candidacy(self) -> "Candidacy":
        """Return a session that may gain the lead, of a store that a replica has claimed."""
        from hub_registry.storage.postgresql import Candidacy

        return Candidacy(self._database.engine)

    def on_change(self, tables: Collection[str], listener: Callable[[], Awaitable[None]]) -> None:
        """Call a listener once `follow` hears that other processes of this hub have changed tables.

        It is called one time for several changes in a row, and again where it fails.
        """
        self._followers.append((frozenset(tables), asyncio.Event(), listener))

    def read_again(self) -> None:
        """Make `follow` call all listeners, as if everything had changed."""
        for _, changed, _ in self._followers:
            changed.set()

    async def follow(self) -> None:
        """Call the listeners of `on_change` until cancelled; with SQLite there is one process, and no change.

        Where the session with the claim is lost, the database is claimed again, and all is read again.

        Raises:
            ConfigError: If another hub has claimed the database meanwhile.
        """
        if isinstance(self._database, SQLite):
            return
        with FairThread("changes") as listening:
            outage = Outage("changes of other replicas are read later: %s")
            async with open_tasks() as tasks:
                for tables, changed, listener in self._followers:
                    run = partial(_call, listener, changed, outage)
                    supervise(tasks, run, name=f"changes of {', '.join(sorted(tables))}")
                try:
                    while True:
                        news = await self._next_changes(self._database, listening)
                        for tables, changed, _ in self._followers:
                            if news is None or tables & news:
                                changed.set()
                finally:
                    self._database.interrupt()

    async def _next_changes(self, database: "PostgreSQL", listening: FairThread) -> frozenset[str] | None:
        """Return the tables that others changed; None for all, since some may have been missed."""
        try:
            return await listening.run(database.wait_for_changes)
        except StorageError as error:
            _log.warning("%s; the hub connects again", error.message)
        backoff = Backoff(*limits.FOLLOW_RETRY_S, jitter=0)
        while True:
            await asyncio.sleep(backoff.next())
            try:
                await listening.run(database.claim_again)
            except StorageError as error:
                _log.debug("%s", error.message)
            else:
                _log.info("the hub is connected to its database again")
                return None

    async def read(self, work: Callable[[Session], T], *, asker: str = "") -> T:
        """Run work that only reads, in one transaction.

        Args:
            asker: Whose work it is; see `FairThread`.

        Raises:
            StorageError: If the database cannot be used.
        """
        return await self._run(self._reader, self._database.engine, work, asker)

    async def write(self, work: Callable[[Session], T], *, asker: str = "") -> T:
        """Run work that writes, in one transaction: all of it is stored when this returns, or none.

        Args:
            asker: Whose work it is; see `FairThread`.

        Raises:
            StorageError: If the database cannot be used; nothing is stored then.
        """
        check = self._check or _CHECK.get()
        try:
            if check is None:
                return await self._run(self._writer, self._database.writing, work, asker)
            fenced = partial(_checked, check, work)
            return await self._run(self._writer, self._database.writing, fenced, asker)
        except DiskFull:
            self.full.set()
            raise

    async def _run(self, thread: FairThread, engine: Engine, work: Callable[[Session], T], asker: str) -> T:
        def transaction() -> T:
            try:
                with Session(engine, expire_on_commit=False) as session, session.begin():
                    return work(session)
            except IntegrityError:
                raise
            except DatabaseError as error:
                raise self._database.explained(error) from None

        return await thread.run(transaction, asker=asker)


def _checked(check: Check, work: Callable[[Session], T], session: Session) -> T:
    check(session)
    return work(session)


@contextmanager
def fencing(check: Check | None) -> Iterator[None]:
    """Run a check first in each transaction of this block, whichever store writes."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


async def _call(listener: Callable[[], Awaitable[None]], changed: asyncio.Event, outage: Outage) -> None:
    while True:
        await changed.wait()
        changed.clear()
        try:
            await listener()
            outage.over()
        except StorageError as error:
            outage.note(error)
            changed.set()
            await asyncio.sleep(limits.FOLLOW_RETRY_S[0])
        except Exception:
            changed.set()
            raise


@asynccontextmanager
async def open_store(place: Place) -> AsyncIterator[Store]:
    """Open the database; create its tables if need be.

    Raises:
        ConfigError: If it is no database of ours, or was written by another version.
    """
    # There is one writer, and what one asker writes is written in the order it was asked.
    with FairThread("store") as writer, FairThread("reads") as reader:
        database = await writer.run(partial(opened, place))
        try:
            yield Store(database, writer=writer, reader=reader)
        finally:
            reader.close()
            await asyncio.shield(writer.run(database.close))


def opened(place: Place) -> "SQLite | PostgreSQL":
    """Open the database as it is; create its tables if need be.

    Raises:
        ConfigError: If it is no database of ours, or was written by another version.
    """
    if isinstance(place, Path):
        return SQLite(place)
    from hub_registry.storage.postgresql import PostgreSQL

    return PostgreSQL(place)
