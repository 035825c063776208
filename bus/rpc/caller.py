"""The hub's side of calls.

Nothing depends on the broker's redelivery: whatever is open is published again, byte for byte, when the hub's
link or the device is back in the same epoch; the device answers a repetition with what it remembers. Only the
hub concludes ``outcome_unknown``. The states of a call are in `OpenCall`; here is what is sent, and when.
"""

import asyncio
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from typing import Self

from bus.limits import MOST_GIVEN_UP
from bus.link import Link, Message
from bus.rpc.open_call import OpenCall, Phase, offline
from bus.rpc.request import CallerSettings, CallRequest, OnProgress
from bus.rpc.sending import CallSender
from contracts import topics
from contracts.devices.rpc import Accepted, Call, Failure, Progress, Reply, Result
from contracts.errors import CallError, ErrorCode, InvalidMessage, InvalidTopic
from contracts.rates import complaint_limit
from contracts.tracing.correlation import correlated
from contracts.tracing.trace import Span, span
from contracts.wire import Json
from identity.envelope import Seal, unseal
from identity.keys import PublicKey

_log = logging.getLogger(__name__)


class Caller:
    """Calls skills on devices; to be entered with ``async with``.

    Args:
        seal: Of the hub.
        instance: Stable name of this hub process; results come to it.
        keys: Gives the key that is bound to a device, or None.
        on_unconfirmed: Called with each cancelled call that the device did not confirm: its outcome is
            unknown, and no task waits for it any more.

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
        self.settings = settings or CallerSettings()
        self._link = link
        self._hub_id = seal.hub_id
        self._instance = instance
        self._keys = keys
        self._on_unconfirmed = on_unconfirmed
        self._sender = CallSender(link, seal, instance, max_payload=self.settings.max_payload)
        self._presence = _Presence()
        self._complaints = complaint_limit()
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
            open_call.unknown("the hub stopped")
        if self._unsubscribe is not None:
            await self._unsubscribe()

    # Calls

    async def call(
        self, request: CallRequest, on_progress: OnProgress | None = None, *, silence_s: float | None = None
    ) -> Json:
        """Run a method on a device and return its result.

        Cancelling the task that waits cancels the call.

        Args:
            on_progress: Called with each progress.
            silence_s: Give up with ``timeout`` if the device gives no sign of life in this time.

        Raises:
            CallError: With the code that says why there is no result.
        """
        with _span(request, "call") as at:
            open_call = self._make(request, Phase.PLAIN, on_progress)
            if silence_s is not None:
                loop = asyncio.get_running_loop()
                open_call.silence = loop.call_later(silence_s, self._silent, open_call, silence_s)
            try:
                with correlated(call=open_call.reply_topic.rpartition("/")[2]):
                    _log.debug("%s is called", request.path)
                    return await self._result(open_call)
            finally:
                self._close(open_call)
                at.note(ran_ms=open_call.ran_ms)

    async def reserve(self, request: CallRequest, *, accept_s: float | None = None) -> OpenCall:
        """Ask a device to reserve a call without running it; to be started or released.

        Args:
            accept_s: How long it may take to accept; None for that of the settings.

        Raises:
            CallError: If it refuses, is not there, or does not answer in time. It has not run then
                and never will.
        """
        with _span(request, "reserve"):
            within_s = self.settings.accept_s if accept_s is None else accept_s
            open_call, is_reserved = self._make(request, Phase.RESERVING, None, within_s), False
            try:
                await self._sender.publish(open_call)
                outcome = await open_call.outcome
                if isinstance(outcome, CallError):
                    raise outcome
                open_call.await_next()
                # A will that came with the acceptance, in the same turn of the loop, found no call that
                # waits.
                if self._presence.epoch(request.device) != open_call.call.epoch:
                    raise offline(request, "went away before the call began")
                is_reserved = True
                return open_call
            finally:
                if not is_reserved:
                    self.release(open_call)

    async def start(self, open_call: OpenCall, on_progress: OnProgress | None = None) -> Json:
        """Run a reserved call and return its result; from here on it never goes to another device.

        Raises:
            CallError: With the code that says why there is no result.
        """
        open_call.on_progress = on_progress
        with _span(open_call.request, "start") as at:
            try:
                if not open_call.outcome.done():
                    open_call.started(self._sender.start(open_call))
                return await self._result(open_call)
            except CallError as error:
                if error.code is ErrorCode.OFFLINE:
                    self.release(open_call)
                raise
            finally:
                self._close(open_call)
                at.note(ran_ms=open_call.ran_ms)

    def release(self, open_call: OpenCall) -> None:
        """Cancel a call that has not begun, and make sure that it never begins."""
        self._close(open_call)
        # Its arguments may have a megabyte, and are not needed any more.
        bare = open_call.call.model_copy(update={"args": [], "kwargs": {}})
        self._given_up[open_call.reply_topic] = (open_call.request.device, bare)
        if len(self._given_up) > MOST_GIVEN_UP:
            self._given_up.popitem(last=False)
        if open_call.sent:
            self._sender.cancel(open_call.request.device, open_call.call)

    # Presence

    def device_online(self, device: str, epoch: int, connection: int) -> None:
        """Note that a device is there, by a status that the registry has verified."""
        if not self._presence.online(device, epoch, connection):
            return
        for open_call in self._calls_of(device):
            if open_call.call.epoch < epoch:
                if open_call.device_restarted():
                    self._make_again(open_call, epoch)
            elif open_call.call.epoch == epoch:
                if open_call.may_have_run:
                    self._arm(open_call, open_call.deadline)
                self._sender.publish_again(open_call)

    def device_offline(self, device: str, epoch: int, connection: int) -> None:
        """Note that a connection of a device has ended, by its will or its own word."""
        if not self._presence.offline(device, epoch, connection):
            return
        for open_call in self._calls_of(device):
            if open_call.device_left():
                back = asyncio.get_running_loop().time() + self.settings.return_s
                self._arm(open_call, min(open_call.deadline, back))

    def _calls_of(self, device: str) -> list[OpenCall]:
        return [call for call in self._open.values() if call.request.device == device]

    def open_request(self, device: str, call: str) -> CallRequest | None:
        """Return the request of an open call on a device by its id; None where it has ended."""
        topic = topics.RESULT.build(device=device, instance=self._instance, call=call)
        found = self._open.get(topic)
        return found.request if found is not None and found.may_have_run else None

    # Opening and closing

    def _make(
        self, request: CallRequest, phase: Phase, on_progress: OnProgress | None, within_s: float = math.inf
    ) -> OpenCall:
        epoch = self._presence.epoch(request.device)
        if epoch is None:
            raise offline(request, "is not connected")
        if self._keys(request.device) is None:
            raise offline(request, "has no key bound to it")
        if len(self._open) >= self.settings.max_open:
            raise CallError(ErrorCode.BUSY, "too many calls are open", hint="Try again in a moment.")
        open_call = self._sender.compose(request, epoch, request.ttl_ms, phase)
        open_call.on_progress = on_progress
        self._open[open_call.reply_topic] = open_call
        self._arm(open_call, min(open_call.deadline, asyncio.get_running_loop().time() + within_s))
        return open_call

    def _make_again(self, open_call: OpenCall, epoch: int) -> None:
        left_ms = max(1, int(open_call.left_s * 1000))
        again = self._sender.compose(open_call.request, epoch, left_ms, Phase.PLAIN)
        self._open.pop(open_call.reply_topic, None)
        open_call.made_again(again)
        self._open[open_call.reply_topic] = open_call
        self._arm(open_call, open_call.deadline)
        self._sender.publish_again(open_call)

    def _close(self, open_call: OpenCall) -> None:
        open_call.disarm()
        self._open.pop(open_call.reply_topic, None)

    async def _publish_again(self) -> None:
        for open_call in list(self._open.values()):
            # While the one before it waited for room, it may have ended.
            is_open = self._open.get(open_call.reply_topic) is open_call
            if not is_open or open_call.outcome.done():
                continue
            if self._presence.epoch(open_call.request.device) == open_call.call.epoch:
                with suppress(CallError):
                    await self._sender.publish(open_call)

    # Waiting

    async def _result(self, open_call: OpenCall) -> Json:
        try:
            if not open_call.outcome.done():
                await self._sender.publish(open_call)
            outcome = await open_call.outcome
        except asyncio.CancelledError:
            # While it waited for room it may have been published again; a reservation is to be given up.
            if open_call.sent or open_call.phase is Phase.STARTED:
                await self._cancel(open_call)
            raise
        if isinstance(outcome, CallError):
            raise outcome
        return outcome.value if isinstance(outcome, Result) else None

    async def _cancel(self, open_call: OpenCall) -> None:
        """Cancel on the device and wait shortly for its confirmation."""
        has_begun = open_call.sent > 0
        open_call.cancelled(self._sender.cancel(open_call.request.device, open_call.call))
        if not has_begun:
            # What the device holds, if anything, is a reservation that was never started.
            return
        try:
            async with asyncio.timeout(self.settings.cancel_s):
                outcome = await open_call.outcome
        except TimeoutError:
            outcome = open_call.unknown("it was cancelled without a confirmation")
        if isinstance(outcome, CallError) and outcome.code is ErrorCode.OUTCOME_UNKNOWN:
            _log.warning("%s", outcome)
            if self._on_unconfirmed is not None:
                self._on_unconfirmed(open_call.request)

    def _arm(self, open_call: OpenCall, when: float) -> None:
        if open_call.timer is not None:
            open_call.timer.cancel()
        if when == open_call.deadline:
            when += self.settings.grace_s
        open_call.timer = asyncio.get_running_loop().call_at(when, self._time_out, open_call)

    def _time_out(self, open_call: OpenCall) -> None:
        if open_call.timed_out():
            self._sender.cancel(open_call.request.device, open_call.call)

    def _silent(self, open_call: OpenCall, seconds: float) -> None:
        open_call.silent(seconds)
        self._sender.cancel(open_call.request.device, open_call.call)

    # What arrives

    def _on_reply(self, message: Message) -> None:
        try:
            self._take(message)
        except InvalidMessage as error:
            self.dropped[type(error).__name__] += 1
            if self._may_complain(message):
                _log.warning("dropped a reply on %.200r: %.500s", message.topic, error.message)

    def _may_complain(self, message: Message) -> bool:
        device = message.topic.split("/")[1]
        # All strangers share one place, or they could fill the memory with names.
        return self._complaints.take(device if self._keys(device) else "")

    def _take(self, message: Message) -> None:
        if message.retain:
            raise InvalidMessage("it is retained, which a reply never is")
        # The topic names device, instance and call, so a reply by another device finds nothing here.
        open_call = self._open.get(message.topic)
        if open_call is not None:
            self._proceed(open_call, self._opened(message, open_call.request.device, open_call.call))
            return
        given_up = self._given_up.get(message.topic)
        if given_up is None:
            raise InvalidTopic("no call of ours waits for it (it is late or was never asked for)")
        reply = self._opened(message, *given_up)
        if self._may_complain(message):
            _log.info("%s answered call %s too late (%s): ignored", given_up[0], reply.id, reply.kind)
        if isinstance(reply, Accepted):
            self._sender.cancel(*given_up)

    def _opened(self, message: Message, device: str, call: Call) -> Reply:
        """Check a reply to a call of ours, and parse it."""
        key = self._keys(device)
        if key is None:
            raise InvalidMessage(f"{device} has no key bound to it")
        reply = topics.RESULT.parse(unseal(self._hub_id, message.topic, message.payload, key))
        if reply.id != call.id:
            raise InvalidMessage("it names another call than its topic")
        stale = isinstance(reply, Failure) and reply.code is ErrorCode.STALE_EPOCH
        if reply.epoch != call.epoch and not stale:
            raise InvalidMessage("it is of another epoch than its call")
        return reply

    def _proceed(self, open_call: OpenCall, reply: Reply) -> None:
        if open_call.silence is not None:
            open_call.silence.cancel()
        match reply:
            case Accepted():
                if open_call.accepted(reply):
                    self._arm(open_call, open_call.deadline)
            case Progress():
                open_call.progressed(reply)
            case Result():
                open_call.ran_ms = reply.ran_ms
                open_call.returned(reply)
            case Failure():
                open_call.ran_ms = reply.ran_ms
                open_call.failed(reply)


def _span(request: CallRequest, step: str) -> AbstractContextManager[Span]:
    return span("bus", f"{request.skill}.{request.method} {step}", device=request.device)


class _Presence:
    """The latest connection of every device, as the registry has reported it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, bool]] = {}

    def epoch(self, device: str) -> int | None:
        """Return the epoch of a device that is there; None for one that is not."""
        epoch, _, is_online = self._seen.get(device, (0, 0, False))
        return epoch if is_online else None

    def online(self, device: str, epoch: int, connection: int) -> bool:
        """Note that a device is there; return whether that is news.

        A connection that counted as offline because it was not confirmed may turn out to be there after
        all. For one that has taken its leave the registry accepts no such status.
        """
        *latest, is_online = self._seen.get(device, (0, 0, False))
        if [epoch, connection] < latest or ([epoch, connection] == latest and is_online):
            return False
        self._seen[device] = (epoch, connection, True)
        return True

    def offline(self, device: str, epoch: int, connection: int) -> bool:
        """Note that a connection has ended; return whether it was the latest one."""
        if (epoch, connection) < self._seen.get(device, (0, 0, False))[:2]:
            return False
        self._seen[device] = (epoch, connection, False)
        return True
