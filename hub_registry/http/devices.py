"""Devices: adding, inviting, changing, shutting out, removing."""

import shlex
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request

from contracts.addresses import host_of, is_loopback
from contracts.wire import Timestamp, rfc3339
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.devices.devices import Change
from hub_registry.devices.directory import Entry
from hub_registry.http.parts import Body, Lifetime, Remover
from hub_registry.registry import Registry

_RUN: Final = ("strawberry", "spoke", "run")


class DeviceBody(Body):
    """A device to be added; ``lifetime_s`` is how long its enrolment token is good."""

    name: str
    aliases: list[str] = []
    area: str | None = None
    floor: str | None = None
    lifetime_s: Lifetime | None = None


class ChangeBody(Body):
    """What shall be different about a device; what is left out stays."""

    name: str | None = None
    aliases: list[str] | None = None
    area: str | None = None
    floor: str | None = None


class DeviceAnswer(Body):
    """A device as its owner sees it.

    Attributes:
        awaited: Skills that the device says it has, and that have not come or were refused.
    """

    id: str
    key: str
    name: str
    aliases: tuple[str, ...]
    area: str | None
    floor: str | None
    owner: str
    state: str
    last_seen: Timestamp | None
    skills: list[str]
    awaited: list[str]
    problems: list[dict[str, str]]


class InvitationBody(Body):
    """How long a new invitation is good; ten minutes where nothing is said."""

    lifetime_s: Lifetime | None = None


class InvitationAnswer(Body):
    """An added device, with the token and the command that let it join.

    Attributes:
        reachable: Whether the address in the command is one for other machines, too.
    """

    id: str
    key: str
    token: str
    expires_at: Timestamp
    hub_key: str
    command: str
    reachable: bool


def add(router: APIRouter, registry: Registry, gate: Gate, remover: Remover) -> None:
    """Add the routes."""
    admin = Depends(gate.require_admin)

    def find(name: str) -> Entry:
        entry = registry.directory.get(name)
        # An id comes first: it is what programs use, and no other device can have it as its key.
        return entry or registry.directory.resolve(name)

    @router.get("/api/devices", dependencies=[admin])
    async def list_devices() -> list[DeviceAnswer]:
        return [_device(entry) for entry in registry.directory.entries()]

    @router.post("/api/devices")
    async def add_device(
        body: DeviceBody, request: Request, bearer: Annotated[Bearer, admin]
    ) -> InvitationAnswer:
        device = await registry.add_device(
            body.name, owner=bearer.user.id, aliases=body.aliases, area=body.area, floor=body.floor
        )
        return await _invitation(device.id, body.lifetime_s, request)

    @router.post("/api/devices/{name}/invitations", dependencies=[admin])
    async def invite(name: str, request: Request, body: InvitationBody | None = None) -> InvitationAnswer:
        return await _invitation(find(name).id, body.lifetime_s if body else None, request)

    async def _invitation(device: str, lifetime_s: int | None, request: Request) -> InvitationAnswer:
        invitation = await registry.invite(device, lifetime_s=lifetime_s)
        url, key = _address(request, registry.settings.url), registry.key.kid
        return InvitationAnswer(
            id=device,
            key=find(device).key,
            token=invitation.token,
            expires_at=invitation.expires_at,
            hub_key=key,
            command=shlex.join([*_RUN, "--hub", url, "--hub-key", key, *_spelled_out(url)]),
            reachable=not is_loopback(host_of(url)),
        )

    @router.patch("/api/devices/{name}", dependencies=[admin])
    async def change_device(name: str, body: ChangeBody) -> DeviceAnswer:
        entry = find(name)
        await registry.change_device(
            entry.id,
            Change(display_name=body.name, aliases=body.aliases, area=body.area, floor=body.floor),
        )
        return _device(entry)

    @router.post("/api/devices/{name}/revoke", dependencies=[admin])
    async def revoke_device(name: str) -> DeviceAnswer:
        entry = find(name)
        await remover.revoke_device(entry.id)
        return _device(entry)

    @router.delete("/api/devices/{name}", dependencies=[admin])
    async def remove_device(name: str) -> dict[str, str]:
        entry = find(name)
        await remover.remove_device(entry.id)
        return {"id": entry.id, "name": entry.device.display_name, "state": "removed"}


def _address(request: Request, for_others: str | None) -> str:
    """Give where a device finds the hub: where the request came in, unless only this machine does there."""
    if for_others is not None and is_loopback(request.url.hostname):
        return for_others
    return str(request.base_url).rstrip("/")


def _spelled_out(url: str) -> list[str]:
    """Without TLS a device refuses to join over the network, unless it is told to."""
    return ["--insecure"] if url.startswith("http://") and not is_loopback(host_of(url)) else []


def _device(entry: Entry) -> DeviceAnswer:
    device = entry.device
    waiting = "revoked" if device.revoked else "invited" if device.public_key is None else None
    return DeviceAnswer(
        id=device.id,
        key=device.key,
        name=device.display_name,
        aliases=device.aliases,
        area=device.area,
        floor=device.floor,
        owner=device.owner,
        state=waiting or ("online" if entry.connected else "offline"),
        last_seen=entry.last_heartbeat,
        skills=sorted(entry.skills),
        awaited=sorted(set(entry.listed or ()) - set(entry.skills)),
        problems=[{"at": rfc3339(problem.at), "message": problem.message} for problem in entry.problems],
    )
