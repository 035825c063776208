"""Web push: ``/api/push``, which a browser asks for itself."""

from typing import Annotated

from pydantic import Field, StringConstraints

from chat.operations import LOOK, Resource
from contracts.answers.live import PushDevice, PushDevices
from contracts.wire import Part
from hub_live.push.push import NewSubscription, Push
from hub_registry.access.bearer import Bearer

push: Resource[Push, Bearer] = Resource("push", "/api/push")

Address = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]


class PushKeys(Part):
    """The keys of a browser, in base64url."""

    p256dh: Annotated[str, Field(max_length=100)]
    auth: Annotated[str, Field(max_length=40)]


@push.get(LOOK)
async def devices(push: Push, asking: Bearer) -> PushDevices:
    """List your phones and browsers that get notifications, with the key that another one subscribes with."""
    return PushDevices(key=await push.key(), devices=push.devices(asking.user.id))


@push.post(LOOK)
async def add(
    push: Push,
    asking: Bearer,
    endpoint: Address,
    keys: PushKeys,
    origin: Address,
    language: Annotated[str, Field(max_length=35)] = "en",
    name: Annotated[str, Field(max_length=60)] = "",
) -> PushDevice:
    """Send notifications to a browser.

    Args:
        endpoint: as its `PushSubscription` has it, as do the keys
        origin: address of this hub's pages in the browser
        language: BCP 47, of what it shows
        name: what you recognise it by
    """
    new = NewSubscription(endpoint, keys.p256dh, keys.auth, origin, language, name or "Browser")
    return await push.add(asking.user.id, new, token=asking.claims.jti)


@push.delete(LOOK, "/{device}")
async def remove(push: Push, asking: Bearer, device: str) -> None:
    """Send no more notifications to a browser."""
    await push.remove(asking.user.id, device)
