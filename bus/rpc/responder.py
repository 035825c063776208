"""The spoke's side of calls: what arrives is checked, run at most once, and answered.

A call is parsed only after the hub's signature over it holds, and it runs only if topic, epoch,
deadline and id all say so. What was forged or garbled is dropped, counted and logged, never answered.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Self, TypeVar

from pydantic_core import PydanticSerializationError

from bus.link import Link, Message
from bus.rpc.incoming import DedupCache, IncomingCall, Stage
from bus.rpc.replies import Replies
from bus.rpc.request import MAX_PAYLOAD, SKEW_S, EpochClock
from contracts import topics
from contracts.devices.rpc import MAX_TTL_MS, Call, Control
from contracts.errors import (
    CallError,
    Disconnected,
    ErrorCode,
    InvalidMessage,
    InvalidTopic,
    StillRunning,
)
from contracts.rates import complaint_limit
from contracts.tracing.correlation import correlated
from contracts.wire import Json
from identity.envelope import Seal, unseal
from identity.ids import time_of
from identity.keys import PublicKey

_log = logging.getLogger(__name__)

ProgressSink = Callable[[Json], Awaitable[None]]
"""Takes what a running method reports; drops it while there is no connection."""

Executor = Callable[[Call, str, str, ProgressSink], Awaitable[Json]]
"""Runs ``(call, skill, method, progress)`` and gives a JSON value.

