"""The spoke's side of calls: what arrives is checked, run at most once, and answered.

A call is parsed only after the hub's signature over it holds, and it runs only if topic, epoch,
deadline and id all say so. What was forged or garbled is dropped, counted and logged, never answered.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self, TypeVar

from pydantic_core import PydanticSerializationError

from bus.link import Link, Message
from bus.rpc.clock import SKEW_S, EpochClock
from bus.rpc.memory import Entry, OutcomeMemory, Stage
from bus.rpc.replies import Replies
from bus.rpc.request import MAX_PAYLOAD
from contracts import topics
from contracts.errors import CallError, Disconnected, ErrorCode, InvalidMessage, InvalidTopic
from contracts.rpc import Call, Control
from contracts.wire import Json
from identity.envelope import Seal, unseal
from identity.ids import time_of
from identity.keys import PublicKey

_logger = logging.getLogger(__name__)

ProgressSink = Callable[[Json], Awaitable[None]]
"""Takes what a running method reports; drops it while there is no connection."""

Executor = Callable[[Call, str, str, ProgressSink], Awaitable[Json]]
"""Runs ``(call, skill, method, progress)`` and gives a JSON value.

Raises:
    CallError: Where there is no result.
    StillRunning: Where nothing can be said.
"""


class StillRunning(Exception):
    """Raised by an executor whose method was asked to stop and did not: what becomes of it is not known.

    Such a call gets no reply, now or later: only the hub concludes ``outcome_unknown``.
    """


Admission = Callable[[Call, str, str], None]
"""Refuses, by a CallError, what need not be reserved because it would be refused when it runs."""

Received = TypeVar("Received", Call, Control)

_FAREWELL_S = 2.0
"""How long leaving may wait for the broker."""


@dataclass(frozen=True, kw_only=True)
class ResponderSettings:
    """Bounds of a spoke.

    Attributes:
        max_active: Calls that may run or be reserved at once; more are ``busy``.
        progress_after_s: When a call that still runs says so.
        remembered: Outcomes kept for repetitions.
        remembered_bytes: Bytes that these may take.
    """

    max_active: int = 64
    max_payload: int = MAX_PAYLOAD
    progress_after_s: float = 1.0
    remembered: int = 4_096
    remembered_bytes: int = 16 * 1024 * 1024
    skew_s: float = SKEW_S


class Responder:
    """Answers the hub's calls to one device; to be entered with ``async with``.

    Args:
        seal: Of the device.
        epoch: Of this start of the spoke.
        hub_key: The one key whose calls run.
        executor: Runs them.
        admission: Asked before a call is reserved.
        clock: The hub's time.

    Attributes:
        dropped: How many messages were dropped, by reason.
    """

    def __init__(
        self,
        link: Link,
        seal: Seal,
        *,
        device: str,
        epoch: int,
        hub_key: PublicKey,
        executor: Executor,
        admission: Admission | None = None,
        clock: EpochClock | None = None,
        settings: ResponderSettings | None = None,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._link = link
        self._hub_id = seal.hub_id
        self._device = device
        self._epoch = epoch
        self._hub_key = hub_key
        self._executor = executor
        self._admission = admission
        self._clock = clock or EpochClock()
        self._settings = settings or ResponderSettings()
        self._memory = OutcomeMemory(entries=self._settings.remembered, size=self._settings.remembered_bytes)
        self._tasks = asyncio.TaskGroup()
        self._replies = Replies(
            link,
            seal,
            device=device,
            epoch=epoch,
            max_payload=self._settings.max_payload,
            tasks=self._tasks,
        )
        self._unsubscribe: list[Callable[[], Awaitable[None]]] = []

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        for row, handler in ((topics.CALL, self._on_call), (topics.CONTROL, self._on_control)):
            filter_ = row.filter(device=self._device)
            self._unsubscribe.append(await self._link.subscribe(filter_, handler))
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            async with asyncio.timeout(_FAREWELL_S):
                for unsubscribe in self._unsubscribe:
                    await unsubscribe()
        except TimeoutError:
            _logger.warning("the broker did not answer while %s stopped listening", self._device)
        finally:
            for entry in self._memory.entries():
                _disarm(entry)
                if entry.task is not None:
                    entry.task.cancel()
            # The body's own exception is not handed to the group, which would wrap it in another.
            await self._tasks.__aexit__(None, None, None)

    # Arrival

    def _on_call(self, message: Message) -> None:
        try:
            values, call = self._opened(topics.CALL, Call, message)
        except InvalidMessage as error:
            self._drop(error, message)
            return
        known = self._memory.find(call.id)
        if known is not None:
            self._repeat(known)
            return
        entry = Entry(
            id=call.id,
            issued_at=call.issued_at.timestamp(),
            reply_topic=self._replies.topic(call.instance, call.id),
            stage=Stage.RESERVED,
            call=call,
            skill=values["skill"],
            method=values["method"],
        )
        late = self._late(entry, call)
        if late is not None:
            # Not kept: asked again, the answer would be the same.
            self._replies.send(entry, self._replies.failure(entry, late))
            return
        refusal = self._refusal(entry, call)
        if refusal is not None:
            # Kept: a second delivery must not run what the hub was told is refused.
            self._fail(entry, refusal)
        elif call.accept:
            self._reserve(entry, call)
        else:
            self._memory.add(entry)
            self._start(entry, call)

    def _on_control(self, message: Message) -> None:
        try:
            _, control = self._opened(topics.CONTROL, Control, message)
        except InvalidMessage as error:
            self._drop(error, message)
            return
        known = self._memory.find(control.id)
        if known is not None:
            if control.kind == "cancel":
                self._cancel(known)
            elif known.stage is Stage.RESERVED and known.call is not None:
                self._start(known, known.call)
            else:
                self._repeat(known)
            return
        entry = Entry(
            id=control.id,
            issued_at=time_of(control.id),
            reply_topic=self._replies.topic(control.instance, control.id),
            stage=Stage.RESERVED,
        )
        if control.epoch != self._epoch:
            self._replies.send(entry, self._replies.failure(entry, self._stale()))
        elif control.kind == "start":
            missing = CallError(ErrorCode.EXPIRED, f"{self._device} holds no reservation for this call")
            self._replies.send(entry, self._replies.failure(entry, missing))
        else:
            # The call may still be on its way: this outcome will be waiting for it.
            self._fail(entry, _cancelled_by_hub())

    def _opened(
        self, row: topics.Topic, model: type[Received], message: Message
    ) -> tuple[dict[str, str], Received]:
        """Check a message and parse it, with the values of its topic."""
        if message.retain:
            raise InvalidMessage("it is retained, which a call never is")
        if len(message.payload) > self._settings.max_payload:
            raise InvalidMessage("it is too large")
        document = unseal(self._hub_id, message.topic, message.payload, self._hub_key)
        values = row.match(message.topic)
        if values is None or values["device"] != self._device:
            raise InvalidTopic("its topic is not one of ours")
        parsed = row.parse(document)
        if not isinstance(parsed, model) or values.get("call", parsed.id) != parsed.id:
            raise InvalidMessage("it is another message than its topic says")
        return values, parsed

    def _drop(self, error: InvalidMessage, message: Message) -> None:
        self.dropped[type(error).__name__] += 1
        _logger.warning("dropped a message on %s: %s", message.topic, error.message)

    def _late(self, entry: Entry, call: Call) -> CallError | None:
        if call.epoch != self._epoch:
            return self._stale()
        now = self._clock.now()
        if now > entry.issued_at + call.ttl_ms / 1000 + self._settings.skew_s:
            return CallError(ErrorCode.EXPIRED, f"the call reached {self._device} too late")
        if self._memory.forgot(entry.issued_at):
            return CallError(
                ErrorCode.EXPIRED, f"{self._device} no longer knows whether it has seen this call"
            )
        return None

    def _refusal(self, entry: Entry, call: Call) -> CallError | None:
        if self._memory.active >= self._settings.max_active:
            return CallError(
                ErrorCode.BUSY,
                f"{self._device} runs {self._settings.max_active} calls already",
                hint="Try again when some of them have ended.",
            )
        if self._admission is not None:
            try:
                self._admission(call, entry.skill, entry.method)
            except CallError as error:
                return error
        return None

    def _stale(self) -> CallError:
        return CallError(ErrorCode.STALE_EPOCH, f"{self._device} has restarted since the call was made")

    # Stages

    def _reserve(self, entry: Entry, call: Call) -> None:
        entry.reply = self._replies.accepted(entry)
        self._memory.add(entry)
        loop = asyncio.get_running_loop()
        entry.timer = loop.call_later(self._remaining(entry, call), self._lapse, entry)
        self._replies.send(entry, entry.reply)

    def _lapse(self, entry: Entry) -> None:
        error = CallError(ErrorCode.EXPIRED, f"the reservation on {self._device} lapsed")
        self._fail(entry, error)

    def _start(self, entry: Entry, call: Call) -> None:
        _disarm(entry)
        entry.stage, entry.reply = Stage.RUNNING, b""
        entry.task = self._tasks.create_task(
            self._run(entry, call), name=f"call {entry.skill}.{entry.method}"
        )
        loop = asyncio.get_running_loop()
        entry.timer = loop.call_later(self._settings.progress_after_s, self._still_running, entry)

    def _still_running(self, entry: Entry) -> None:
        entry.timer = None
        self._replies.send(entry, self._replies.progress(entry, None))

    def _cancel(self, entry: Entry) -> None:
        if entry.stage is Stage.DONE:
            self._repeat(entry)
        elif entry.task is None:
            self._fail(entry, _cancelled_by_hub())
        elif not entry.cancelled:
            entry.cancelled = True
            entry.task.cancel()
            if not entry.begun:
                # A task that is cancelled before its first step never gets to say so.
                self._fail(entry, _cancelled_by_hub())

    def _repeat(self, entry: Entry) -> None:
        """Tell again how a call stands; one that runs will tell by itself when it has ended."""
        if entry.reply:
            self._replies.send(entry, entry.reply)

    async def _run(self, entry: Entry, call: Call) -> None:
        entry.begun = True

        async def progress(value: Json) -> None:
            # A report of its own says that it runs; the one by time is then not needed.
            _disarm(entry)
            try:
                sealed = self._replies.progress(entry, value)
                await self._link.publish(entry.reply_topic, sealed, correlation=entry.id.encode())
            except (Disconnected, PydanticSerializationError) as error:
                _logger.debug("progress of %s.%s was not sent: %s", entry.skill, entry.method, error)

        try:
            sealed = self._replies.result(entry, await self._limited(entry, call, progress))
        except CallError as error:
            sealed = self._replies.failure(entry, error)
        except StillRunning:
            _logger.warning("%s.%s was asked to stop and still runs", entry.skill, entry.method)
            _disarm(entry)
            self._memory.finish(entry, b"")
            return
        except PydanticSerializationError:
            not_json = CallError(ErrorCode.SKILL_ERROR, f"{entry.skill}.{entry.method} gave what is not JSON")
            sealed = self._replies.failure(entry, not_json)
        except asyncio.CancelledError:
            if not entry.cancelled:
                raise
            sealed = self._replies.failure(entry, _cancelled_by_hub())
        except (Exception, SystemExit) as problem:
            _logger.exception("%s.%s failed", entry.skill, entry.method)
            failed = CallError(ErrorCode.SKILL_ERROR, f"{type(problem).__name__}: {problem}")
            sealed = self._replies.failure(entry, failed)
        _disarm(entry)
        self._memory.finish(entry, sealed)
        await self._replies.deliver(entry, sealed)

    async def _limited(self, entry: Entry, call: Call, progress: ProgressSink) -> Json:
        limit = self._remaining(entry, call)
        try:
            async with asyncio.timeout(limit) as scope:
                return await self._executor(call, entry.skill, entry.method, progress)
        except TimeoutError:
            if not scope.expired():
                raise
            message = f"{entry.skill}.{entry.method} did not end before the call's deadline"
            raise CallError(ErrorCode.TIMEOUT, message) from None

    def _remaining(self, entry: Entry, call: Call) -> float:
        """Seconds that the call has left, never more than it was given."""
        ttl = call.ttl_ms / 1000
        return min(ttl, entry.issued_at + ttl + self._settings.skew_s - self._clock.now())

    def _fail(self, entry: Entry, error: CallError) -> None:
        """End a call that has not begun."""
        _disarm(entry)
        sealed = self._replies.failure(entry, error)
        self._memory.finish(entry, sealed)
        self._replies.send(entry, sealed)


def _cancelled_by_hub() -> CallError:
    return CallError(ErrorCode.CANCELLED, "the call was cancelled")


def _disarm(entry: Entry) -> None:
    if entry.timer is not None:
        entry.timer.cancel()
        entry.timer = None
