"""Where a broker is, and how to log in to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from pydantic import SecretStr

from bus.link.drivers import DriverName
from contracts.addresses import broker_endpoint
from contracts.errors import ConfigError

Password = SecretStr | Callable[[], SecretStr]
Trust = str | Callable[[], str | None] | None


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Where the broker is and how to log in.

    Attributes:
        urls: ``mqtt://host:port`` or, with TLS, ``mqtts://host:port``; the port is 1883 or 8883 if none is
            given. They are tried in this order, and each failure, a refused login too, goes to the next.
        password: A callable is asked before each attempt, so that a renewed token counts.
        ca: PEM of the authorities that the broker's certificate must come from; None takes those of the
            system. A callable is asked before each attempt, so that a replaced one counts. The certificate
            must be for the host of the URL in any case.
        topic_prefix: In front of every topic on this broker, as ``strawberry/``; may be empty.
        keepalive: Seconds; the broker publishes the Last Will after one and a half of them.
        max_in_flight: Publications that may wait for the broker's acknowledgement.
        backoff_s: Wait before the second attempt; doubles up to ``backoff_max_s``, and half of it
            is left to chance, so that many spokes do not come back in the same moment.
        refused_s: Longest wait after the login was refused everywhere. The first ones are short: a broker
            that asks the hub refuses while that starts again.
        qos: Of subscriptions, and of what is not retained, at most this. A NATS cluster keeps each message of
            QoS 1 on several nodes first, and refuses that while they have no leader.
        driver: ``auto``, unless a test wants one.
    """

    urls: tuple[str, ...]
    client_id: str
    username: str | None = None
    password: Password | None = None
    ca: Trust = None
    topic_prefix: str = ""
    keepalive: int = 15
    max_in_flight: int = 256
    connect_timeout_s: float = 5.0
    backoff_s: float = 0.25
    backoff_max_s: float = 15.0
    refused_s: float = 30.0
    qos: int = 1
    driver: DriverName = "auto"


class Address(NamedTuple):
    """One URL of a broker, taken apart."""

    url: str
    scheme: str
    host: str
    port: int


def spread(urls: tuple[str, ...], client_id: str) -> tuple[str, ...]:
    """Return the nodes of a cluster in the order in which this client tries them.

    Were all at the first node, its loss would cut off all of them until the others have elected a leader.
    """
    first = crc32(client_id.encode()) % max(1, len(urls))
    return urls[first:] + urls[:first]


def parse_addresses(urls: tuple[str, ...]) -> tuple[Address, ...]:
    """Parse the URLs of a broker.

    Raises:
        ConfigError: If there is none, or one is not the address of a broker.
    """
    if isinstance(urls, str) or not urls:
        raise ConfigError("no address of a broker is known", hint="Give one, as mqtt://host:1883.")
    return tuple(Address(url, *broker_endpoint(url)) for url in urls)
