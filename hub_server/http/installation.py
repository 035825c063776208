"""Integrations of a device, for its owner and admins: ``/api/devices/{device}/installation``."""

from typing import Annotated, Final

from pydantic import Field, ValidationError

from agent_core.search.directory import RegisteredSkill
from chat.operations import Needs, Resource
from contracts.answers.skills import InstallationAnswer
from contracts.devices.registration import Method, MethodFlags, Registration
from contracts.devices.rpc import Actor
from contracts.errors import InvalidMessage
from contracts.names import INSTALLATION_SKILL
from contracts.wire import Json
from hub_agent.calls.audit import Origin
from hub_agent.calls.direct import DirectCalls
from hub_registry.access.bearer import Bearer
from hub_registry.http.devices import require_owner

installation: Resource[DirectCalls, Bearer] = Resource("installation", "/api/devices")

_OWNER: Final = Needs(("admin", "confirm"))
_READ, _CHANGE = MethodFlags(read_only=True), MethodFlags(idempotent=True)
_METHODS: Final = [
    Method(name="list_integrations", signature="list_integrations()", parameters={}, flags=_READ),
    Method(name="switch_integration", signature="switch_integration()", parameters={}, flags=_CHANGE),
]
_SKILL: Final = RegisteredSkill.of(Registration(skill=INSTALLATION_SKILL, methods=_METHODS), digest="")


@installation.get(_OWNER, "/{device}/installation")
async def show_installation(calls: DirectCalls, asking: Bearer, device: str) -> InstallationAnswer:
    """List the integrations of a device, for its owner and admins."""
    return await _call(calls, asking, device, "list_integrations")


@installation.put(_OWNER, "/{device}/installation/integrations/{name}")
async def switch_integration(
    calls: DirectCalls, asking: Bearer, device: str, name: Annotated[str, Field(max_length=64)], on: bool
) -> InstallationAnswer:
    """Turn an integration of a device on or off, for its owner and admins; its settings are kept."""
    return await _call(calls, asking, device, "switch_integration", name=name, on=on)


async def _call(
    calls: DirectCalls, asking: Bearer, device: str, method: str, **arguments: Json
) -> InstallationAnswer:
    directory = calls.registry.directory
    entry = (directory if asking.is_admin else directory.seen_by(asking.user.id)).resolve(device)
    require_owner(asking, entry)
    actor, origin = Actor(user=asking.user.id, read_only=asking.user.read_only), Origin.of(asking.claims)
    value = await calls.manager.administer(actor, entry, _SKILL, method, arguments, origin=origin)
    try:
        return InstallationAnswer.model_validate(value)
    except ValidationError:
        raise InvalidMessage("{name} sent an invalid answer", name=entry.display_name) from None
