"""Limits of the clients of the embedded broker, who of them get in, and the log of what is refused."""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from broker.embedded.authentication import VerifiedLogin
from broker.embedded.peer import Peer
from contracts.access import Principal
from contracts.addresses import is_loopback
from contracts.rates import TokenBucket

_log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_UNBOUNDED = 1e12
_REMEMBERED = 1_000
"""Kinds of refusals that are remembered as logged; beyond them a kind may be logged more often."""


@dataclass(frozen=True)
class BrokerLimits:
    """Bounds of the embedded broker; beyond them a message or a connection is refused.

    Attributes:
        packet_bytes: Length of one packet; a registration of 50 methods has about 100 KiB.
        connect_bytes: Length of the first packet, before the login: a token of 4 KiB and a will.
        connect_timeout_s: Seconds a client has for its first packet.
        connections: Clients logged in at once; twice the thousand spokes that the hub is measured with.
        reserved: How many of these only devices get, each of which has one.
        principal_connections: Clients of one login or user at once; each is a program with its own client id.
        address_connections: Clients of all logins and users at one address of another machine. Programs on
            this machine share one address, and have no such bound.
        strangers: Sockets at once that have not logged in yet: half of a thousand spokes that all come back.
        messages_per_s: Sustained rate of messages of one principal that is not the hub: about a quarter of
            what one core forwards.
        packets_per_s: Sustained rate of packets of any kind of one principal that is not the hub, and of
            retained messages that it subscribes to; one that sends more is read more slowly.
        turn: Packets of one connection that are handled before the others have their turn: a millisecond.
        burst_s: Seconds of that rate, in messages and bytes, that may come at once after a rest.
        bytes_per_s: Sustained rate of bytes of one principal, topics and payloads.
        read_bytes_per_s: Sustained rate at which bytes of one principal that is not the hub are read. A
            quarter of them may come at once: what others send to the same receiver waits behind them.
        retained_topics: Retained topics of one principal: 100 skills and 900 states.
        retained_bytes: Bytes of those together, topics and payloads.
        subscriptions: Filters of one connection that is not the hub's; a spoke has six.
        filter_bytes: Bytes of those together.
        outgoing_bytes: Bytes that may wait for a client that does not read. It is disconnected rather than
            left without a message, because its will then tells everybody. Clients of one principal share
            them, down to one packet and a half for each.
        hub_outgoing_bytes: The same for the hub, to which everything comes at once when all spokes register.
    """

    packet_bytes: int = _MIB
    connect_bytes: int = 128 * 1024
    connect_timeout_s: float = 5.0
    connections: int = 2_000
    reserved: int = 1_000
    principal_connections: int = 50
    address_connections: int = 200
    strangers: int = 500
    messages_per_s: float = 5_000.0
    packets_per_s: float = 40_000.0
    turn: int = 100
    bytes_per_s: float = 8.0 * _MIB
    burst_s: float = 4.0
    read_bytes_per_s: float = 4.0 * _MIB
    retained_topics: int = 1_000
    retained_bytes: int = 8 * _MIB
    subscriptions: int = 200
    filter_bytes: int = 64 * 1024
    outgoing_bytes: int = 8 * _MIB
    hub_outgoing_bytes: int = 128 * _MIB

    def exceeded_by(self, filters: Collection[str]) -> bool:
        return len(filters) > self.subscriptions or sum(map(len, filters)) > self.filter_bytes


class Strangers:
    """The connections that have not logged in yet: at most a number of them, of which the oldest makes room.

    Args:
        most: How many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._hosts: dict[str, OrderedDict[Peer, None]] = {}

    def add(self, peer: Peer) -> Peer | None:
        """Add one that has just come; return the one that has to leave for it, if there are too many.

        It is the oldest of the address that has most of them, so that one machine only crowds out itself.
        """
        self._hosts.setdefault(peer.host, OrderedDict())[peer] = None
        self._count += 1
        if self._count <= self._most:
            return None
        crowd = max(self._hosts.values(), key=lambda peers: len(peers))
        oldest = next(iter(crowd))
        self.discard(oldest)
        return oldest

    def discard(self, peer: Peer) -> None:
        """Forget one that has logged in or left."""
        peers = self._hosts.get(peer.host, OrderedDict())
        if peer in peers:
            del peers[peer]
            self._count -= 1
            if not peers:
                del self._hosts[peer.host]


class Allowance:
    """What one principal may send, and what its connections share; it is kept when they are gone.

    Attributes:
        messages: Messages that it may still publish at present.
        volume: Bytes that it may still publish at present.
        packets: Packets that are still handled at once.
        bytes: Bytes that are still read at once.
        turn: Packets that are handled before others have their turn.
        connections: How many it has.
        outgoing_bytes: Bytes that may wait for each of them.
    """

    def __init__(self, limits: BrokerLimits, principal: Principal) -> None:
        self.messages = _bucket(limits.messages_per_s, limits.burst_s)
        self.volume = _bucket(limits.bytes_per_s, limits.burst_s)
        is_hub = principal.kind == "hub"
        self.turn = limits.turn
        self.packets = _bucket(_UNBOUNDED if is_hub else limits.packets_per_s, burst_s=1)
        self.bytes = _bucket(_UNBOUNDED if is_hub else limits.read_bytes_per_s, burst_s=0.25)
        self.connections = 0
        self._shared = limits.hub_outgoing_bytes if is_hub else limits.outgoing_bytes
        self._least = min(self._shared, limits.packet_bytes * 3 // 2)
        self.outgoing_bytes = self._shared

    def count(self, change: int) -> None:
        """Note that a connection came (1) or left (-1)."""
        self.connections += change
        self.outgoing_bytes = max(self._shared // max(self.connections, 1), self._least)


class Admission:
    """Who is logged in, by number, and whether there is room for one more."""

    def __init__(self, limits: BrokerLimits) -> None:
        self._limits = limits
        self._allowances: dict[str, Allowance] = {}
        self._devices = 0
        self._others: Counter[str] = Counter()

    def refusal(self, login: VerifiedLogin, host: str) -> str | None:
        """Return why there is no room for a client, if there is none; for the hub there always is."""
        limits, kind = self._limits, login.principal.kind
        others = self._others.total()
        if kind == "hub":
            return None
        if self._devices + others >= limits.connections:
            return "there are too many connections"
        if kind == "device":
            return None
        if others >= limits.connections - limits.reserved:
            return "there are too many connections that are not of devices"
        if self._others[host] >= limits.address_connections and not is_loopback(host):
            return "its address has too many connections"
        if self.allowance(login).connections >= limits.principal_connections:
            return "it has too many connections"
        return None

    def allowance(self, login: VerifiedLogin) -> Allowance:
        """Return the allowance of a principal; coming again does not renew it."""
        found = self._allowances.get(login.name)
        if found is None:
            found = self._allowances[login.name] = Allowance(self._limits, login.principal)
        return found

    def count(self, login: VerifiedLogin, host: str, change: int) -> None:
        """Note that a client logged in (1) or left (-1)."""
        self.allowance(login).count(change)
        if login.principal.kind == "device":
            self._devices += change
        elif login.principal.kind != "hub":
            self._others[host] += change
            if not self._others[host]:
                del self._others[host]


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


def _bucket(per_second: float, burst_s: float) -> TokenBucket:
    # What was not used in the last ``burst_s`` seconds may be used at once.
    return TokenBucket(burst=per_second * burst_s, per_second=per_second)
