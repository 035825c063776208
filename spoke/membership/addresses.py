"""Addresses of a hub and its brokers, and which of them a device may send its token to."""

from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

from contracts.addresses import BROKER_PORTS, host_of, is_loopback

_PLAIN: Final = ("http", "mqtt")


def is_readable(url: str) -> bool:
    """Whether others could read on the way what is sent there: no TLS, and another machine."""
    return urlsplit(url).scheme in _PLAIN and not is_loopback(host_of(url))


def has_tls(urls: Iterable[str]) -> bool:
    """Whether one of the addresses of brokers is one with TLS."""
    return any(urlsplit(url).scheme == "mqtts" for url in urls)


def usable_brokers(
    offered: Iterable[str], *, hub: str, hosts: Collection[str] | None, readable: bool
) -> tuple[str, ...]:
    """Give those of the offered addresses that may be used, in their order.

    Loopback is where the hub is, too, and then comes first; on any other machine, somebody else's broker
    would be sent the token.

    Args:
        hub: Address of the hub.
        hosts: Only on these; None for any.
        readable: Whether the connection may be one that others can read.
    """
    beside_hub = is_loopback(host_of(hub))
    usable = [
        url
        for url in offered
        if urlsplit(url).scheme in BROKER_PORTS
        and host_of(url)
        and (hosts is None or host_of(url) in hosts)
        and (readable or not is_readable(url))
        and (beside_hub or not is_loopback(host_of(url)))
    ]
    return tuple(sorted(usable, key=lambda url: not is_loopback(host_of(url))))