Raises:
    CallError: Where there is no result.
    StillRunning: Where nothing can be said.
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
        progress_after_s: When a call that still runs reports it.
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
        on_renamed: Called when the hub tells that the device is called something else.
        on_untimely: Called when the hub sends what is late or from the future: its clock may have been set.
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
        on_renamed: Callable[[], None] = lambda: None,
        on_untimely: Callable[[], None] = lambda: None,
        clock: EpochClock | None = None,
        settings: ResponderSettings | None = None,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._complaints = complaint_limit()
        self._link = link
        self._hub_id = seal.hub_id
        self._device = device
        self._epoch = epoch
        self._hub_key = hub_key
        self._executor = executor
        self._admission = admission
        self._on_renamed = on_renamed
        self._on_untimely = on_untimely
        self._clock = clock or EpochClock()
        self._settings = settings or ResponderSettings()
        self._seen = DedupCache(most=self._settings.remembered, size=self._settings.remembered_bytes)
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
            _log.warning("the broker did not answer while %s stopped listening", self._device)
        finally:
            for incoming in self._seen.unfinished():
                _disarm(incoming)
                if incoming.task is not None:
                    incoming.task.cancel()
            # The body's own exception is not handed to the group, which would wrap it in another.
            await self._tasks.__aexit__(None, None, None)

    # Arrival

    def _on_call(self, message: Message) -> None:
        try:
            values, call = self._opened(topics.CALL, message)
        except InvalidMessage as error:
            self._drop(error, message)
            return
        known = self._seen.find(call.id)
        if known is not None:
            self._repeat(known)
            return
        incoming = IncomingCall(
            id=call.id,
            issued_at=call.issued_at.timestamp(),
            reply_topic=self._replies.topic(call.instance, call.id),
            stage=Stage.RESERVED,
            call=call,
            skill=values["skill"],
            method=values["method"],
        )
        late = self._late(incoming, call)
        if late is not None:
            # Not kept: asked again, the answer would be the same.
            self._replies.send(incoming, self._replies.failure(incoming, late))
            return
        refusal = self._refusal(incoming, call)
        if refusal is not None:
            # Kept: a repetition must not run what was answered as refused.
            self._fail(incoming, refusal)
        elif call.accept:
            self._reserve(incoming, call)
        else:
            self._seen.add(incoming)
            self._start(incoming, call)

    def _on_control(self, message: Message) -> None:
        try:
            _, control = self._opened(topics.CONTROL, message)
        except InvalidMessage as error:
            self._drop(error, message)
            return
        known = self._seen.find(control.id)
        incoming = known or IncomingCall(
            id=control.id,
            issued_at=time_of(control.id),
            reply_topic=self._replies.topic(control.instance, control.id),
            stage=Stage.RESERVED,
        )
        if control.kind == "renamed":
            # Once, and soon: what is repeated would have the hub asked again and again.
            is_late = self._is_late(incoming, MAX_TTL_MS)
            is_old = known is not None or is_late or self._seen.forgot(incoming.issued_at)
            if control.epoch == self._epoch and not is_old:
                self._seen.finish(incoming, b"")
                self._on_renamed()
        elif control.epoch != self._epoch:
            self._replies.send(incoming, self._replies.failure(incoming, self._stale()))
        elif known is not None:
            self._control_known(known, control.kind)
        elif control.kind == "start":
            missing = CallError(ErrorCode.EXPIRED, f"{self._device} holds no reservation for this call")
            self._replies.send(incoming, self._replies.failure(incoming, missing))
        else:
            # The call may still be on its way: this outcome will be waiting for it.
            self._fail(incoming, _cancelled_by_hub())

    def _control_known(self, incoming: IncomingCall, kind: Literal["start", "cancel"]) -> None:
        if kind == "cancel":
            self._cancel(incoming)
        elif incoming.stage is Stage.RESERVED and incoming.call is not None:
            self._start(incoming, incoming.call)
        else:
            self._repeat(incoming)

    def _opened(self, row: topics.Topic[Received], message: Message) -> tuple[dict[str, str], Received]:
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
        if values.get("call", parsed.id) != parsed.id:
            raise InvalidMessage("it is another message than its topic says")
        return values, parsed

    def _drop(self, error: InvalidMessage, message: Message) -> None:
        self.dropped[type(error).__name__] += 1
        if self._complaints.take(""):
            _log.warning("dropped a message on %.200r: %.500s", message.topic, error.message)

    def _late(self, incoming: IncomingCall, call: Call) -> CallError | None:
        if call.epoch != self._epoch:
            return self._stale()
        if self._is_late(incoming, call.ttl_ms):
            return CallError(ErrorCode.EXPIRED, f"the call reached {self._device} too late")
        if self._seen.forgot(incoming.issued_at):
            return CallError(
                ErrorCode.EXPIRED, f"{self._device} no longer knows whether it has seen this call"
            )
        return None

    def _is_late(self, incoming: IncomingCall, ttl_ms: int) -> bool:
        age, skew_s = self._clock.now() - incoming.issued_at, self._settings.skew_s
        is_late = age > ttl_ms / 1000 + skew_s
        if is_late or age < -skew_s:
            self._on_untimely()
        return is_late

    def _refusal(self, incoming: IncomingCall, call: Call) -> CallError | None:
        if self._seen.active >= self._settings.max_active:
            return CallError(
                ErrorCode.BUSY,
                f"{self._device} runs {self._settings.max_active} calls already",
                hint="Try again when some of them have ended.",
            )
        if self._admission is not None:
            try:
                self._admission(call, incoming.skill, incoming.method)
            except CallError as error:
                return error
        return None

    def _stale(self) -> CallError:
        return CallError(ErrorCode.STALE_EPOCH, f"{self._device} has restarted since the call was made")

    # Stages

    def _reserve(self, incoming: IncomingCall, call: Call) -> None:
        incoming.reply = self._replies.accepted(incoming)
        self._seen.add(incoming)
        loop = asyncio.get_running_loop()
        incoming.timer = loop.call_later(self._remaining(incoming, call), self._lapse, incoming)
        self._replies.send(incoming, incoming.reply)

    def _lapse(self, incoming: IncomingCall) -> None:
        error = CallError(ErrorCode.EXPIRED, f"the reservation on {self._device} lapsed")
        self._fail(incoming, error)

    def _start(self, incoming: IncomingCall, call: Call) -> None:
        _disarm(incoming)
        incoming.stage, incoming.reply = Stage.RUNNING, b""
        with correlated(call=call.id, turn=call.actor.turn, request=call.request):
            incoming.task = self._tasks.create_task(
                self._run(incoming, call), name=f"call {incoming.skill}.{incoming.method}"
            )
        loop = asyncio.get_running_loop()
        incoming.timer = loop.call_later(self._settings.progress_after_s, self._still_running, incoming)

    def _still_running(self, incoming: IncomingCall) -> None:
        incoming.timer = None
        self._replies.send(incoming, self._replies.progress(incoming, None))

    def _cancel(self, incoming: IncomingCall) -> None:
        if incoming.stage is Stage.DONE:
            self._repeat(incoming)
        elif incoming.task is None:
            self._fail(incoming, _cancelled_by_hub())
        elif not incoming.cancelled:
            incoming.cancelled = True
            incoming.task.cancel()
            if not incoming.begun:
                # A task that is cancelled before its first step never gets to say so.
                self._fail(incoming, _cancelled_by_hub())

    def _repeat(self, incoming: IncomingCall) -> None:
        # A running call replies by itself when it has ended.
        if incoming.reply:
            self._replies.send(incoming, incoming.reply)

    async def _run(self, incoming: IncomingCall, call: Call) -> None:
        incoming.begun, incoming.began = True, asyncio.get_running_loop().time()
        _log.debug("%s.%s is called", incoming.skill, incoming.method)

        async def progress(value: Json) -> None:
            # A report of its own says that it runs; the one by time is then not needed.
            _disarm(incoming)
            try:
                await self._link.send(incoming.message(self._replies.progress(incoming, value)))
            except (Disconnected, PydanticSerializationError) as error:
                _log.debug("progress of %s.%s was not sent: %s", incoming.skill, incoming.method, error)

        try:
            sealed = self._replies.result(incoming, await self._limited(incoming, call, progress))
        except CallError as error:
            sealed = self._replies.failure(incoming, error)
        except StillRunning:
            _log.warning("%s.%s was asked to stop and still runs", incoming.skill, incoming.method)
            _disarm(incoming)
            self._seen.finish(incoming, b"")
            return
        except PydanticSerializationError:
            not_json = CallError(
                ErrorCode.SKILL_ERROR, f"{incoming.skill}.{incoming.method} gave what is not JSON"
            )
            sealed = self._replies.failure(incoming, not_json)
        except asyncio.CancelledError:
            if not incoming.cancelled:
                raise
            sealed = self._replies.failure(incoming, _cancelled_by_hub())
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever a skill raises is its failure
            _log.exception("%s.%s failed", incoming.skill, incoming.method)
            text = str(problem) or f"{incoming.skill}.{incoming.method} failed"
            failed = CallError(ErrorCode.SKILL_ERROR, text, exception=type(problem).__name__)
            sealed = self._replies.failure(incoming, failed)
        _disarm(incoming)
        self._seen.finish(incoming, sealed)
        await self._replies.deliver(incoming, sealed)

    async def _limited(self, incoming: IncomingCall, call: Call, progress: ProgressSink) -> Json:
        limit = self._remaining(incoming, call)
        try:
            async with asyncio.timeout(limit) as scope:
                return await self._executor(call, incoming.skill, incoming.method, progress)
        except TimeoutError:
            if not scope.expired():
                raise
            message = f"{incoming.skill}.{incoming.method} did not end before the call's deadline"
            raise CallError(ErrorCode.TIMEOUT, message) from None

    def _remaining(self, incoming: IncomingCall, call: Call) -> float:
        """Seconds that the call has left, never more than it was given."""
        ttl = call.ttl_ms / 1000
        return min(ttl, incoming.issued_at + ttl + self._settings.skew_s - self._clock.now())

    def _fail(self, incoming: IncomingCall, error: CallError) -> None:
        """End a call that has not begun."""
        _disarm(incoming)
        sealed = self._replies.failure(incoming, error)
        self._seen.finish(incoming, sealed)
        self._replies.send(incoming, sealed)


def _cancelled_by_hub() -> CallError:
    return CallError(ErrorCode.CANCELLED, "the call was cancelled")


def _disarm(incoming: IncomingCall) -> None:
    if incoming.timer is not None:
        incoming.timer.cancel()
        incoming.timer = None
