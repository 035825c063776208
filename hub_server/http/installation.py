"""Integrations and installed skills of a device, for its owner and admins."""

from base64 import b64encode
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request

from agent_core.search.directory import RegisteredSkill
from chat.operations import Needs, Resource
from contracts.answers.skills import InstallationAnswer, VersionAnswer
from contracts.devices.registration import Method, MethodFlags, Registration
from contracts.devices.rpc import Actor
from contracts.errors import InvalidMessage
from contracts.names import INSTALLATION_SKILL
from contracts.wire import Json
from hub_agent.calls.audit import Origin
from hub_agent.calls.direct import DirectCalls
from hub_registry.access.bearer import Bearer
from hub_registry.http.devices import require_owner
from hub_server import limits

installation: Resource[DirectCalls, Bearer] = Resource("installation", "/api/devices")

_OWNER: Final = Needs(("admin", "confirm"))
_INSTALLS: Final = Needs(("admin", "confirm"), password=True)
_READ, _CHANGE, _CODE = (
    MethodFlags(read_only=True),
    MethodFlags(idempotent=True),
    MethodFlags(destructive=True),
)
_METHODS: Final = {
    "list_installation": (_READ, limits.INSTALLATION_MS),
    "switch_integration": (_CHANGE, limits.INSTALLATION_MS),
    "upload_skill": (_CODE, limits.INSTALLATION_MS),
    "show_version": (_READ, limits.VERSION_MS),
    "install_version": (_CODE, limits.VERSION_MS),
    "remove_skill": (_CODE, limits.INSTALLATION_MS),
}
_SKILL: Final = RegisteredSkill.of(
    Registration(
        skill=INSTALLATION_SKILL,
        methods=[
            Method(name=name, signature=f"{name}()", parameters={}, flags=flags, timeout_ms=timeout_ms)
            for name, (flags, timeout_ms) in _METHODS.items()
        ],
    ),
    digest="",
)
_Name = Annotated[str, Field(max_length=100)]
_Answer = TypeVar("_Answer", bound=BaseModel)


@installation.get(_OWNER, "/{device}/installation")
async def show_installation(calls: DirectCalls, asking: Bearer, device: str) -> InstallationAnswer:
    """List the integrations of a device, and the skills that were installed on it.

    This and what follows is for the owner of the device and admins.
    """
    return await _call(calls, asking, device, InstallationAnswer, "list_installation")


@installation.put(_OWNER, "/{device}/installation/integrations/{name}")
async def switch_integration(
    calls: DirectCalls, asking: Bearer, device: str, name: _Name, on: bool
) -> InstallationAnswer:
    """Turn an integration of a device on or off; its settings are kept."""
    return await _call(calls, asking, device, InstallationAnswer, "switch_integration", name=name, on=on)


@installation.put(_INSTALLS, "/{device}/installation/uploads/{file}")
async def upload_skill(
    calls: DirectCalls,
    asking: Bearer,
    device: str,
    file: _Name,
    request: Request,
    at: Annotated[int, Field(ge=0)] = 0,
) -> InstallationAnswer:
    """Accept the bytes of an archive from `at` on, at most 600,000 a request; `at=0` starts over.

    Nothing of it runs before `POST …/skills/{name}` with the answered `uploaded`. A device takes uploads once
    `strawberry skills uploads on` was run on it.
    """
    piece = await request.body()
    if len(piece) > limits.UPLOAD_PIECE:
        raise InvalidMessage("a piece may have {most:,} bytes", most=limits.UPLOAD_PIECE)
    given = {"file": file, "at": at, "piece": b64encode(piece).decode()}
    return await _call(calls, asking, device, InstallationAnswer, "upload_skill", **given)


@installation.get(_OWNER, "/{device}/installation/skills/{name}")
async def show_version(calls: DirectCalls, asking: Bearer, device: str, name: _Name) -> VersionAnswer:
    """Return what an upload, or the newest version of an installed skill, declares; it does not run."""
    return await _call(calls, asking, device, VersionAnswer, "show_version", name=name)


@installation.post(_INSTALLS, "/{device}/installation/skills/{name}")
async def install_version(
    calls: DirectCalls, asking: Bearer, device: str, name: _Name, digest: _Name
) -> InstallationAnswer:
    """Install the version that was shown.

    Args:
        digest: As it was shown; another version is not installed.
    """
    return await _call(calls, asking, device, InstallationAnswer, "install_version", name=name, digest=digest)


@installation.delete(_OWNER, "/{device}/installation/skills/{name}")
async def remove_skill(calls: DirectCalls, asking: Bearer, device: str, name: _Name) -> InstallationAnswer:
    """Remove an installed skill; its data and settings are kept."""
    return await _call(calls, asking, device, InstallationAnswer, "remove_skill", name=name)


async def _call(
    calls: DirectCalls, asking: Bearer, device: str, answer: type[_Answer], method: str, **arguments: Json
) -> _Answer:
    directory = calls.registry.directory
    entry = (directory if asking.is_admin else directory.seen_by(asking.user.id)).resolve(device)
    require_owner(asking, entry)
    actor, origin = Actor(user=asking.user.id, read_only=asking.user.read_only), Origin.of(asking.claims)
    value = await calls.manager.administer(actor, entry, _SKILL, method, arguments, origin=origin)
    try:
        return answer.model_validate(value)
    except ValidationError:
        raise InvalidMessage("{name} sent an invalid answer", name=entry.display_name) from None
