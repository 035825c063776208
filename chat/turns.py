"""The turns that run: each in a task of its own, told as events, cancelled from anywhere."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal, Protocol
from weakref import WeakValueDictionary

from agent_core.conversation import deed_of
from contracts.errors import Conflict, StrawberryError, TooManyRequests
from contracts.events import Mode, TextDelta, TurnError, TurnEvent, TurnFinal

_log = logging.getLogger(__name__)

_CANCEL_S: Final = 5.0
"""How long a cancel waits for the turn to end; a skill that runs is told, and answers or is given up."""
_RELEASE_S: Final = 10.0
"""How long a turn waits for its client to be told of it; a client that left before that leaves no trace."""
_STORE_S: Final = 5.0
"""How long a turn that is cancelled may take to be written down."""


TurnState = Literal["not_started", "running", "finished", "cancelled"]
"""``not_started`` is a tombstone: the turn was cancelled before it came, and will never run."""


@dataclass(frozen=True)
class TurnKey:
    """Which turn: ids are chosen by clients, and count within one user only."""

    user: str
    turn: str


@dataclass(frozen=True)
class Ending:
    """How a turn ended, and what a person read.

    Attributes:
        untrusted: Whether text from outside the home came into it.
        did: What tools did, a line each.
    """

    state: TurnState
    answer: str = ""
    mode: Mode | None = None
    untrusted: bool = False
    did: tuple[str, ...] = ()


class Ledger(Protocol):
    """Where turns are written down: of each id at most one ever runs."""

    async def begin(
        self,
        key: TurnKey,
        *,
        conversation: str,
        question: str,
        device: str | None,
        agent: str = "",
        through: str | None = None,
    ) -> None:
        """Write down that a turn runs and what was asked, before anything of it happens.

        Args:
            device: Id of the current device, where there is one.
            agent: Who is asked.
            through: Id of the device that asks, where one does: it takes part in the conversation.

        Raises:
            Conflict: If this id was used before, or cancelled before it came: it must not run.
        """
        ...

    async def end(self, key: TurnKey, ending: Ending) -> None:
        """Write down how a running turn ended, and what was answered."""
        ...

    async def bury(self, key: TurnKey) -> TurnState:
        """Give the state of a turn; one that has not come gets a tombstone and never runs."""
        ...


@dataclass(frozen=True)
class TurnRequest:
    """Who asks what.

    Attributes:
        device: Id of the current device, where there is one.
        token: ``jti`` of the token it came with; the turn ends when that is revoked.
        through: Id of the device that asks, where one does; a person may name another as ``device``.
        agent: Who is asked.
    """

    key: TurnKey
    conversation: str
    message: str
    token: str = ""
    device: str | None = None
    through: str | None = None
    agent: str = ""


class Turn:
    """A turn that runs or waits for its conversation.

    Attributes:
        ended: Set when it has ended and is written down.
        cancelled: Whether it was told to stop.
        untrusted: Set by whoever runs it when text from outside the home came in.
    """

    def __init__(self, request: TurnRequest) -> None:
        self.request = request
        self.ended = asyncio.Event()
        self.cancelled = False
        self.untrusted = False
        self._queue: asyncio.Queue[TurnEvent | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let it begin: its client has been told that the hub answers.

        Until then a client may still give up and do the work elsewhere.
        """
        self._released.set()

    async def released(self) -> bool:
        """Wait until it may begin; false if nobody follows it."""
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self._released.wait()
        except TimeoutError:
            return False
        return True

    def begin(self) -> bool:
        """Take the present task as the one that runs it; false if it was cancelled before.

        A task that is cancelled before its first step never runs at all, not even its clean-up, so it
        is the task itself that says from when on it can be cancelled.
        """
        self._task = asyncio.current_task()
        return not self.cancelled

    def tell(self, event: TurnEvent) -> None:
        """Tell whoever follows the turn."""
        self._queue.put_nowait(event)

    def shelter(self) -> None:
        """Let no further cancel reach the task: its work is over, and it only writes down."""
        self._task = None

    def close(self) -> None:
        """Say that there is nothing more to tell."""
        self.ended.set()
        self._queue.put_nowait(None)

    def cancel(self) -> None:
        """Stop it, and the skill that it runs; does nothing once its work is over."""
        # Once: a second one would cut short what the first one has a skill do to stop.
        if not self.cancelled:
            self.cancelled = True
            if self._task is not None:
                self._task.cancel()

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """Follow the turn to its end, and let it begin. Whoever stops following it cancels it."""
        self.release()
        try:
            while (event := await self._queue.get()) is not None:
                yield event
        finally:
            self.cancel()


TurnRun = Callable[[Turn], AsyncGenerator[TurnEvent, None]]


