"""Hubs that say in the network where they are: only suggestions, of which none is believed."""

import asyncio
from dataclasses import dataclass
from typing import Final

from zeroconf import IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from contracts.discovery import SERVICE
from contracts.errors import ConfigError

_LISTEN_S: Final = 3.0
"""Hubs answer within a second; a busy wireless network drops a question now and then."""
_RESOLVE_MS: Final = 2_000


@dataclass(frozen=True)
class Suggestion:
    """A hub as it announces itself.

    Attributes:
        key: Fingerprint that its key is said to have.
    """

    name: str
    url: str
    key: str


async def look_around() -> list[Suggestion]:
    """Listen a few seconds for hubs in the network.

    Raises:
        ConfigError: If the network cannot be listened to.
    """
    names: set[str] = set()

    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            names.discard(name)
        else:
            names.add(name)

    try:
        async with AsyncZeroconf(ip_version=IPVersion.V4Only) as network:
            async with AsyncServiceBrowser(network.zeroconf, SERVICE, handlers=[changed]):
                await asyncio.sleep(_LISTEN_S)
            infos = [AsyncServiceInfo(SERVICE, name) for name in sorted(names)]
            for info in infos:
                await info.async_request(network.zeroconf, _RESOLVE_MS)
    except OSError as error:
        raise ConfigError(
            f"cannot look for hubs in the network: {error.strerror or error}", hint="Give the hub's address."
        ) from None
    return [found for info in infos if (found := _suggestion(info)) is not None]


def _suggestion(info: AsyncServiceInfo) -> Suggestion | None:
    addresses, told = info.parsed_addresses(IPVersion.V4Only), info.decoded_properties
    if not addresses or not info.port:
        return None
    scheme = "https" if told.get("tls") in ("1", "true", "yes") else "http"
    path = (told.get("path") or "").rstrip("/")
    name = info.name.removesuffix(f".{SERVICE}")
    return Suggestion(name, f"{scheme}://{addresses[0]}:{info.port}{path}", told.get("key") or "")
