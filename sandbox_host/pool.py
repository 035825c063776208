"""Sandbox processes for many conversations: one each, a few at a time, the next one warm."""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from contracts.errors import SandboxError
from sandbox_host.calls import CallHandler
from sandbox_host.client import Interpreter
from sandbox_host.install import Installed, find, sweep
from sandbox_host.limits import (
    CONVERSATIONS_REMEMBERED,
    POOL_RETRY_SECONDS,
    SPARE_DELAY_SECONDS,
    Deadline,
    RunLimits,
)
from sandbox_host.result import RunResult

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolState:
    """How many processes there may be, are, run programs and are kept ready; and how many programs wait."""

    most: int
    processes: int
    busy: int
    spares: int
    waiting: int


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How many sandbox processes there may be, and for how long.

    Attributes:
        directory: Where ``install`` put the sandbox's files.
        processes: Conversations that can have a process at the same time; a process has 200 to 450 MB.
        spares: Processes kept ready for the next conversation, on top of those; 0 saves their memory.
        idle_seconds: How long a conversation keeps its process without running anything.
    """

    directory: Path
    processes: int = 4
    spares: int = 1
    idle_seconds: float = 600.0


@asynccontextmanager
async def open_pool(settings: PoolSettings) -> AsyncIterator["Pool"]:
    """Open a pool; all its processes are killed when the block ends.

    Yields:
        A pool. Its spares are still starting; a run that comes sooner waits for one.

    Raises:
        SandboxError: If the sandbox's files are not in place, or were changed.
    """
    installed = await find(settings.directory)
    await asyncio.to_thread(sweep, installed)
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as tasks:
        pool = Pool(settings, installed, tasks)
        loops = [
            tasks.create_task(pool.keep_spares(), name="sandbox spares"),
            tasks.create_task(pool.close_idle(), name="sandbox idle"),
        ]
        try:
            yield pool
        except BaseException as error:  # noqa: BLE001 - raised below, as itself and not in a group
            failure = error
        finally:
            for loop in loops:
                loop.cancel()
            pool.close()
    if failure is not None:
        raise failure


class Session:
    """The interpreter of one conversation, through all the processes it has. Made by ``Pool.session``.

    Attributes:
        conversation: The conversation's id.
        owner: Whom its processes count for.
        used: When the last run ended, on the monotonic clock.
    """

    def __init__(self, pool: "Pool", conversation: str, owner: str) -> None:
        self._pool = pool
        self._process: Interpreter | None = None
        self._one_run = asyncio.Lock()
        self._ran_before = False
        self._lost = ""
        self.conversation = conversation
        self.owner = owner
        self.used = time.monotonic()

    @property
    def busy(self) -> bool:
        return self._one_run.locked()

    @property
    def resting(self) -> bool:
        return self._process is not None and not self.busy

    async def run(
        self,
        code: str,
        call_handler: CallHandler,
        *,
        limits: RunLimits | None = None,
        deadline: Deadline | None = None,
    ) -> RunResult:
        """Run one program; a second one waits until the first has ended.

        Args:
            code: Python source; ``await`` may stand at its top level.
            call_handler: Makes the calls of this run, and is the gate for them: it gets every path that
                the program asks for, and all that is checked by then is that it has the form of one.
            limits: What the run may use.
            deadline: Its clock; by default one of a minute. Waiting for a process is not counted.

        Returns:
            How it ended. ``fresh`` and ``lost`` say whether variables of earlier runs were there.

        Raises:
            SandboxError: If no process can be started.
        """
        async with self._one_run:
            if self._process is not None and not self._process.alive:
                self.drop(self._process.reason)
            fresh = self._process is None
            lost = self._lost if fresh and self._ran_before else ""
            process = self._process = self._process or await self._pool.seat(self)
            self._ran_before = True
            started = time.monotonic()
            try:
                result = await process.run(
                    code, call_handler, limits=limits or RunLimits(), deadline=deadline
                )
            finally:
                self.used = time.monotonic()
                if not process.alive:
                    self.drop(process.reason)
        self._pool.room_changed()
        return replace(result, fresh=fresh, lost=lost, seconds=self.used - started)

    def drop(self, reason: str) -> None:
        """End the process and with it all variables; the next run gets another one.

        Args:
            reason: Why, in a few words; the next run's result says it.
        """
        if self._process is not None:
            self._process.kill(reason)
            self._process = None
            self._lost = reason
        self._pool.leave(self)


class Pool:
    """Gives every conversation its own interpreter. Made by ``open_pool``."""

    def __init__(self, settings: PoolSettings, installed: Installed, tasks: asyncio.TaskGroup) -> None:
        self._settings = settings
        self._installed = installed
        self._tasks = tasks
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._seated: set[Session] = set()
        self._waiting: list[Session] = []
        self._processes: set[Interpreter] = set()
        self._spares: list[Interpreter] = []
        self._spares_wanted = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    async def session(self, conversation: str, *, owner: str = "") -> Session:
        """Return the session of a conversation; its process starts with its first run.

        Args:
            conversation: Any id. Conversations never see each other's variables.
            owner: Who runs something in it. Owners share the processes evenly; by default each conversation
                is its own.
        """
        owner = owner or conversation
        session = self._sessions.get(conversation)
        if session is None:
            session = self._sessions[conversation] = Session(self, conversation, owner)
        session.owner = owner
        self._sessions.move_to_end(conversation)
        if len(self._sessions) > CONVERSATIONS_REMEMBERED:
            self._forget()
        return session

    def state(self) -> PoolState:
        """Return how many processes and programs there are."""
        return PoolState(
            most=self._settings.processes,
            processes=len(self._processes),
            busy=sum(session.busy for session in self._seated),
            spares=len(self._spares),
            waiting=len(self._waiting),
        )

    def forget(self, conversation: str) -> None:
        """End a conversation: what it runs, its process, and with that all its variables."""
        session = self._sessions.pop(conversation, None)
        if session is not None:
            session.drop("the conversation was deleted")

    async def seat(self, session: Session) -> Interpreter:
        """Return a process to a session, if need be that of another one that rests.

        Waits while as many sessions as there may be processes are all running something, or as many of this
        owner as leave one process to others. The owner with the fewest that run has the next turn.

        Raises:
            SandboxError: If the process does not start, or the pool is closed.
        """
        self._waiting.append(session)
        try:
            while not self._closed and not self._has_place(session):
                self._room.clear()
                await self._room.wait()
            if self._closed:
                raise SandboxError("the sandbox is closed", hint="the program that owns it is stopping")
            self._seated.add(session)
        finally:
            self._waiting.remove(session)
            # Others may have waited for this one to go first.
            self.room_changed()
        spare = self._take_spare()
        process = spare or self._start()
        try:
            try:
                await process.ready()
            except SandboxError:
                if spare is None or self._closed:
                    raise
                process = self._start()
                await process.ready()
        except BaseException:
            process.kill("it was not needed any more")
            self.leave(session)
            raise
        return process

    def leave(self, session: Session) -> None:
        """Free the place of a session that gave up its process."""
        self._seated.discard(session)
        self.room_changed()

    def room_changed(self) -> None:
        self._room.set()

    async def keep_spares(self) -> None:
        """Keep as many processes ready as the settings say."""
        while True:
            self._spares_wanted.clear()
            self._spares = [spare for spare in self._spares if spare.alive]
            while len(self._spares) < self._settings.spares:
                spare = self._start()
                self._spares.append(spare)
                try:
                    await spare.ready()
                except SandboxError as error:
                    _log.error("no spare sandbox process: %s", error.message)
                    await asyncio.sleep(POOL_RETRY_SECONDS)
                    self._spares = [spare for spare in self._spares if spare.alive]
            await self._spares_wanted.wait()
            await asyncio.sleep(SPARE_DELAY_SECONDS)

    async def close_idle(self) -> None:
        """Close the processes of sessions that rest too long."""
        limit = self._settings.idle_seconds
        while True:
            await asyncio.sleep(min(limit / 4, 15.0))
            for session in self._sessions.values():
                if session.resting and session.used < time.monotonic() - limit:
                    session.drop(f"nothing was run for {limit:g} s")

    def close(self) -> None:
        """Kill every process, and start no more."""
        self._closed = True
        for process in self._processes:
            process.kill("the pool was closed")
        self.room_changed()

    def _has_place(self, session: Session) -> bool:
        """Return whether it is a session's turn, and there is a process for it."""
        running = Counter(each.owner for each in self._seated if each.busy)
        most = max(1, self._settings.processes - 1)
        waiting = [each for each in self._waiting if running[each.owner] < most]
        if not waiting or session is not min(waiting, key=lambda each: running[each.owner]):
            return False
        return len(self._seated) < self._settings.processes or self._evict(session)

    def _evict(self, wants: Session) -> bool:
        """Close a process of the owner with most, the one that wants another included."""
        resting = [session for session in self._seated if session.resting]
        if not resting:
            return False
        seats = Counter(session.owner for session in (*self._seated, wants))
        victim = min(resting, key=lambda session: (-seats[session.owner], session.used))
        victim.drop("other conversations needed its room")
        return True

    def _forget(self) -> None:
        """Forget the conversation that was not used for longest, of those without a process."""
        for session in self._sessions.values():
            if not session.busy and not session.resting:
                del self._sessions[session.conversation]
                return

    def _take_spare(self) -> Interpreter | None:
        self._spares_wanted.set()
        while self._spares:
            spare = self._spares.pop(0)
            if spare.alive:
                return spare
        return None

    def _start(self) -> Interpreter:
        process = Interpreter(self._installed)
        self._processes.add(process)
        process.start(self._tasks).add_done_callback(lambda _: self._processes.discard(process))
        return process
