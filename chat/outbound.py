"""Requests to servers that are not of this home: to the very address that was checked."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from chat import limits
from contracts.addresses import DEFAULT_PORTS, bracketed
from contracts.errors import LinkError
from identity.certificates import client_context

if TYPE_CHECKING:
    import httpx

_NAT64: Final = ip_network("64:ff9b::/96")
_INWARD: Final = tuple(map(ip_network, ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "fec0::/10")))
"""IPv6 networks that Python counts as global and that may lead inward: old forms of IPv4, local NAT64."""


class PrivateAddress(LinkError):
    """The host is in a private network, or is this machine."""


@asynccontextmanager
async def answered(
    method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, allow_private: bool = False
) -> "AsyncIterator[httpx.Response]":
    """Send a request; yield the answer, whose content is read by the caller. No redirect is followed.

    Args:
        allow_private: Whether the host may be in a private network.

    Raises:
        PrivateAddress: If it is and may not be.
        LinkError: If the host is not known, has no good certificate, or cannot be reached; its message is
            the rest of a sentence that begins with the host.
        httpx.HTTPError: If the answer is none, or takes too long.
    """
    import httpx  # 80 ms that a hub without such requests never needs

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
    addresses = await _addresses(host, port, allow_private=allow_private)
    # Without a client: it would log the URL, and ask proxies that look names up for themselves.
    async with httpx.AsyncHTTPTransport(verify=_tls(), trust_env=False) as transport:
        for address in addresses:
            # A second look-up of the name might give another address.
            request = httpx.Request(
                method,
                parts._replace(netloc=f"{bracketed(address)}:{port}").geturl(),
                headers={**headers, "host": parts.netloc},
                content=body,
                extensions={"sni_hostname": host, "timeout": {"connect": limits.CONNECT_S}},
            )
            try:
                response = await transport.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if "CERTIFICATE" in str(error):
                    raise LinkError("has a certificate that is not trusted here") from None
                continue
            try:
                yield response
            finally:
                await response.aclose()
            return
    raise LinkError("cannot be reached" if addresses else "has no address")


async def _addresses(host: str, port: int, *, allow_private: bool) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    except (OSError, UnicodeError):
        raise LinkError("is not known") from None
    addresses = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    if not allow_private and not all(map(is_public, addresses)):
        raise PrivateAddress("{host} is in a private network", host=host)
    return [str(address) for address in addresses[: limits.ADDRESSES_TRIED]]


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is one of the public Internet, also inside of one that wraps it."""
    if isinstance(address, IPv6Address):
        if any(address in network for network in _INWARD):
            return False
        if address in _NAT64:
            return is_public(IPv4Address(address.packed[-4:]))
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if inner:
            return is_public(inner)
    return address.is_global and not address.is_multicast


@cache
def _tls() -> ssl.SSLContext:
    return client_context(None)
