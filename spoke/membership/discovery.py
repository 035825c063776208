"""Discovery of hubs on the local network (zeroconf). Its results are suggestions and prove nothing.

Only ``strawberry spoke join`` without an address loads this module and its library.
"""

from dataclasses import dataclass

from zeroconf import InterfaceChoice, IPVersion
from zeroconf.asyncio import AsyncServiceInfo

from bus.announcements import look_for
from contracts import addresses
from contracts.errors import ConfigError
from spoke import limits


@dataclass(frozen=True, order=True)
class Suggestion:
    """An announced hub. Nothing of it is verified.

    Attributes:
        name: Announced name.
        url: Announced address.
        hub_id: Announced id.
        key: Announced fingerprint of its key; empty if there is none.
    """

    name: str
    url: str
    hub_id: str
    key: str


async def look_around(
    *, listen_s: float = limits.DISCOVERY_S, interfaces: list[str] | InterfaceChoice = InterfaceChoice.All
) -> list[Suggestion]:
    """Listen for hubs on the network.

    Args:
        listen_s: Seconds to listen.
        interfaces: Addresses of the interfaces to use.

    Returns:
        Each hub once, sorted by name.

    Raises:
        ConfigError: If the network cannot be used.
    """
    try:
        infos = await look_for(
            addresses.DNS_SD_SERVICE, listen_s=listen_s, most=limits.MAX_SUGGESTIONS, interfaces=interfaces
        )
    except OSError as error:
        raise ConfigError(
            f"cannot look for hubs on the network: {error.strerror or error}", hint="Add the hub's address."
        ) from None
    return sorted({found for info in infos if (found := _suggestion(info)) is not None})


def _suggestion(info: AsyncServiceInfo) -> Suggestion | None:
    """Read an announcement; return None if it has no address."""
    # A certificate is for the machine's addresses, too, and not every system looks up `.local` names.
    found = info.parsed_addresses(IPVersion.V4Only) or [
        f"[{address}]" for address in info.parsed_addresses(IPVersion.V6Only) if "%" not in address
    ]
    if not found or not info.port:
        return None
    told = info.decoded_properties
    scheme = "https" if told.get(addresses.TXT_TLS) == "1" else "http"
    path = _text(told.get(addresses.TXT_PATH)).strip("/")
    return Suggestion(
        name=_text(info.name.removesuffix(f".{addresses.DNS_SD_SERVICE}")),
        url=f"{scheme}://{found[0]}:{info.port}" + (f"/{path}" if path else ""),
        hub_id=_text(told.get(addresses.TXT_HUB_ID)),
        key=_text(told.get(addresses.TXT_KEY)),
    )


def _text(told: str | None) -> str:
    # It is shown on a terminal: nothing in it may move the cursor.
    return "".join(letter for letter in told or "" if letter.isprintable())
