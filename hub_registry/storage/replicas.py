"""Hubs that share a PostgreSQL database: which there are, and which one leads.

The leader holds an advisory lock in a session of its own. Each gain raises the term; a write of an older term
is refused in its own transaction, so that a leader that was stopped and goes on does no harm.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NoReturn

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, delete, func, select

from chat.tasks import open_tasks
from contracts.errors import ConfigError, StorageError, StrawberryError, Superseded
from hub_registry import limits
from hub_registry.storage.news import NAME_LOCK
from hub_registry.storage.store import Outage, Store
from hub_registry.storage.tables import ReplicaRow, now

_log = logging.getLogger(__name__)

_THERE: Final = f"""
    SELECT instance FROM replica JOIN pg_locks ON locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) = {NAME_LOCK.format("instance")}
"""  # noqa: S608  constants

_SUPERSEDED: Final = "another replica of the hub leads by now"


class Term:
    """The right to lead, from one gain on until another replica gains it.

    Attributes:
        lost: Set when this replica does not lead any more.
        store: Its writes are refused from then on.
    """

    def __init__(self, store: Store, number: int) -> None:
        self.number = number
        self.lost = asyncio.Event()
        self._kept = time.monotonic()
        self.store = store.fenced(self.check)
        self._store = store
        self._loop = asyncio.get_running_loop()

    def check(self, session: Session) -> None:
        """Check within a transaction that it is the latest one.

        Raises:
            Superseded: If it is not.
        """
        if session.exec(select(func.max(ReplicaRow.term))).one() != self.number:
            self._loop.call_soon_threadsafe(self.lost.set)
            raise Superseded(_SUPERSEDED)

    def keep(self) -> None:
        """Record that the session which holds the lead was alive just now."""
        self._kept = time.monotonic()

    async def confirm_after_stop(self) -> None:
        """Check that it is the latest one, where this process was stopped for so long that it may not be.

        Raises:
            Superseded: If it is not.
        """
        if self.lost.is_set() or time.monotonic() - self._kept > limits.LEAD_SILENT_MS / 1000:
            await self.confirm()

    async def confirm(self) -> None:
        """Check that it is the latest one before something is done that cannot be taken back.

        Raises:
            Superseded: If it is not.
        """
        if self.lost.is_set():
            raise Superseded(_SUPERSEDED)
        await self._store.read(self.check)


Leading = Callable[[Term], AbstractAsyncContextManager[None]]
"""Opens what only a leader does; closed when it leads no more."""


class Replica:
    """This hub among the replicas of its home.

    Args:
        store: Of all of them.
        row: What the others see of it.
        on_bus: Returns whether it is connected to the broker.

    Attributes:
        term: Under which it leads; None while another one does.
    """

    def __init__(self, store: Store, row: ReplicaRow, *, on_bus: Callable[[], bool]) -> None:
        self._on_bus = on_bus
        self._was_on_bus_at = time.monotonic()
        self._store = store
        self._row = row
        self._session = store.candidacy()
        self.term: Term | None = None

    @property
    def instance(self) -> str:
        return self._row.instance

    async def enter(self) -> None:
        """Be listed.

        Raises:
            ConfigError: If the clock of this machine is wrong.
        """
        _check_clock(await self._store.write(self._see))

    def _see(self, session: Session) -> timedelta:
        """Write a sign of life; return how much the clock here is ahead of the database's."""
        known = session.get(ReplicaRow, self._row.instance) or ReplicaRow(**self._row.model_dump())
        known.url, known.version = self._row.url, self._row.version
        known.started_at, known.seen_at = self._row.started_at, now()
        known.on_bus = self._on_bus()
        session.add(known)
        there: datetime = session.connection().exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        return now() - there

    async def stay(self, *, also: Callable[[], Awaitable[None]]) -> NoReturn:
        """Tell the others every second that it is there, until cancelled."""
        outage, clock = Outage("the other replicas are looked for later: %s"), Outage("%s")
        while True:
            await asyncio.sleep(limits.REPLICA_SEEN_S)
            try:
                ahead = await self._store.write(self._see)
                await also()
                outage.over()
                _check_clock(ahead)
                clock.over()
            except ConfigError as error:
                clock.note(error)
            except (StrawberryError, SQLAlchemyError) as error:
                outage.note(error)

    async def lead(self, leading: Leading) -> NoReturn:
        """Open what only a leader does whenever the lead is gained, until cancelled."""
        session, outage = self._session, Outage("the lead cannot be asked for: %s")
        try:
            while True:
                try:
                    gained = not await self._stands_back() and await asyncio.to_thread(session.gain)
                    term = Term(self._store, await self._store.write(self._raise)) if gained else None
                    outage.over()
                except (SQLAlchemyError, StorageError) as error:
                    outage.note(error)
                    term = None
                    await asyncio.to_thread(session.close)
                if term is not None:
                    self.term = term
                    _log.info("%s leads, in term %d", self.instance, term.number)
                    try:
                        await _hold(term, leading, session.keep, self._stands_back)
                    finally:
                        self.term = None
                        _log.info("%s leads no more", self.instance)
                    await asyncio.to_thread(session.close)
                await asyncio.sleep(limits.LEAD_BEAT_S)
        finally:
            # So that the next one need not wait.
            await asyncio.shield(asyncio.to_thread(session.close))

    async def _stands_back(self) -> bool:
        """Return whether it has been without the broker for a while, and another replica has it."""
        if self._on_bus():
            self._was_on_bus_at = time.monotonic()
            return False
        if time.monotonic() - self._was_on_bus_at < limits.LEAD_OFF_BUS_S:
            return False
        others = await self._store.read(replicas)
        return any(there and row.on_bus and row.instance != self.instance for row, there in others)

    def _raise(self, session: Session) -> int:
        self._see(session)
        session.flush()
        own = session.get_one(ReplicaRow, self._row.instance)
        own.term = session.exec(select(func.max(ReplicaRow.term))).one() + 1
        own.leads_since = now()
        # Those that were removed, or have another name by now. The highest term is this one.
        there = set(session.connection().exec_driver_sql(_THERE).scalars())
        gone = col(ReplicaRow.instance).not_in({*there, own.instance})
        session.exec(
            delete(ReplicaRow).where(
                gone, col(ReplicaRow.seen_at) < now() - timedelta(days=limits.REPLICA_LISTED_DAYS)
            )
        )
        return own.term


