"""A call that has no outcome yet, as the hub knows it: its phase, and what moves it on."""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from bus.link import Message
from bus.rpc.request import CallRequest, OnProgress
from contracts.devices.rpc import Accepted, Call, Failure, Progress, Result
from contracts.errors import CallError, ErrorCode, InvalidMessage
from contracts.phrases import Phrase

Outcome = Accepted | Result | CallError

_AMBIGUOUS: Final = frozenset({ErrorCode.STALE_EPOCH, ErrorCode.EXPIRED})
"""Answers to a repetition that do not tell whether the first delivery ran."""

_NOT_BEGUN: Final = _AMBIGUOUS | {
    ErrorCode.BAD_ARGUMENTS,
    ErrorCode.BUSY,
    ErrorCode.NEEDS_CONFIRMATION,
    ErrorCode.REFUSED,
    ErrorCode.UNKNOWN_SKILL,
}
"""Answers to a call made again in a new epoch that do not tell whether the one before it ran."""


class Phase(Enum):
    """How far an open call has come, as the hub knows it."""

    PLAIN = auto()
    """Sent to be run at once: it may have run."""
    RESERVING = auto()
    """Sent to be accepted: it has not run."""
    RESERVED = auto()
    """Accepted: it has not run."""
    STARTED = auto()
    """``start`` was sent: it may have run."""


@dataclass(slots=True, eq=False)
class OpenCall:
    """One open call, and every transition of its state; ``docs/protocol.md`` draws them as a table.

    The methods decide and do nothing else: what they return tells `Caller` what to send and how long to
    wait. The first outcome counts.

    Attributes:
        reply_topic: The one topic that its replies may come on.
        outgoing: What is published again, byte for byte, when hub or device is back.
        outcome: The next decisive event.
        deadline: By the event loop's clock.
        timer: Ends the wait for that event.
        silence: Ends a wait without any sign of life, where there is such a limit.
        sent: How often `outgoing` was published.
        repeated: Whether it was made again for a later epoch.
        is_cancelled: Whether no caller waits for it any more, and it is only to be ended on the device.
        ran_ms: How long it ran, as the device says; None where it does not.
    """

    request: CallRequest
    call: Call
    reply_topic: str
    outgoing: Message
    phase: Phase
    outcome: asyncio.Future[Outcome]
    deadline: float
    on_progress: OnProgress | None = None
    timer: asyncio.TimerHandle | None = None
    silence: asyncio.TimerHandle | None = None
    sent: int = 0
    next_progress: int = 0
    repeated: bool = False
    is_cancelled: bool = False
    ran_ms: int | None = None

    @property
    def may_have_run(self) -> bool:
        return self.phase in (Phase.PLAIN, Phase.STARTED)

    # What the hub does

    def await_next(self) -> None:
        # The outcome so far was not final.
        self.outcome = self.outcome.get_loop().create_future()

    def started(self, outgoing: Message) -> None:
        # From here on it never goes to another device.
        self.phase, self.outgoing, self.sent = Phase.STARTED, outgoing, 0

    def cancelled(self, outgoing: Message) -> None:
        """Wait only for the device's word about the cancel, which from here on is all that is sent."""
        self.await_next()
        self.outgoing, self.is_cancelled = outgoing, True

    def made_again(self, again: "OpenCall") -> None:
        """Become the call that was made again for the device's new epoch; happens once."""
        self.call, self.reply_topic, self.outgoing = again.call, again.reply_topic, again.outgoing
        self.phase, self.sent, self.next_progress, self.repeated = Phase.PLAIN, 0, 0, True

    # What the device says

    def accepted(self, reply: Accepted) -> bool:
        """Note that the device holds the call; return whether that was waited for."""
        if self.phase is not Phase.RESERVING:
            return False
        self.phase = Phase.RESERVED
        self.conclude(reply)
        return True

    def progressed(self, reply: Progress) -> None:
        """Pass a report on, unless it is an old one."""
        if reply.seq < self.next_progress:
            return
        self.next_progress = reply.seq + 1
        if self.on_progress is not None and not self.outcome.done():
            self.on_progress(reply.value)

    def returned(self, reply: Result) -> None:
        """Conclude with a result.

        Raises:
            InvalidMessage: If the call was never started.
        """
        if not self.may_have_run:
            raise InvalidMessage("it is the result of a call that was not started")
        self.conclude(reply)

    def failed(self, failure: Failure) -> None:
        """Conclude with a failure, or with ``outcome_unknown`` where it answers only a repetition."""
        if self.may_have_run and not self.request.read_only:
            if self.repeated and failure.code in _NOT_BEGUN:
                self.unknown(f"the device restarted and then answered: {failure.message}")
                return
            if self.sent > 1 and failure.code in _AMBIGUOUS:
                self.unknown("the device no longer knows the call")
                return
        self._end(failure.code, failure.message, hint=failure.hint, exception=failure.exception)

    # What happens to the device

    def device_left(self) -> bool:
        """Note that the device has gone; return whether to give it only a short time to come back."""
        if not self.may_have_run or self.request.read_only:
            self.conclude(offline(self.request, "went away"))
            return False
        return self.request.interactive

    def device_restarted(self) -> bool:
        """Note a later epoch; return whether to make the call again for it."""
        request = self.request
        if not self.may_have_run:
            self.conclude(offline(request, "restarted before the call began"))
        elif (
            (request.read_only or request.idempotent)
            and not (self.repeated or self.is_cancelled)
            and self.left_s > 0
        ):
            return True
        else:
            self.unknown("the device restarted")
        return False

    # What does not happen in time

    @property
    def left_s(self) -> float:
        return self.deadline - self.outcome.get_loop().time()

    def timed_out(self) -> bool:
        """End the wait; return whether the device is to be told, because it may still run the call."""
        request = self.request
        match self.phase:
            case Phase.RESERVING:
                what = f"{request.name} did not accept {request.skill}.{request.method} in time"
                self._end(ErrorCode.TIMEOUT, what)
                return False
            case Phase.RESERVED:
                self._end(ErrorCode.EXPIRED, f"the reservation of {request.path} lapsed")
                return False
        if request.read_only:
            self.silent(request.ttl_ms / 1000)
        else:
            self.unknown("the device did not answer before the deadline")
        return True

    def silent(self, seconds: float) -> None:
        """End a read-only call whose device gave no sign of life."""
        self._end(
            ErrorCode.TIMEOUT,
            Phrase("{device} did not answer within {seconds:g} s", device=self.request.name, seconds=seconds),
        )

    # Outcomes

    def unknown(self, why: str) -> CallError:
        """Conclude that the call may or may not have run."""
        error = CallError(
            ErrorCode.OUTCOME_UNKNOWN,
            f"{self.request.path}: outcome unknown, it may have run: {why}",
            hint="Look at the device before you try again.",
            device=self.request.device,
        )
        self.conclude(error)
        return error

    def conclude(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def disarm(self) -> None:
        """Stop its clocks."""
        for handle in (self.timer, self.silence):
            if handle is not None:
                handle.cancel()
        self.timer = self.silence = None

    def _end(self, code: ErrorCode, message: str, *, hint: str = "", exception: str = "") -> None:
        device = self.request.device
        self.conclude(CallError(code, message, hint=hint, device=device, exception=exception))


def offline(request: CallRequest, what: str) -> CallError:
    """Return the error of a device that cannot be reached, so that nothing has run."""
    return CallError(
        ErrorCode.OFFLINE,
        "{name} {what}",
        name=request.name,
        what=what,
        hint="Check that the device is on and that its spoke runs.",
        device=request.device,
    )
