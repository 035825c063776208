"""Discovery of Wyoming servers on the local network (zeroconf), where the settings ask for it.

Anything on the network can announce itself; a server that is found hears the speech of the home, or
makes what its loudspeaker plays. So only addresses of this machine and of private networks count, and an
address in the settings is better.
"""

import asyncio
from ipaddress import ip_address
from typing import Final, Literal

from wyoming.info import Describe, Info
from zeroconf import Error, InterfaceChoice, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from contracts.errors import InvalidMessage, SpeechError
from voice import limits
from voice.wyoming.connection import Address, connected, read_as

DNS_SD_SERVICE: Final = "_wyoming._tcp.local."

Domain = Literal["asr", "tts"]
"""Speech to text, or text to speech."""


async def discover(
    domain: Domain,
    *,
    listen_s: float = limits.DISCOVERY_S,
    interfaces: list[str] | InterfaceChoice = InterfaceChoice.All,
) -> Address:
    """Return the first server found that offers a service.

    Raises:
        SpeechError: If there is none.
    """
    names: asyncio.Queue[str] = asyncio.Queue(limits.MOST_ANNOUNCEMENTS)

    def hear(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Added and not names.full():
            names.put_nowait(name)

    try:
        async with (
            asyncio.timeout(listen_s),
            AsyncZeroconf(interfaces=interfaces) as network,
            AsyncServiceBrowser(network.zeroconf, DNS_SD_SERVICE, handlers=[hear]),
        ):
            while True:
                for address in await _addresses(network, await names.get()):
                    if await offers(address, domain):
                        return address
    except TimeoutError:
        purpose = "speech to text" if domain == "asr" else "text to speech"
        raise SpeechError(
            f"no Wyoming server for {purpose} was found in this network",
            hint="Start one, or set its address in [voice].",
        ) from None
    except OSError as error:
        raise SpeechError(f"cannot look for Wyoming servers: {error.strerror or error}") from None


async def offers(address: Address, domain: Domain) -> bool:
    """Return whether a server says that it has a service ready."""
    try:
        async with asyncio.timeout(limits.DISCOVERY_ANSWER_S), connected(address) as server:
            await server.send(Describe())
            while (event := await server.read()) is not None:
                if Info.is_type(event.type):
                    info = read_as(Info, event)
                    return any(
                        program.installed for program in (*(info.asr if domain == "asr" else info.tts),)
                    )
    except (OSError, InvalidMessage):
        pass
    return False


async def _addresses(network: AsyncZeroconf, name: str) -> list[Address]:
    try:
        info = AsyncServiceInfo(DNS_SD_SERVICE, name)
    except Error:
        return []
    await info.async_request(network.zeroconf, limits.DISCOVERY_ANSWER_S * 1_000)
    found = info.parsed_addresses(IPVersion.V4Only)
    return [Address(host, info.port) for host in found if info.port and ip_address(host).is_private]
