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

from broker.envelope import Seal, unseal
from broker.ids import time_of
from broker.keys import PublicKey
from broker.link import Link, Message
from broker.rpc.clock import SKEW_S, EpochClock
from broker.rpc.memory import Entry, OutcomeMemory, Stage
from broker.rpc.request import MAX_PAYLOAD
from contracts import topics
from contracts.errors import CallError, Disconnected, ErrorCode, InvalidMessage, InvalidTopic
from contracts.rpc import Accepted, Call, Control, Failure, Progress, Result
from contracts.wire import Json, Wire

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

_MESSAGE_LENGTH = 4_000
_HINT_LENGTH = 1_000

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
        self._seal = seal
        self._device = device
        self._epoch = epoch
        self._hub_key = hub_key
        self._executor = executor
        self._admission = admission
        self._clock = clock or EpochClock()
        self._settings = settings or ResponderSettings()
        self._memory = OutcomeMemory(entries=self._settings.remembered, size=self._settings.remembered_bytes)
        self._tasks = asyncio.TaskGroup()
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
            reply_topic=self._reply_topic(call.instance, call.id),
            stage=Stage.RESERVED,
            call=call,
            skill=values["skill"],
            method=values["method"],
        )
        late = self._late(entry, call)
        if late is not None:
            # Not kept: asked again, the answer would be the same.
            self._send(entry.reply_topic, self._sealed(entry, self._failure(entry, late)), entry.id)
            return
        refusal = self._refusal(entry, call)
        if refusal is not None:
            # Kept: a second delivery must not run what the hub was told is refused.
            self._finish(entry, self._failure(entry, refusal))
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
            reply_topic=self._reply_topic(control.instance, control.id),
            stage=Stage.RESERVED,
        )
        if control.epoch != self._epoch:
            self._send(entry.reply_topic, self._sealed(entry, self._failure(entry, self._stale())), entry.id)
        elif control.kind == "start":
            missing = CallError(ErrorCode.EXPIRED, f"{self._device} holds no reservation for this call")
            self._send(entry.reply_topic, self._sealed(entry, self._failure(entry, missing)), entry.id)
        else:
            # The call may still be on its way: this outcome will be waiting for it.
            self._finish(entry, self._failure(entry, _cancelled_by_hub()))

    def _opened(
        self, row: topics.Topic, model: type[Received], message: Message
    ) -> tuple[dict[str, str], Received]:
        """Check a message and parse it, with the values of its topic."""
        if message.retain:
            raise InvalidMessage("it is retained, which a call never is")
        if len(message.payload) > self._settings.max_payload:
            raise InvalidMessage("it is too large")
        document = unseal(self._seal.hub_id, message.topic, message.payload, self._hub_key)
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
        accepted = Accepted(id=call.id, epoch=self._epoch)
        entry.reply = self._sealed(entry, accepted)
        self._memory.add(entry)
        loop = asyncio.get_running_loop()
        entry.timer = loop.call_later(self._remaining(entry, call), self._lapse, entry)
        self._send(entry.reply_topic, entry.reply, entry.id)

    def _lapse(self, entry: Entry) -> None:
        error = CallError(ErrorCode.EXPIRED, f"the reservation on {self._device} lapsed")
        self._finish(entry, self._failure(entry, error))

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
        self._send(entry.reply_topic, self._progress(entry, None), entry.id)

    def _cancel(self, entry: Entry) -> None:
        if entry.stage is Stage.DONE:
            self._repeat(entry)
        elif entry.task is None:
            self._finish(entry, self._failure(entry, _cancelled_by_hub()))
        elif not entry.cancelled:
            entry.cancelled = True
            entry.task.cancel()
            if not entry.begun:
                # A task that is cancelled before its first step never gets to say so.
                self._finish(entry, self._failure(entry, _cancelled_by_hub()))

    def _repeat(self, entry: Entry) -> None:
        """Tell again how a call stands; one that runs will tell by itself when it has ended."""
        if entry.reply:
            self._send(entry.reply_topic, entry.reply, entry.id)

    async def _run(self, entry: Entry, call: Call) -> None:
        entry.begun = True

        async def progress(value: Json) -> None:
            # A report of its own says that it runs; the one by time is then not needed.
            _disarm(entry)
            try:
                sealed = self._progress(entry, value)
                await self._link.publish(entry.reply_topic, sealed, correlation=entry.id.encode())
            except (Disconnected, PydanticSerializationError) as error:
                _logger.debug("progress of %s.%s was not sent: %s", entry.skill, entry.method, error)

        try:
            reply = Result(id=entry.id, epoch=self._epoch, value=await self._limited(entry, call, progress))
            sealed = self._sealed(entry, reply)
            if len(sealed) > self._settings.max_payload:
                sealed = self._sealed(entry, self._failure(entry, self._too_large(len(sealed))))
        except CallError as error:
            sealed = self._sealed(entry, self._failure(entry, error))
        except StillRunning:
            _logger.warning("%s.%s was asked to stop and still runs", entry.skill, entry.method)
            _disarm(entry)
            self._memory.finish(entry, b"")
            return
        except PydanticSerializationError:
            not_json = CallError(ErrorCode.SKILL_ERROR, f"{entry.skill}.{entry.method} gave what is not JSON")
            sealed = self._sealed(entry, self._failure(entry, not_json))
        except asyncio.CancelledError:
            if not entry.cancelled:
                raise
            sealed = self._sealed(entry, self._failure(entry, _cancelled_by_hub()))
        except (Exception, SystemExit) as problem:
            _logger.exception("%s.%s failed", entry.skill, entry.method)
            failed = CallError(ErrorCode.SKILL_ERROR, f"{type(problem).__name__}: {problem}")
            sealed = self._sealed(entry, self._failure(entry, failed))
        _disarm(entry)
        self._memory.finish(entry, sealed)
        await self._deliver(entry.reply_topic, sealed, entry.id)

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

    # Replies

    def _finish(self, entry: Entry, reply: Wire) -> None:
        _disarm(entry)
        sealed = self._sealed(entry, reply)
        self._memory.finish(entry, sealed)
        self._send(entry.reply_topic, sealed, entry.id)

    def _send(self, topic: str, sealed: bytes, call_id: str) -> None:
        try:
            self._link.publish_nowait(Message(topic, sealed, correlation=call_id.encode()))
        except Disconnected:
            if self._link.connected:
                self._tasks.create_task(
                    self._deliver(topic, sealed, call_id), name="reply that waits for room"
                )

    async def _deliver(self, topic: str, sealed: bytes, call_id: str) -> None:
        try:
            await self._link.publish(topic, sealed, correlation=call_id.encode())
        except Disconnected:
            # Nothing is lost: it is kept, and the hub asks again when we are back.
            _logger.info("the reply to call %s waits to be asked for again", call_id)

    def _progress(self, entry: Entry, value: Json) -> bytes:
        progress = Progress(id=entry.id, epoch=self._epoch, seq=entry.progress_seq, value=value)
        entry.progress_seq += 1
        return self._sealed(entry, progress)

    def _failure(self, entry: Entry, error: CallError) -> Failure:
        return Failure(
            id=entry.id,
            epoch=self._epoch,
            code=error.code,
            message=_text(error.message, _MESSAGE_LENGTH),
            hint=_text(error.hint, _HINT_LENGTH),
        )

    def _too_large(self, size: int) -> CallError:
        return CallError(
            ErrorCode.TOO_LARGE,
            f"the result has {size:,} bytes; {self._settings.max_payload:,} are allowed",
            hint="Ask for less at once.",
        )

    def _sealed(self, entry: Entry, reply: Wire) -> bytes:
        return self._seal.seal(entry.reply_topic, reply)

    def _reply_topic(self, instance: str, call_id: str) -> str:
        return topics.RESULT.build(device=self._device, instance=instance, call=call_id)


def _cancelled_by_hub() -> CallError:
    return CallError(ErrorCode.CANCELLED, "the call was cancelled")


def _text(text: str, length: int) -> str:
    """What a skill says may hold half characters, which no JSON can carry."""
    return text[:length].encode(errors="replace").decode()


def _disarm(entry: Entry) -> None:
    if entry.timer is not None:
        entry.timer.cancel()
        entry.timer = None
