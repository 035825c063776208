"""What the routes of the registry share."""

from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field
from starlette.requests import Request

from chat.http.limits import WITHOUT_TOKEN
from chat.http.requests import Model, read
from contracts.answers.devices import Purged
from hub_registry.access.bearer import Gate, source_of
from hub_registry.limits import CENTURY_S, DAY_S
from hub_registry.registry import Registry

Lifetime = Annotated[int, Field(gt=0, le=365 * DAY_S)]
LongLifetime = Annotated[int, Field(gt=0, le=CENTURY_S)]
"""Of what runs unattended."""


class Remover(Protocol):
    """Changes that the bus learns of: who is shut out, removed or renamed; the registry's service does it."""

    async def remove_device(self, device: str) -> None:
        """Remove a device for good."""

    async def revoke_device(self, device: str) -> None:
        """Shut a device out."""

    def tell_names(self, device: str) -> None:
        """Tell a device that it is called something else."""

    async def purge(self) -> Purged:
        """Empty every retained topic of ours."""


@dataclass(frozen=True)
class RegistryAdmin:
    """The registry, and what tells the bus of changes to it."""

    registry: Registry
    remover: Remover


async def read_open(request: Request, kind: type[Model], gate: Gate) -> Model:
    """Return the body of a request that needs no token; see `chat.http.requests.read`.

    Raises:
        TooManyRequests: If there were too many from its address.
    """
    gate.count_open(source_of(request))
    return await read(request, kind, budget=WITHOUT_TOKEN)
