"""Hubs that announce themselves in the local network (zeroconf): suggestions, which nobody need believe.

Only looking for a hub needs this module, and the library with it; a spoke that runs does not load it.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from zeroconf import Error, InterfaceChoice, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from contracts import discovery
from contracts.errors import ConfigError

_LISTEN_S: Final = 3.0
"""Hubs answer within a second; a busy wireless network drops a question now and then."""

_ANSWER_MS: Final = 2_000
"""How long one hub may take to say where it is, after it was heard of."""

_MAX_SUGGESTIONS: Final = 64
"""More hubs than this in one network are somebody's joke."""


@dataclass(frozen=True, order=True)
class Suggestion:
    """A hub that says it is there. None of it is proven.

    Attributes:
        name: What it calls itself.
        url: Where it says that it is.
        hub_id: Its id.
        key: Fingerprint of its key, to be compared; empty where it names none.
    """

    name: str
    url: str
    hub_id: str
    key: str


async def look_around(
    *, listen_s: float = _LISTEN_S, interfaces: list[str] | InterfaceChoice = InterfaceChoice.All
) -> list[Suggestion]:
    """Listen for hubs in the network.

    Args:
        listen_s: How long.
        interfaces: On which; by their addresses.

    Returns:
        Each hub once, by name.

    Raises:
        ConfigError: If the network cannot be listened to.
    """
    heard: dict[str, None] = {}

    def hear(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            heard.pop(name, None)
        elif len(heard) < _MAX_SUGGESTIONS:
            heard[name] = None

    try:
        async with AsyncZeroconf(interfaces=interfaces) as network:
            async with AsyncServiceBrowser(network.zeroconf, discovery.SERVICE, handlers=[hear]):
                await asyncio.sleep(listen_s)
            infos = [info for name in heard if (info := _named(name)) is not None]
            await asyncio.gather(*(info.async_request(network.zeroconf, _ANSWER_MS) for info in infos))
    except OSError as error:
        raise ConfigError(
            f"cannot look for hubs in the network: {error.strerror or error}", hint="Give the hub's address."
        ) from None
    return sorted({found for info in infos if (found := _suggestion(info)) is not None})


def _named(name: str) -> AsyncServiceInfo | None:
    """Give what is to be asked about a name; None for one that no hub can have."""
    try:
        return AsyncServiceInfo(discovery.SERVICE, name)
    except Error:
        return None


def _suggestion(info: AsyncServiceInfo) -> Suggestion | None:
    """Read what a hub says; None where it says no address."""
    # A certificate is for the machine's addresses, too, and not every system looks up `.local` names.
    addresses = info.parsed_addresses(IPVersion.V4Only) or [
        f"[{address}]" for address in info.parsed_addresses(IPVersion.V6Only) if "%" not in address
    ]
    if not addresses or not info.port:
        return None
    told = info.decoded_properties
    scheme = "https" if told.get(discovery.TLS) == "1" else "http"
    path = _text(told.get(discovery.PATH)).strip("/")
    return Suggestion(
        name=_text(info.name.removesuffix(f".{discovery.SERVICE}")),
        url=f"{scheme}://{addresses[0]}:{info.port}" + (f"/{path}" if path else ""),
        hub_id=_text(told.get(discovery.HUB_ID)),
        key=_text(told.get(discovery.KEY)),
    )


def _text(told: str | None) -> str:
    # It is shown on a terminal: nothing in it may move the cursor.
    return "".join(letter for letter in told or "" if letter.isprintable())
