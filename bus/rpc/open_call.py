"""What the hub knows of a call that has no outcome yet."""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto

from bus.link import Message
from bus.rpc.request import CallRequest, OnProgress
from contracts.errors import CallError, ErrorCode
from contracts.rpc import Accepted, Call, Result

Outcome = Accepted | Result | CallError


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
    """One call that waits.

    Attributes:
        reply_topic: The one topic its replies may come on.
        outgoing: What is published again, byte for byte, when something came back.
        outcome: The next decisive thing that happens to it.
        deadline: By the event loop's clock.
        sent: How often `outgoing` went out.
        repeated: It was made anew for a later epoch.
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

    @property
    def may_have_run(self) -> bool:
        """Whether the device may have begun it."""
        return self.phase in (Phase.PLAIN, Phase.STARTED)

    def conclude(self, outcome: Outcome) -> None:
        """Tell who waits; the first outcome counts."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def disarm(self) -> None:
        """Stop its clocks."""
        for handle in (self.timer, self.silence):
            if handle is not None:
                handle.cancel()
        self.timer = self.silence = None


def offline(request: CallRequest, what: str) -> CallError:
    """Say that a device cannot be had, so that nothing has run."""
    return CallError(
        ErrorCode.OFFLINE,
        f"{request.device} {what}",
        hint="Check that the device is on and that its spoke runs.",
        device=request.device,
    )