class Turns:
    """All turns of this process.

    Args:
        ledger: Remembers them.
        tasks: Owns the turns.
        open_per_user: Turns of one user that run or wait at the same time.
    """

    def __init__(self, ledger: Ledger, *, tasks: asyncio.TaskGroup, open_per_user: int) -> None:
        self._ledger = ledger
        self._tasks = tasks
        self._open_per_user = open_per_user
        self._turns: dict[TurnKey, Turn] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def open(self, request: TurnRequest, run: TurnRun) -> Turn:
        """Write a turn down and start it.

        Turns of one conversation run one after another.

        Args:
            run: Does the work and yields what happens; closed early when the turn is cancelled.

        Raises:
            Conflict: If this turn came before, or was cancelled before it came.
            TooManyRequests: If this user has too many open.
        """
        key = request.key
        if sum(other.user == key.user for other in self._turns) >= self._open_per_user:
            raise TooManyRequests("too many turns are open", hint="Wait until one has ended.")
        if key in self._turns:
            raise Conflict(
                f"turn id {key.turn} was used before", hint="Nothing was run again; use a new turn id."
            )
        # It stands here before it stands in the database, so that a cancel finds it at any moment.
        turn = self._turns[key] = Turn(request)
        try:
            await self._ledger.begin(
                key,
                conversation=request.conversation,
                question=request.message,
                device=request.device,
                agent=request.agent,
                through=request.through,
            )
        except BaseException:
            del self._turns[key]
            raise
        self._tasks.create_task(self._run(turn, run), name=f"turn {key.turn}")
        return turn

    async def cancel(self, key: TurnKey) -> TurnState:
        """Stop a turn, or keep one that has not come from ever running.

        Returns:
            ``not_started`` if it did not run and never will; ``cancelled`` or ``finished`` if it has
            ended; ``running`` if it has not ended yet, though it was told to.
        """
        state = await self._ledger.bury(key)
        if state != "running":
            return state
        turn = self._turns.get(key)
        if turn is not None:
            turn.cancel()
            try:
                async with asyncio.timeout(_CANCEL_S):
                    await turn.ended.wait()
            except TimeoutError:
                return "running"
        return await self._ledger.bury(key)

    def cancel_where(self, concerned: Callable[[TurnRequest], bool]) -> None:
        """Stop every turn that is concerned."""
        for turn in tuple(self._turns.values()):
            if concerned(turn.request):
                turn.cancel()

    async def _run(self, turn: Turn, run: TurnRun) -> None:
        request = turn.request
        record = _Record()

        def tell(event: TurnEvent) -> None:
            record.add(event)
            turn.tell(event)

        try:
            if turn.begin():
                async with self._lock(request):
                    if await turn.released():
                        async with aclosing(run(turn)) as events:
                            async for event in events:
                                tell(event)
        except StrawberryError as error:
            tell(TurnError(code="internal", message=error.message, hint=error.hint))
        except Exception:  # noqa: BLE001  one turn must not end the others
            _log.exception("turn %s failed", request.key.turn)
            tell(TurnError(code="internal", message="an internal error occurred; see the log"))
        finally:
            turn.shelter()
            try:
                await self._write_down(request.key, record.ending(untrusted=turn.untrusted))
            finally:
                del self._turns[request.key]
                if not record.complete:
                    turn.tell(TurnError(code="cancelled", message="the turn was cancelled"))
                turn.close()

    async def _write_down(self, key: TurnKey, ending: Ending) -> None:
        try:
            async with asyncio.timeout(_STORE_S):
                await self._ledger.end(key, ending)
        except Exception:  # noqa: BLE001  the person has the answer all the same
            _log.exception("the end of turn %s could not be written down", key.turn)

    def _lock(self, request: TurnRequest) -> asyncio.Lock:
        return self._locks.setdefault((request.key.user, request.conversation), asyncio.Lock())


class _Record:
    """What will be remembered of a turn.

    Attributes:
        complete: Whether its last event was told.
    """

    def __init__(self) -> None:
        self.complete = False
        self._state: TurnState = "cancelled"
        self._mode: Mode | None = None
        self._text: list[str] = []
        self._final: str | None = None
        self._did: list[str] = []

    def add(self, event: TurnEvent) -> None:
        """Take note of an event."""
        if (deed := deed_of(event)) is not None:
            self._did.append(deed)
        match event:
            case TextDelta(text=text):
                self._text.append(text)
            case TurnFinal():
                self._final, self._mode = event.answer, event.mode
                self._state, self.complete = "finished", True
            case TurnError():
                self._state = "cancelled" if event.code in ("cancelled", "broken") else "finished"
                self.complete = True

    def ending(self, *, untrusted: bool) -> Ending:
        """Give how it ended, with the answer or as much of it as came."""
        answer = "".join(self._text) if self._final is None else self._final
        return Ending(self._state, answer, self._mode, untrusted, tuple(self._did))
