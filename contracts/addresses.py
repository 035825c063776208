"""Addresses of hubs and brokers: the default port of each scheme, and which hosts are this machine."""

from collections.abc import Container
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from contracts.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"

BROKER_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
"""Default ports of MQTT, without TLS and with it."""
HTTP_PORT: Final = 8321
"""Default port of a hub, for this machine only."""
HTTPS_PORT: Final = 8443
"""Default port of a hub, for other machines."""

DEFAULT_PORTS: Final = {**BROKER_PORTS, "http": 80, "https": 443, "ws": 80, "wss": 443}
"""The port that an address without one means, by its scheme."""


class Endpoint(NamedTuple):
    """Scheme, host and port of an address; two ways to write one are equal."""

    scheme: str
    host: str
    port: int

    @property
    def secure(self) -> bool:
        return self.scheme in ("mqtts", "https", "wss")


def endpoint(url: str) -> Endpoint | None:
    """Return scheme, host in lower case, and port; None if there is no host or the scheme is foreign."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)
        # As every look-up does, which raises no OSError for a name like "a..b".
        (host or "").encode("idna")
    except ValueError:
        return None
    return Endpoint(parts.scheme, host, port) if host and port and parts.scheme in DEFAULT_PORTS else None


def broker_endpoint(url: str, *, schemes: Container[str] = BROKER_PORTS) -> Endpoint:
    """Return scheme, host and port of the address of a broker.

    Raises:
        ConfigError: If it is none, or has a path or a login in it, which is not shown.
    """
    found = endpoint(url)
    if found is None or found.scheme not in schemes or "@" in url or urlsplit(url).path.strip("/"):
        shown = f"{url.partition('://')[0]}://…" if "@" in url else url
        raise ConfigError(
            "{text!r} is not the address of a broker",
            text=shown,
            hint="Write it as mqtt://host:1883, or with TLS as mqtts://host:8883; without a login.",
        )
    return found


def host_of(url: str) -> str:
    """Return the host of an address in lower case; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def source_of_host(host: str) -> str:
    """Return where a connection comes from, for limiting: an address, or the network that one host has."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:  # of IPv4, on a listener for both
            return str(address.ipv4_mapped)
        # A single host has a whole /64 to choose its addresses from.
        return str(ip_network((address, 64), strict=False))
    return host


def is_loopback(host: str | None) -> bool:
    """Return whether a host name or IP address means this very machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def reachable(host: str) -> str:
    # What listens on all addresses is reached on loopback.
    return LOOPBACK if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# Announcement of a hub on the local network (DNS-SD, RFC 6763). Nothing of it is signed: a device that finds
# a hub by it checks the key as with any other address.
DNS_SD_SERVICE: Final = "_strawberry._tcp.local."
TXT_HUB_ID: Final = "id"
TXT_KEY: Final = "key"
"""Fingerprint of the hub's key."""
TXT_PATH: Final = "path"
"""Base path of its HTTP API; empty for the root."""
TXT_TLS: Final = "tls"
"""``1`` for https, ``0`` for http."""
