"""Running turns: each in a task of its own, followed as events, cancelled from anywhere."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from agent_core.conversation import call_line
from agent_core.tools.skill_calls import Consent
from chat import limits
from chat.tasks import happens
from contracts.chat.messages import (
    MAX_DID,
    MAX_PROBLEM,
    ChatRequest,
    Mode,
    TextDelta,
    TurnError,
    TurnEvent,
    TurnFinal,
    TurnOutcome,
    TurnState,
)
from contracts.errors import Conflict, DiskFull, StorageError, StrawberryError, TooManyRequests
from contracts.rates import Backoff, Slots
from contracts.text import shortened, storable
from contracts.tracing.correlation import correlated
from contracts.tracing.trace import Trace, span, within
from identity.ids import uuid7

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Turn:
    """A message that is being answered: it waits for its conversation, runs, and ends.

    Attributes:
        request: The message.
        user: Id of the user on whose behalf it runs.
        device: Id of the current device, where there is one.
        through: Thumbprint of the key of the device that asks, where a device does.
        conversation: Id under which it is recorded; by default the one of the request.
        token: ``jti`` of the token that the request came with; the turn ends when that is revoked.
        holder: What the quota of open turns counts by; the user where there is nothing else.
        is_person: Whether it may use the reserve for people.
        id: The client's choice, or a new one; unique within one user.
        conversation_name: What its client calls the conversation: its choice, or the same id.
        state: ``running`` until it has ended.
        mode: Who answered; None without a complete answer.
        did: Calls that were made, a line each.
        consent: Asks the person of this turn; set by what runs it.
        confirmed_by: ``jti`` of the token with which a call of this turn was confirmed last.
        at_hub: Whether the hub records it; set by a spoke.
        is_without_hub: Whether the hub was asked and could not be reached; set by a spoke.
        ended: Set when it has ended and that is recorded.
        cancelled: Whether it was asked to stop.
        interrupted: Whether that was because this process ends.
        counted: Whether it is counted in what may be recorded in a day.
        outcome: How it ended; None until then.
        problem: Why there is no complete answer; empty where there is one.
        reason: Code of the error that ended it; empty where none did.
        final: The last event of a turn that was answered.
        trace: Where its time went.
    """

    request: ChatRequest
    _: KW_ONLY
    user: str
    device: str | None = None
    through: str | None = None
    conversation: str = ""
    token: str = ""
    holder: str = ""
    is_person: bool = False

    def __post_init__(self) -> None:
        self.holder = self.holder or self.user
        self.id = self.request.turn or uuid7()
        self.conversation = self.conversation or self.request.conversation or uuid7()
        self.conversation_name = self.request.conversation or self.conversation
        self.state: TurnState = "running"
        self.mode: Mode | None = None
        self.did: list[str] = []
        self.consent = Consent(None)
        self.confirmed_by: str | None = None
        self.at_hub = self.is_without_hub = False
        self.ended = asyncio.Event()
        self.cancelled = False
        self.interrupted = False
        self.counted = False
        self.outcome: TurnOutcome | None = None
        self.problem = ""
        self.reason = ""
        self.final: TurnFinal | None = None
        self.trace = Trace()
        self._text: list[str] = []
        self._is_complete = False
        self._queue: asyncio.Queue[tuple[TurnEvent, int] | None] = asyncio.Queue()
        self._unread = 0
        self._task: asyncio.Task[None] | None = None
        self._released = asyncio.Event()

    @property
    def untrusted(self) -> bool:
        return self.consent.untrusted

    @property
    def answer(self) -> str | None:
        return storable("".join(self._text)) or None

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """Start the turn and yield its events to the last one. Closing the generator cancels the turn."""
        self.release()
        try:
            while (waiting := await self._queue.get()) is not None:
                event, size = waiting
                self._unread -= size
                yield event
        finally:
            self.cancel()

    async def last(self) -> TurnFinal | TurnError:
        """Follow the turn to its end, and return its last event."""
        last: TurnEvent | None = None
        async with aclosing(self.events()) as events:
            async for event in events:
                last = event
        assert isinstance(last, TurnFinal | TurnError), "a turn ends with one of them"
        return last

    def release(self) -> None:
        """Start the turn; until then its client may still give up and have the work done elsewhere."""
        self._released.set()

    def cancel(self) -> None:
        """Stop the turn and the skill that it runs; no effect once its work is over."""
        # Once: a second one would cut short what the first one has a skill do to stop.
        if not self.cancelled:
            self.cancelled = True
            if self._task is not None:
                self._task.cancel()

    async def run(self, work: "TurnWork", lock: asyncio.Lock) -> None:
        """Run the work in the present task, once the turn is released and the lock is free."""
        # A task that is cancelled before its first step never runs at all, not even its clean-up, so
        # cancelling reaches the task only from here on.
        self._task = asyncio.current_task()
        try:
            if not self.cancelled:
                async with AsyncExitStack() as stack:
                    stack.enter_context(within((self.trace, None)))
                    stack.enter_context(correlated(turn=self.id))
                    await self._enter(lock, stack)
                    if await self._is_followed():
                        await work(self)
        except StrawberryError as error:
            self.emit(TurnError(code="internal", message=error.message, hint=error.hint))
        except Exception:  # noqa: BLE001  one turn must not end the others
            _log.exception("turn %s failed", self.id)
            self.emit(TurnError(code="internal", message="an internal error occurred; see the log"))
        finally:
            # From here on a cancel changes nothing: the work is over and is only recorded.
            self._task = None
            self.trace.close()
            if not self._is_complete:
                self.state, self.outcome = "cancelled", self._broken_off()

    async def _enter(self, lock: asyncio.Lock, stack: AsyncExitStack) -> None:
        """Wait for the turns of the same conversation that came before."""
        if lock.locked():
            with span("hub", "queue"):
                await stack.enter_async_context(lock)
        else:
            await stack.enter_async_context(lock)

    def _broken_off(self) -> TurnOutcome:
        return "interrupted" if self.interrupted else "stopped"

    def close(self) -> None:
        """End the events, with an error where the work was cut short."""
        if not self._is_complete:
            self.emit(TurnError(code="cancelled", message="the turn was cancelled"))
        self.ended.set()
        self._queue.put_nowait(None)

    async def _is_followed(self) -> bool:
        return await happens(self._released, within_s=limits.RELEASE_S)

    def emit(self, event: TurnEvent) -> None:
        """Note what is recorded of an event, and pass the event on."""
        if (line := call_line(event)) is not None and len(self.did) < MAX_DID:
            self.did.append(line)
        match event:
            case TextDelta(text=text):
                self._text.append(text)
            case TurnFinal():
                self._text = [event.answer]
                self.mode, self.state, self._is_complete = event.mode, "finished", True
                self.outcome, self.final = "answered", event
                self.trace.close()
            case TurnError():
                self.state = "cancelled" if event.code in ("cancelled", "broken") else "finished"
                self.outcome = self._broken_off() if event.code == "cancelled" else "failed"
                if self.outcome == "failed":
                    self.problem, self.reason = shortened(storable(event.message), MAX_PROBLEM), event.code
                self._is_complete = True
                self.trace.close()
                event = event.model_copy(update={"answer": self.answer or ""})
        self._put(event)

    def _put(self, event: TurnEvent) -> None:
        if self._unread > limits.MAX_UNREAD_BYTES and not self._is_complete:
            self.cancel()
            return
        size = len(repr(event))
        self._unread += size
        self._queue.put_nowait((event, size))


TurnWork = Callable[[Turn], Awaitable[None]]
"""Does the work of a turn and emits what happens; cancelled with the turn."""


class TurnStore(Protocol):
    """Where turns are recorded: of each id at most one ever runs."""

    async def begin(self, turn: Turn) -> None:
        """Record a turn before anything of it happens.

        Raises:
            Conflict: If its id was used before, or cancelled before it arrived: it must not run.
        """

    async def end(self, turn: Turn) -> None:
        """Record how a turn ended and what was answered."""

    async def state(self, user: str, turn: str, *, through: str | None) -> TurnState:
        """Return a turn's state; mark an unknown turn as cancelled so that a late request cannot start it.

        Args:
            through: Thumbprint of the key of the device that cancels, where a device does.
        """


@dataclass(eq=False)
class Turns:
    """All running turns of this process.

    Attributes:
        store: Records them.
        tasks: Owns their tasks.
        slots: Limits how many run or wait at the same time.
        on_ended: Called with each turn that has ended.
    """

    store: TurnStore
    _: KW_ONLY
    tasks: asyncio.TaskGroup
    slots: Slots
    on_ended: Sequence[Callable[[Turn], None]] = ()
    _turns: dict[tuple[str, str], Turn] = field(default_factory=dict, init=False)
    # Those that ran though the disk was full, until they are recorded.
    _unrecorded: dict[tuple[str, str], Turn] = field(default_factory=dict, init=False)
    _locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )

    async def open(self, turn: Turn, work: TurnWork, *, slots: Slots | None = None) -> Turn:
        """Record a turn and start it; turns of one conversation run one after another.

        While the disk is full it runs all the same, and is recorded later.

        Args:
            slots: Limits how many turns like this one are open, in place of those of all others.

        Raises:
            Conflict: If its id was used before, or cancelled before it arrived.
            StorageError: If it cannot be recorded, now or later.
            TooManyRequests: If there are too many open turns.
        """
        key, slots = (turn.user, turn.id), slots or self.slots
        if key in self._turns or key in self._unrecorded:
            raise came_before(turn.id)
        if not slots.take(turn.holder, person=turn.is_person):
            raise TooManyRequests("too many turns are open", hint="Wait until one has ended.")
        # Listed before it is in the database, so that a cancel finds it at any moment.
        self._turns[key] = turn
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tasks.create_task(self._run(turn, work, slots, begun), name=f"turn {turn.id}")
        try:
            await asyncio.shield(begun)
        except asyncio.CancelledError:
            # What is being recorded by now is recorded as stopped: no client follows it any more.
            turn.cancel()
            begun.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
        return turn

    async def cancel(self, user: str, turn: str, *, through: str | None = None) -> TurnState:
        """Stop a turn, or keep one that has not arrived from ever running.

        Args:
            through: See `TurnStore.state`.

        Returns:
            ``not_started`` if it did not run and never will; ``cancelled`` or ``finished`` if it has
            ended; ``running`` if it was asked to stop and has not ended yet.
        """
        state = await self._state(user, turn, through)
        running = self._turns.get((user, turn))
        if state != "running" or running is None:
            return state
        running.cancel()
        if not await happens(running.ended, within_s=limits.CANCEL_S):
            return "running"
        return await self._state(user, turn, through)

    async def _state(self, user: str, turn: str, through: str | None) -> TurnState:
        unrecorded = self._unrecorded.get((user, turn))
        if unrecorded is not None and through in (None, unrecorded.through):
            return unrecorded.state
        return await self.store.state(user, turn, through=through)

    @property
    def open_count(self) -> int:
        return len(self._turns)

    def all(self) -> tuple[Turn, ...]:
        return tuple(self._turns.values())

    def get(self, user: str, turn: str) -> Turn | None:
        return self._turns.get((user, turn))

    def cancel_where(self, concerned: Callable[[Turn], bool]) -> None:
        """Stop every turn that is concerned."""
        for turn in self.all():
            if concerned(turn):
                turn.cancel()

    def interrupt(self) -> None:
        """Stop every turn, because this process ends."""
        for turn in self.all():
            turn.interrupted = True
            turn.cancel()

    async def _run(self, turn: Turn, work: TurnWork, slots: Slots, begun: asyncio.Future[None]) -> None:
        try:
            await self.store.begin(turn)
        except BaseException as error:  # noqa: BLE001  it is raised where the turn is opened
            if not isinstance(error, DiskFull) or len(self._unrecorded) >= limits.MOST_UNRECORDED:
                del self._turns[(turn.user, turn.id)]
                slots.give_back(turn.holder)
                begun.set_exception(error)
                return
            self._unrecorded[(turn.user, turn.id)] = turn
        begun.set_result(None)
        lock = self._locks.setdefault((turn.user, turn.conversation), asyncio.Lock())
        try:
            await turn.run(work, lock)
        finally:
            try:
                async with asyncio.timeout(limits.STORE_S):
                    await self._record(turn)
            except (StorageError, TimeoutError) as error:
                # The person has the answer all the same, and it must not be lost.
                _log.error("the end of turn %s is not recorded yet: %s", turn.id, error)
                self.tasks.create_task(self._record_later(turn), name=f"record turn {turn.id}")
            except Exception:  # noqa: BLE001  one turn must not end the others
                _log.exception("the end of turn %s cannot be recorded", turn.id)
                self._unrecorded.pop((turn.user, turn.id), None)
            finally:
                del self._turns[(turn.user, turn.id)]
                slots.give_back(turn.holder)
                turn.close()
                for listener in self.on_ended:
                    listener(turn)

    async def _record_later(self, turn: Turn) -> None:
        backoff = Backoff(*limits.STORE_RETRY_S)
        while True:
            await asyncio.sleep(backoff.next())
            try:
                await self._record(turn)
            except StorageError:
                continue
            except StrawberryError as error:
                _log.error("turn %s is not recorded: %s", turn.id, error)
                self._unrecorded.pop((turn.user, turn.id), None)
            return

    async def _record(self, turn: Turn) -> None:
        """Record how a turn ended, and before that what could not be recorded when it began."""
        if (turn.user, turn.id) in self._unrecorded:
            with suppress(Conflict):  # an attempt that timed out has recorded it
                await self.store.begin(turn)
            del self._unrecorded[(turn.user, turn.id)]
        await self.store.end(turn)


def came_before(turn: str) -> Conflict:
    """Return the error for an id that was used before."""
    return Conflict(
        "turn id {turn} was used before", turn=turn, hint="Nothing was run again; use a new turn id."
    )


def cancelled_before(turn: str) -> Conflict:
    """Return the error for a turn that was cancelled before its request arrived."""
    return Conflict(
        "turn {turn} was cancelled before it arrived", turn=turn, hint="Use a new turn id to ask again."
    )
