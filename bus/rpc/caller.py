"""The hub's side of calls.

Nothing depends on the broker's redelivery: whatever was open is published again, byte for byte, when
the hub's link or the device is back in the same epoch; the device answers a repetition with what it
remembers. Only this module concludes ``outcome_unknown``.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

from bus.link import Link, Message
from bus.rpc.composer import Composer
from bus.rpc.dispatch import Dispatch
from bus.rpc.open_call import OpenCall, Phase, offline
from bus.rpc.request import CallerSettings, CallRequest, OnProgress
from bus.rpc.reservation import Reservation
from bus.rpc.whereabouts import Whereabouts
from contracts import topics
from contracts.errors import CallError, Disconnected, ErrorCode, InvalidMessage, InvalidTopic
from contracts.rpc import Accepted, Call, Failure, Progress, Result
from contracts.wire import Json
from identity.envelope import Seal, unseal
from identity.keys import PublicKey

_logger = logging.getLogger(__name__)

_GIVEN_UP = 1_024
"""Calls given up before they were accepted, whose late ``accepted`` is answered with a cancel."""

_AMBIGUOUS = frozenset({ErrorCode.STALE_EPOCH, ErrorCode.EXPIRED})
"""Answers to a repetition that do not say whether the first delivery ran."""

_NOT_BEGUN = _AMBIGUOUS | {
    ErrorCode.BAD_ARGUMENTS,
    ErrorCode.BUSY,
    ErrorCode.NEEDS_CONFIRMATION,
    ErrorCode.REFUSED,
    ErrorCode.UNKNOWN_SKILL,
}
"""Answers to a call made anew that do not say whether the one before it ran."""


class Caller:
    """Calls skills on devices; to be entered with ``async with``.

    Args:
        seal: Of the hub.
        instance: Stable name of this hub process; results come to it.
        keys: Gives the key that is bound to a device, or None.
        on_unconfirmed: Told of each cancelled call that the device did not confirm: its outcome is
            unknown, and nobody waits for it any more.

    Attributes:
        dropped: How many messages were dropped, by kind of error.
        settings: How long it waits for what.
    """

    def __init__(
        self,
        link: Link,
        seal: Seal,
        *,
        instance: str,
        keys: Callable[[str], PublicKey | None],
        settings: CallerSettings | None = None,
        on_unconfirmed: Callable[[CallRequest], None] | None = None,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._link = link
        self._seal = seal
        self._instance = instance
        self._keys = keys
        self.settings = settings or CallerSettings()
        self._composer = Composer(seal, instance, max_payload=self.settings.max_payload)
        self._on_unconfirmed = on_unconfirmed
        self._dispatch = Dispatch(link, self._composer)
        self._whereabouts = Whereabouts()
        self._open: dict[str, OpenCall] = {}
        self._given_up: OrderedDict[str, tuple[str, Call]] = OrderedDict()
        self._undo: list[Callable[[], None]] = []
        self._unsubscribe: Callable[[], Awaitable[None]] | None = None

    async def __aenter__(self) -> Self:
        results = topics.RESULT.filter(instance=self._instance)
        self._unsubscribe = await self._link.subscribe(results, self._on_reply)
        self._undo.append(self._link.on_connected(self._publish_again))
        return self

    async def __aexit__(self, *_: object) -> None:
        for undo in self._undo:
            undo()
        for open_call in list(self._open.values()):
            self._unknown(open_call, "the hub stopped")
        if self._unsubscribe is not None:
            await self._unsubscribe()

    # What the hub's code asks for

    async def call(
        self, request: CallRequest, on_progress: OnProgress | None = None, *, silence_s: float | None = None
    ) -> Json:
        """Run a method on a device and give its result.

        Cancelling the task that waits cancels the call.

        Args:
            on_progress: Told of each progress.
            silence_s: Give up with ``timeout`` where the device gives no sign of life in this time.

        Raises:
            CallError: With the code that says why there is no result.
        """
        open_call = self._make(request, Phase.PLAIN, on_progress)
        if silence_s is not None:
            loop = asyncio.get_running_loop()
            open_call.silence = loop.call_later(silence_s, self._silent, open_call, silence_s)
        try:
            await self._dispatch.publish(open_call)
            return await self._result(open_call)
        finally:
            self._close(open_call)

    async def reserve(self, request: CallRequest) -> Reservation:
        """Have a device reserve a call without running it.

        Raises:
            CallError: If it refuses, is not there, or does not answer in time. It has not run then
                and never will.
        """
        open_call = self._make(request, Phase.RESERVING, None)
        reserved = False
        try:
            await self._dispatch.publish(open_call)
            outcome = await open_call.outcome
            if isinstance(outcome, CallError):
                raise outcome
            open_call.outcome = asyncio.get_running_loop().create_future()
            # A will that came with the acceptance, in the same turn of the loop, was for nobody yet.
            if self._whereabouts.epoch(request.device) != open_call.call.epoch:
                raise offline(request, "went away before the call began")
            reserved = True
            return Reservation(self, open_call)
        finally:
            if not reserved:
                self._give_up(open_call)

    @property
    def open_topics(self) -> list[str]:
        """The topics that replies are awaited on, one for each open call."""
        return list(self._open)

    async def start(self, open_call: OpenCall, on_progress: OnProgress | None) -> Json:
        """Start a reserved call; what `Reservation.start` does."""
        open_call.on_progress = on_progress
        try:
            if not open_call.outcome.done():
                open_call.outgoing = self._composer.control(open_call.request.device, open_call.call, "start")
                open_call.phase, open_call.sent = Phase.STARTED, 0
                await self._dispatch.publish(open_call)
            return await self._result(open_call)
        except CallError as error:
            if error.code is ErrorCode.OFFLINE:
                self._give_up(open_call)
            raise
        finally:
            self._close(open_call)

    def release(self, open_call: OpenCall) -> None:
        """Give a reserved call back; what `Reservation.release` does."""
        self._give_up(open_call)

    def device_online(self, device: str, epoch: int, connection: int) -> None:
        """Take in that a device is there, by a status that the registry has verified."""
        if not self._whereabouts.come(device, epoch, connection):
            return
        for open_call in self._calls_of(device):
            if open_call.call.epoch < epoch:
                self._epoch_ended(open_call, epoch)
            elif open_call.call.epoch == epoch:
                if open_call.may_have_run:
                    self._arm(open_call, open_call.deadline)
                self._dispatch.publish_once_more(open_call)

    def device_offline(self, device: str, epoch: int, connection: int) -> None:
        """Take in that a connection of a device has ended, by its will or its own word."""
        if not self._whereabouts.go(device, epoch, connection):
            return
        for open_call in self._calls_of(device):
            request = open_call.request
            if not open_call.may_have_run or request.read_only:
                open_call.conclude(offline(request, "went away"))
            elif request.interactive:
                back = asyncio.get_running_loop().time() + self.settings.return_s
                self._arm(open_call, min(open_call.deadline, back))

    # Opening and closing

    def _make(self, request: CallRequest, phase: Phase, on_progress: OnProgress | None) -> OpenCall:
        epoch = self._whereabouts.epoch(request.device)
        if epoch is None:
            raise offline(request, "is not connected")
        if self._keys(request.device) is None:
            raise offline(request, "has no key bound to it")
        if len(self._open) >= self.settings.max_open:
            raise CallError(ErrorCode.BUSY, "too many calls are open", hint="Try again in a moment.")
        open_call = self._composer.compose(request, epoch, request.ttl_ms, phase)
        open_call.on_progress = on_progress
        self._open[open_call.reply_topic] = open_call
        patience = open_call.deadline
        if phase is Phase.RESERVING:
            patience = min(patience, asyncio.get_running_loop().time() + self.settings.accept_s)
        self._arm(open_call, patience)
        return open_call

    def _close(self, open_call: OpenCall) -> None:
        open_call.disarm()
        self._open.pop(open_call.reply_topic, None)

    def _give_up(self, open_call: OpenCall) -> None:
        """Let go of a call that has not begun, and see to it that it never does."""
        self._close(open_call)
        self._given_up[open_call.reply_topic] = (open_call.request.device, open_call.call)
        if len(self._given_up) > _GIVEN_UP:
            self._given_up.popitem(last=False)
        if open_call.sent:
            self._dispatch.control(open_call.request.device, open_call.call, "cancel")

    # Sending

    async def _publish_again(self) -> None:
        for open_call in list(self._open.values()):
            if not open_call.sent or open_call.phase is Phase.RESERVED or open_call.outcome.done():
                continue
            if self._whereabouts.epoch(open_call.request.device) == open_call.call.epoch:
                with suppress(CallError):
                    await self._dispatch.publish(open_call)

    # Waiting

    async def _result(self, open_call: OpenCall) -> Json:
        try:
            outcome = await open_call.outcome
        except asyncio.CancelledError:
            await self._cancel(open_call)
            raise
        if isinstance(outcome, CallError):
            raise outcome
        return outcome.value if isinstance(outcome, Result) else None

    async def _cancel(self, open_call: OpenCall) -> None:
        """Cancel on the device and wait shortly for its word."""
        open_call.outcome = asyncio.get_running_loop().create_future()
        self._dispatch.control(open_call.request.device, open_call.call, "cancel")
        try:
            async with asyncio.timeout(self.settings.cancel_s):
                outcome = await open_call.outcome
        except TimeoutError:
            outcome = self._unknown(open_call, "it was cancelled without a confirmation")
        if isinstance(outcome, CallError) and outcome.code is ErrorCode.OUTCOME_UNKNOWN:
            _logger.warning("%s", outcome)
            if self._on_unconfirmed is not None:
                self._on_unconfirmed(open_call.request)

    def _arm(self, open_call: OpenCall, when: float) -> None:
        if open_call.timer is not None:
            open_call.timer.cancel()
        if when == open_call.deadline:
            when += self.settings.grace_s
        open_call.timer = asyncio.get_running_loop().call_at(when, self._expire, open_call)

    def _expire(self, open_call: OpenCall) -> None:
        request = open_call.request
        if open_call.phase is Phase.RESERVING:
            message = f"{request.device} did not accept {request.skill}.{request.method} in time"
            open_call.conclude(CallError(ErrorCode.TIMEOUT, message, device=request.device))
        elif open_call.phase is Phase.RESERVED:
            message = f"the reservation of {request.path} lapsed"
            open_call.conclude(CallError(ErrorCode.EXPIRED, message, device=request.device))
        elif request.read_only:
            self._silent(open_call, request.ttl_ms / 1000)
        else:
            self._dispatch.control(request.device, open_call.call, "cancel")
            self._unknown(open_call, "the device did not answer before the deadline")

    def _silent(self, open_call: OpenCall, seconds: float) -> None:
        self._dispatch.control(open_call.request.device, open_call.call, "cancel")
        message = f"{open_call.request.device} did not answer within {seconds:g} s"
        open_call.conclude(CallError(ErrorCode.TIMEOUT, message, device=open_call.request.device))

    # What arrives

    def _on_reply(self, message: Message) -> None:
        try:
            self._take(message)
        except InvalidMessage as error:
            self.dropped[type(error).__name__] += 1
            _logger.warning("dropped a reply on %s: %s", message.topic, error.message)

    def _take(self, message: Message) -> None:
        if message.retain:
            raise InvalidMessage("it is retained, which a reply never is")
        # The topic names device, instance and call, so a reply by another device finds nothing here.
        open_call = self._open.get(message.topic)
        given_up = self._given_up.get(message.topic) if open_call is None else None
        if open_call is not None:
            device, call = open_call.request.device, open_call.call
        elif given_up is not None:
            device, call = given_up
        else:
            raise InvalidTopic("no call of ours waits for it (it is late or was never asked for)")
        key = self._keys(device)
        if key is None:
            raise InvalidMessage(f"{device} has no key bound to it")
        reply = _parse(unseal(self._seal.hub_id, message.topic, message.payload, key))
        if reply.id != call.id:
            raise InvalidMessage("it names another call than its topic")
        stale = isinstance(reply, Failure) and reply.code is ErrorCode.STALE_EPOCH
        if reply.epoch != call.epoch and not stale:
            raise InvalidMessage("it is of another epoch than its call")
        if open_call is None:
            _logger.info("%s answered call %s too late (%s): ignored", device, call.id, reply.kind)
            if isinstance(reply, Accepted):
                self._dispatch.control(device, call, "cancel")
        elif isinstance(reply, Failure):
            self._failed(open_call, reply)
        else:
            self._proceed(open_call, reply)

    def _proceed(self, open_call: OpenCall, reply: Accepted | Progress | Result) -> None:
        if open_call.silence is not None:
            open_call.silence.cancel()
        if isinstance(reply, Accepted):
            if open_call.phase is Phase.RESERVING:
                open_call.phase = Phase.RESERVED
                self._arm(open_call, open_call.deadline)
                open_call.conclude(reply)
        elif isinstance(reply, Result):
            if not open_call.may_have_run:
                raise InvalidMessage("it is the result of a call that was not started")
            open_call.conclude(reply)
        elif reply.seq >= open_call.next_progress:
            open_call.next_progress = reply.seq + 1
            if open_call.on_progress is not None and not open_call.outcome.done():
                open_call.on_progress(reply.value)

    def _failed(self, open_call: OpenCall, failure: Failure) -> None:
        request = open_call.request
        if open_call.may_have_run and not request.read_only:
            if open_call.repeated and failure.code in _NOT_BEGUN:
                self._unknown(open_call, f"the device restarted and then said: {failure.message}")
                return
            if open_call.sent > 1 and failure.code in _AMBIGUOUS:
                self._unknown(open_call, "the device no longer knows the call")
                return
        open_call.conclude(CallError(failure.code, failure.message, hint=failure.hint, device=request.device))

    # Presence

    def _calls_of(self, device: str) -> list[OpenCall]:
        return [call for call in self._open.values() if call.request.device == device]

    def _epoch_ended(self, open_call: OpenCall, epoch: int) -> None:
        request = open_call.request
        left = open_call.deadline - asyncio.get_running_loop().time()
        if not open_call.may_have_run:
            open_call.conclude(offline(request, "restarted before the call began"))
        elif (request.read_only or request.idempotent) and not open_call.repeated and left > 0:
            self._repeat(open_call, epoch, max(1, int(left * 1000)))
        else:
            self._unknown(open_call, "the device restarted")

    def _repeat(self, open_call: OpenCall, epoch: int, ttl_ms: int) -> None:
        """Make the call anew, once, for the same device in its new epoch."""
        again = self._composer.compose(open_call.request, epoch, ttl_ms, Phase.PLAIN)
        self._open.pop(open_call.reply_topic, None)
        open_call.call, open_call.reply_topic = again.call, again.reply_topic
        open_call.outgoing, open_call.phase = again.outgoing, Phase.PLAIN
        open_call.sent, open_call.next_progress, open_call.repeated = 1, 0, True
        self._open[open_call.reply_topic] = open_call
        self._arm(open_call, open_call.deadline)
        with suppress(Disconnected):
            self._link.publish_nowait(open_call.outgoing)

    def _unknown(self, open_call: OpenCall, why: str) -> CallError:
        request = open_call.request
        error = CallError(
            ErrorCode.OUTCOME_UNKNOWN,
            f"{request.path}: outcome unknown, it may have run: {why}",
            hint="Look at the device before you try again.",
            device=request.device,
        )
        open_call.conclude(error)
        return error


def _parse(document: bytes) -> Accepted | Progress | Result | Failure:
    reply = topics.RESULT.parse(document)
    assert isinstance(reply, Accepted | Progress | Result | Failure)
    return reply
