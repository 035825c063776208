"""Addresses of a hub and its brokers, and which of them may receive the device token."""

from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

from contracts.addresses import BROKER_PORTS, host_of, is_loopback

_PLAIN: Final = ("http", "mqtt")


def is_readable(url: str) -> bool:
    """Return whether a connection there is unencrypted and leaves this machine."""
    return urlsplit(url).scheme in _PLAIN and not is_loopback(host_of(url))


def has_tls(urls: Iterable[str]) -> bool:
    return any(urlsplit(url).scheme == "mqtts" for url in urls)


def usable_brokers(
    offered: Iterable[str], *, hub: str, hosts: Collection[str] | None, vouched: bool, readable: bool
) -> tuple[str, ...]:
    """Return the offered addresses that are safe to use, in their order.

    A loopback address counts only if the hub is on this machine, and then comes first; otherwise a foreign
    broker on this machine would receive the token.

    Args:
        hub: Address of the hub.
        hosts: The only hosts allowed; None for any.
        vouched: Whether other hosts are allowed with TLS.
        readable: Whether unencrypted connections are allowed.
    """
    beside_hub = is_loopback(host_of(hub))
    usable = [
        url
        for url in offered
        if urlsplit(url).scheme in BROKER_PORTS
        and host_of(url)
        and (hosts is None or host_of(url) in hosts or (vouched and has_tls([url])))
        and (readable or not is_readable(url))
        and (beside_hub or not is_loopback(host_of(url)))
    ]
    return tuple(sorted(usable, key=lambda url: not is_loopback(host_of(url))))
