"""Devices that ask to join by code: ``/api/devices/join``, ``strawberry devices approve`` and their page."""

from chat.operations import ADMIN, Resource
from contracts.answers.devices import ApprovedAnswer, Waiting
from hub_registry.access.bearer import Bearer
from hub_registry.access.joining import Joining

joining: Resource[Joining, Bearer] = Resource("joining", "/api/devices/join")


@joining.get(ADMIN)
async def list_waiting(joining: Joining, asking: Bearer) -> list[Waiting]:
    """List the devices that wait for approval."""
    return joining.waiting()


@joining.post(ADMIN, "/{code}/approve")
async def approve(
    joining: Joining, asking: Bearer, code: str, fingerprint: str, name: str | None = None
) -> ApprovedAnswer:
    """Approve a device.

    Args:
        fingerprint: The one that the person compared; 409 where the code is of another device.
        name: What it shall be called, if not as it would like.
    """
    approved = await joining.approve(code, owner=asking.user.id, name=name, fingerprint=fingerprint)
    device = approved.device
    return ApprovedAnswer(
        id=device.id, key=device.key, name=device.display_name, fingerprint=approved.fingerprint
    )


@joining.delete(ADMIN, "/{code}")
async def refuse(joining: Joining, asking: Bearer, code: str) -> None:
    """Refuse a device; its code is void."""
    joining.refuse(code, by=asking.user.id)
