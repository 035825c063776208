"""Announcement of the hub in the local network (DNS-SD over multicast DNS); spokes check its key.

It is a convenience: where multicast does not work, one line is logged, and nothing else changes.
"""

import asyncio
import logging
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from zeroconf import Error, InterfaceChoice
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from contracts import addresses
from hub_server import limits
from identity.certificates import own_names, primary_address

_log = logging.getLogger(__name__)

_SHOWN: Final = 8
"""Characters of the hub's id that distinguish two homes in one network."""


@dataclass(frozen=True)
class Advertisement:
    """What is announced.

    Attributes:
        host: Where it listens; a wildcard address is announced as the addresses of this machine.
        key: Fingerprint of the hub's key.
        path: Base path of the API.
    """

    hub_id: str
    key: str
    host: str
    port: int
    tls: bool
    path: str = ""


async def advertise(advertisement: Advertisement) -> None:
    """Announce the hub until cancelled, then withdraw the announcement."""
    try:
        network = AsyncZeroconf(interfaces=_interfaces(advertisement.host))
    except (OSError, Error) as error:
        _warn(error)
        return
    try:
        announced = await network.async_register_service(_info(advertisement), allow_name_change=True)
        await announced
        _log.info("announced in the local network as %s", addresses.DNS_SD_SERVICE)
        await asyncio.Event().wait()
    except (OSError, Error, TimeoutError) as error:
        _warn(error)
    finally:
        await asyncio.shield(_leave(network))


async def _leave(network: AsyncZeroconf) -> None:
    try:
        async with asyncio.timeout(limits.ADVERTISING_STOP_S):
            await network.async_unregister_all_services()
            await network.async_close()
    except (OSError, Error, TimeoutError) as error:
        _log.debug("the announcement could not be taken back: %s", error)


def _warn(error: Exception) -> None:
    _log.warning(
        "the hub cannot be announced in the local network, so it is joined by its address: %s",
        error or type(error).__name__,
    )


def _info(advertisement: Advertisement) -> AsyncServiceInfo:
    return AsyncServiceInfo(
        addresses.DNS_SD_SERVICE,
        f"Strawberry {advertisement.hub_id[:_SHOWN]}.{addresses.DNS_SD_SERVICE}",
        port=advertisement.port,
        parsed_addresses=_addresses(advertisement.host),
        properties={
            addresses.TXT_HUB_ID: advertisement.hub_id,
            addresses.TXT_KEY: advertisement.key,
            addresses.TXT_PATH: advertisement.path,
            addresses.TXT_TLS: "1" if advertisement.tls else "0",
        },
        # A name of its own: that of the machine is often announced by the system already.
        server=f"strawberry-{advertisement.hub_id[:_SHOWN]}.local.",
    )


def _addresses(host: str) -> list[str]:
    """List where it is reached, the best first: those who look take the first one."""
    if not _is_every(host):
        return [host]
    primary = primary_address()
    others = [each for each in own_names()[1] if not ip_address(each).is_loopback and each != primary]
    # A listener on all addresses of IPv4 is not reached by one of IPv6.
    usable = [each for each in others if ":" not in each or host == "::"]
    return [primary, *usable] if primary else usable


def _interfaces(host: str) -> list[str] | InterfaceChoice:
    return InterfaceChoice.All if _is_every(host) else [host]


def _is_every(host: str) -> bool:
    return ip_address(host).is_unspecified
