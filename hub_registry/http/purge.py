"""Emptying all that was ever published and kept."""

from fastapi import APIRouter, Depends

from hub_registry.access.bearer import Gate
from hub_registry.http.parts import Body, Remover


class PurgeAnswer(Body):
    """What became of the retained topics.

    Attributes:
        emptied: How many there were that are empty now.
        left: Those that could not be emptied.
        connected: Ids of devices that are still there, and publish again.
    """

    emptied: int
    left: list[str]
    connected: list[str]


def add(router: APIRouter, gate: Gate, remover: Remover) -> None:
    """Add the route."""

    @router.post("/api/purge", dependencies=[Depends(gate.require_admin)])
    async def purge() -> PurgeAnswer:
        purged = await remover.purge()
        return PurgeAnswer(emptied=purged.emptied, left=list(purged.left), connected=list(purged.connected))