async def _hold(
    term: Term, leading: Leading, keep: Callable[[], None], stands_back: Callable[[], Awaitable[bool]]
) -> None:
    """Lead until the term is lost, this is cancelled, or another replica can do more."""

    async def open_and_stay() -> None:
        async with leading(term):
            await term.lost.wait()

    async def beat() -> None:
        try:
            while True:
                async with asyncio.timeout(limits.LEAD_SILENT_MS / 1000):
                    await asyncio.to_thread(keep)
                term.keep()
                if await stands_back():
                    _log.warning(
                        "the lead is given away: the broker cannot be reached, and another replica has it"
                    )
                    term.lost.set()
                await asyncio.sleep(limits.LEAD_BEAT_S)
        except (SQLAlchemyError, StorageError, TimeoutError) as error:
            _log.warning("the lead is lost: %.300s", error)
            term.lost.set()

    async with open_tasks(contained=True) as tasks:
        tasks.create_task(beat(), name="lead: keep")
        opened = tasks.create_task(open_and_stay(), name="lead: parts")
        lost = tasks.create_task(term.lost.wait(), name="lead: lost")
        await asyncio.wait((opened, lost), return_when=asyncio.FIRST_COMPLETED)


def _check_clock(ahead: timedelta) -> None:
    if abs(ahead.total_seconds()) > limits.REPLICA_CLOCK_S:
        raise ConfigError(
            "the clocks of this machine and of the database differ by more than {seconds:.0f} s",
            seconds=limits.REPLICA_CLOCK_S,
            hint="Set both by NTP.",
        )


def replicas(session: Session) -> list[tuple[ReplicaRow, bool]]:
    """Return all replicas, the leader first, each with whether its process has a session."""
    rows = session.exec(select(ReplicaRow).order_by(col(ReplicaRow.term).desc())).all()
    there = set(session.connection().exec_driver_sql(_THERE).scalars())
    return [(row, row.instance in there) for row in rows]


class Phase(Enum):
    """What is known of a replica: whether it has a session at the database, and gave a sign lately."""

    RUNS = (True, True)
    SILENT = (True, False)
    """Its process is stopped."""
    AWAY = (False, True)
    """It has ended, or connects again to a database that was restarted."""
    GONE = (False, False)


class Presence:
    """The replicas at the last look.

    Attributes:
        rows: By their names, the leader first.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows: dict[str, ReplicaRow] = {}
        self._phases: dict[str, Phase] = {}
        # When each sign was first seen: clocks of machines differ.
        self._signs: dict[tuple[str, datetime, bool], float] = {}

    async def look(self) -> None:
        """Read which replicas there are."""
        found, at = await self._store.read(replicas), time.monotonic()
        signs = [(row.instance, row.seen_at, there) for row, there in found]
        self._signs = {sign: self._signs.get(sign, at) for sign in signs}
        self._phases = {
            name: Phase((there, at - since <= limits.REPLICA_SILENT_S))
            for (name, _, there), since in self._signs.items()
        }
        self.rows = {row.instance: row for row, _ in found}

    def phase(self, instance: str) -> Phase:
        return self._phases.get(instance, Phase.GONE)

    def runs(self, instance: str) -> bool:
        return self.phase(instance) is Phase.RUNS
