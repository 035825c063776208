"""First contact with a Home Assistant: found in the local network, and tried with a token."""

from zeroconf import InterfaceChoice, IPVersion
from zeroconf.asyncio import AsyncServiceInfo

from bus.announcements import look_for
from contracts.addresses import bracketed
from contracts.answers.system import FoundHomeAssistant, HomeAssistantTrial
from contracts.errors import LinkError
from hub_agent.settings import HomeAssistantAccess
from hub_home_assistant import limits
from hub_home_assistant.inward.connection import open_connection
from hub_home_assistant.inward.entities import clean
from hub_home_assistant.inward.registry import read_registries

_SERVICE = "_home-assistant._tcp.local."


async def try_access(access: HomeAssistantAccess) -> HomeAssistantTrial:
    """Log in, and count the entities.

    Raises:
        LinkError: If it is not there, or refuses the token.
    """
    async with open_connection(access) as connection:
        ids = {each["entity_id"] for each in await connection.ask("get_states")}
        exposed = (await read_registries(connection)).exposed
        shown = len(ids if exposed is None else ids & exposed)
        return HomeAssistantTrial(version=connection.version, entities=len(ids), exposed=shown)


async def look_around(
    *, interfaces: list[str] | InterfaceChoice = InterfaceChoice.All, within_s: float = limits.DISCOVERY_S
) -> list[FoundHomeAssistant]:
    """Listen for Home Assistants in the local network, and return them by name.

    Raises:
        LinkError: If the network cannot be used.
    """
    try:
        infos = await look_for(_SERVICE, listen_s=within_s, most=limits.MAX_ANNOUNCED, interfaces=interfaces)
    except OSError as error:
        raise LinkError(
            "cannot look for Home Assistant in the network: {reason}", reason=str(error)
        ) from None
    found = {each.url: each for info in infos if (each := _found(info)) is not None}
    return sorted(found.values(), key=lambda each: (each.name, each.url))


def _found(info: AsyncServiceInfo) -> FoundHomeAssistant | None:
    addresses = info.parsed_addresses(IPVersion.V4Only) or info.parsed_addresses(IPVersion.V6Only)
    if not addresses or not info.port:
        return None
    told = info.decoded_properties
    scheme = "https" if (told.get("internal_url") or "").startswith("https://") else "http"
    return FoundHomeAssistant(
        name=clean(told.get("location_name")) or "Home Assistant",
        url=f"{scheme}://{bracketed(addresses[0])}:{info.port}",
        version=clean(told.get("version")),
    )
