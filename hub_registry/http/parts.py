"""What the routes of the registry share."""

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Annotated, Protocol

from pydantic import Field
from starlette.requests import Request

from chat.http.limits import WITHOUT_TOKEN
from chat.http.requests import Model, read
from hub_registry.access.bearer import Gate
from hub_registry.bus.purging import Purged
from hub_registry.settings import CENTURY_S

_DAY_S = 24 * 60 * 60

Lifetime = Annotated[int, Field(gt=0, le=365 * _DAY_S)]
LongLifetime = Annotated[int, Field(gt=0, le=CENTURY_S)]
"""Of what runs unattended."""


class Remover(Protocol):
    """Changes that the bus learns of: who is shut out, removed or renamed; the registry's service does it."""

    async def remove_device(self, device: str) -> None:
        """Remove a device for good."""
        ...

    async def revoke_device(self, device: str) -> None:
        """Shut a device out."""
        ...

    def tell_names(self, device: str) -> None:
        """Tell a device that it is called something else."""
        ...

    async def purge(self) -> Purged:
        """Empty every retained topic of ours."""
        ...


async def read_open(request: Request, kind: type[Model], gate: Gate) -> Model:
    """Return the body of a request that needs no token; see `chat.http.requests.read`.

    Raises:
        TooManyRequests: If there were too many from its address.
    """
    gate.count_open(source_of(request))
    return await read(request, kind, budget=WITHOUT_TOKEN)


def source_of(request: Request) -> str:
    """Return where a request comes from, for limiting: an address, or the network that one host has."""
    host = request.client.host if request.client else ""
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
