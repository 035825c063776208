"""Services that announce themselves in the local network (DNS-SD). Nothing of an announcement is verified.

Only what looks for something loads this module and its library.
"""

import asyncio

from zeroconf import Error, InterfaceChoice, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

_ANSWER_MS = 2_000
"""Limit for one service to answer with its address."""


async def look_for(
    service: str, *, listen_s: float, most: int, interfaces: list[str] | InterfaceChoice = InterfaceChoice.All
) -> list[AsyncServiceInfo]:
    """Listen for the services of a kind.

    Args:
        most: Upper bound, because anything in the network can announce one.
        interfaces: Addresses of the interfaces to use.

    Raises:
        OSError: If the network cannot be used.
    """
    heard: dict[str, AsyncServiceInfo] = {}

    def hear(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            heard.pop(name, None)
        elif len(heard) < most:
            try:
                heard[name] = AsyncServiceInfo(service, name)
            except Error:
                return  # a name that no service can have

    async with AsyncZeroconf(interfaces=interfaces) as network:
        async with AsyncServiceBrowser(network.zeroconf, service, handlers=[hear]):
            await asyncio.sleep(listen_s)
        infos = list(heard.values())
        await asyncio.gather(*(info.async_request(network.zeroconf, _ANSWER_MS) for info in infos))
    return infos
