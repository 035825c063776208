"""One call as the hub's code asks for it, how long it waits for what, and the time that calls go by."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from contracts.devices.rpc import Actor
from contracts.wire import Json

OnProgress = Callable[[Json], None]
"""Called with what a running method reports; None means that it runs and has nothing to report."""

SKEW_S = 5.0
"""How far the clocks of hub and spoke may differ without a call being refused as late."""

MAX_PAYLOAD = 1_000_000
"""Bytes of a call or a result: with topic and header it fits into a broker's packet of 1 MiB."""


_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""On Linux and macOS `time.monotonic` stands still while the machine is suspended: a call that came before
would not be late afterwards. That of Windows goes on."""


class EpochClock:
    """Seconds since 1970 by this machine's clock, monotonic within one start of the program."""

    def __init__(self) -> None:
        self._zero = time.time() - self._passed()

    def now(self) -> float:
        return self._zero + self._passed()

    def _passed(self) -> float:
        return time.monotonic() if _COUNTS_SLEEP is None else time.clock_gettime(_COUNTS_SLEEP)


@dataclass(frozen=True, kw_only=True)
class CallRequest:
    """One skill call.

    Attributes:
        device: Id of the device.
        ttl_ms: The whole life of the call; at most 15 minutes.
        confirmed: A person has confirmed exactly this call.
        read_only: As the method declares; such a call may run again or elsewhere.
        idempotent: As the method declares; such a call may run again on the same device.
        interactive: A person waits; a device that vanishes gets ten seconds to come back.
        names: What devices are called, by id: one that joined again has another id than name.
    """

    device: str
    skill: str
    method: str
    actor: Actor
    args: Sequence[Json] = ()
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    ttl_ms: int = 30_000
    confirmed: bool = False
    read_only: bool = False
    idempotent: bool = False
    interactive: bool = True
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.names.get(self.device, self.device)

    @property
    def path(self) -> str:
        return f"{self.name}.{self.skill}.{self.method}"


@dataclass(frozen=True, kw_only=True)
class CallerSettings:
    """How long the hub waits for what.

    Attributes:
        accept_s: For ``accepted`` of a reserving call.
        silence_s: For any sign of life of a read-only call that any of several devices may serve.
        next_s: For either, where there is another device to ask: those of a node that is lost count as
            there until they are back.
        cancel_s: For the confirmation of a cancel.
        return_s: For a device to come back when a person waits.
        grace_s: Beyond a call's own deadline, for the device's word about it.
        max_open: Calls that may be open at once.
    """

    accept_s: float = 2.0
    silence_s: float = 2.0
    next_s: float = 1.0
    cancel_s: float = 1.0
    return_s: float = 10.0
    grace_s: float = SKEW_S
    max_open: int = 10_000
    max_payload: int = MAX_PAYLOAD
