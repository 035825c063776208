"""Limits of one client of the embedded broker, and the log of what is refused."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_REMEMBERED = 1_000
"""Kinds of refusals that are remembered as logged; beyond them a kind may be logged more often."""


@dataclass(frozen=True)
class Limits:
    """Bounds of the embedded broker; beyond them a message or a connection is refused.

    Attributes:
        packet_bytes: Length of one packet; a registration of 50 methods has about 100 KiB.
        connect_bytes: Length of the first packet, before the login: a token of 4 KiB and a will.
        connect_timeout_s: Seconds a client has for its first packet.
        connections: Sockets at once; twice the thousand spokes that the hub is measured with.
        strangers: Sockets at once that have not logged in yet: half of a thousand spokes that all come back.
        messages_per_s: Sustained rate of messages of one principal that is not the hub: about a quarter of
            what one core forwards.
        burst_s: Seconds of that rate, in messages and bytes, that may come at once after a rest.
        bytes_per_s: Sustained rate of payload bytes of one principal.
        retained_topics: Retained topics of one principal: 100 skills and 900 states.
        retained_bytes: Payload bytes of those together.
        subscriptions: Filters of one connection; a spoke has six.
        outgoing_bytes: Bytes that may wait for a client that does not read. It is disconnected rather than
            left without a message, because its will then tells everybody.
        hub_outgoing_bytes: The same for the hub, to which everything comes at once when all spokes register.
    """

    packet_bytes: int = _MIB
    connect_bytes: int = 128 * 1024
    connect_timeout_s: float = 10.0
    connections: int = 2_000
    strangers: int = 500
    messages_per_s: float = 5_000.0
    bytes_per_s: float = 8.0 * _MIB
    burst_s: float = 4.0
    retained_topics: int = 1_000
    retained_bytes: int = 8 * _MIB
    subscriptions: int = 200
    outgoing_bytes: int = 8 * _MIB
    hub_outgoing_bytes: int = 128 * _MIB


class Refusals:
    """Logs what is refused, each kind of refusal of each client at most once in a while."""

    def __init__(self, *, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def report(self, who: str, reason: str, what: str = "", *, every_s: float | None = None) -> None:
        """Log a refusal, or count it where the same was logged just now.

        Args:
            who: Name of the client, or its address.
            reason: Why; one of a few fixed texts.
            what: The topic or filter concerned.
            every_s: How long it is not told again, where that is not the usual time.
        """
        now = self._clock()
        due, unsaid = self._told.get((who, reason), (now, 0))
        if now < due:
            self._told[who, reason] = (due, unsaid + 1)
            return
        if len(self._told) >= _REMEMBERED:
            self._told = {key: value for key, value in self._told.items() if now < value[0]}
        while len(self._told) >= _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[who, reason] = (now + (self._every_s if every_s is None else every_s), 0)
        more = f" ({unsaid} more since)" if unsaid else ""
        _log.warning("refused %s: %s%s%s", who, reason, f": {what[:200]!r}" if what else "", more)
