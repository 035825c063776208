"""The registry over HTTP: joining, devices, tokens and skills."""

import shlex
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from agent_core.skills.search import SearchAnswer
from contracts.claims import SCOPES, Scope
from contracts.errors import Forbidden, NotFound
from contracts.wire import Json, Timestamp, rfc3339
from hub_registry import targets
from hub_registry.bearer import Bearer, Gate
from hub_registry.devices import Change
from hub_registry.directory import Entry
from hub_registry.registry import Registry
from hub_registry.tokens import TokenRequest

_DAY_S = 24 * 60 * 60
_Lifetime = Annotated[int, Field(gt=0, le=365 * _DAY_S)]
_ALL_BYTES = 1024 * 1024
"""A person's list of all skills; the 4 kB of a search are for a model's context."""


class Remover(Protocol):
    """Shuts devices out and removes them, on the bus as well; the registry's service does."""

    async def remove_device(self, device: str) -> None:
        """Remove a device for good."""
        ...

    async def revoke_device(self, device: str) -> None:
        """Shut a device out."""
        ...


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EnrolBody(_Body):
    """A device that wants to join."""

    token: Annotated[str, Field(max_length=200)]
    public_key: dict[str, Json]


class EnrolAnswer(_Body):
    """What a device needs to take part."""

    device: str
    token: str
    hub_id: str
    hub_key: dict[str, str]
    brokers: tuple[str, ...]
    prefix: str


class HubAnswer(_Body):
    """Which hub this is, for those who have not joined."""

    hub_id: str
    key: str
    brokers: tuple[str, ...]
    prefix: str


class DeviceBody(_Body):
    """A device to be added; ``lifetime_s`` is how long its enrolment token is good."""

    name: str
    aliases: list[str] = []
    area: str | None = None
    floor: str | None = None
    lifetime_s: _Lifetime | None = None


class ChangeBody(_Body):
    """What shall be different about a device; what is left out stays."""

    name: str | None = None
    aliases: list[str] | None = None
    area: str | None = None
    floor: str | None = None


class DeviceAnswer(_Body):
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


class InvitationAnswer(_Body):
    """An added device, with the token and the command that let it join."""

    id: str
    key: str
    token: str
    expires_at: Timestamp
    hub_key: str
    command: str


class TokenBody(_Body):
    """A token that a program shall get."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    lifetime_s: _Lifetime | None = None


class TokenAnswer(_Body):
    """A token; it is shown once and stored nowhere."""

    token: str


def make_router(registry: Registry, *, gate: Gate, remover: Remover) -> APIRouter:
    """Make the routes of the registry.

    Args:
        gate: Who may come in; shared with the other routers.
        remover: The registry's service.
    """
    router = APIRouter()
    _add_public(router, registry)
    _add_devices(router, registry, gate, remover)
    _add_tokens(router, registry, gate)
    _add_skills(router, registry, gate)
    return router


def _add_public(router: APIRouter, registry: Registry) -> None:
    settings, public = registry.settings, registry.key.public

    @router.post("/api/devices/enrol")
    async def enrol(body: EnrolBody, request: Request) -> EnrolAnswer:
        source = request.client.host if request.client else ""
        joined = await registry.enrol(body.token, body.public_key, source=source)
        return EnrolAnswer(
            device=joined.device.id,
            token=joined.token,
            hub_id=registry.hub_id,
            hub_key=public.jwk(),
            brokers=settings.brokers,
            prefix=settings.topic_prefix,
        )

    @router.get("/.well-known/jwks.json")
    async def keys() -> dict[str, list[dict[str, str]]]:
        return {"keys": [{**public.jwk(), "use": "sig", "alg": "EdDSA"}]}

    @router.get("/.well-known/strawberry")
    async def hub() -> HubAnswer:
        return HubAnswer(
            hub_id=registry.hub_id, key=public.kid, brokers=settings.brokers, prefix=settings.topic_prefix
        )


def _add_devices(router: APIRouter, registry: Registry, gate: Gate, remover: Remover) -> None:
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
    async def invite(name: str, request: Request, lifetime_s: _Lifetime | None = None) -> InvitationAnswer:
        return await _invitation(find(name).id, lifetime_s, request)

    async def _invitation(device: str, lifetime_s: int | None, request: Request) -> InvitationAnswer:
        invitation = await registry.invite(device, lifetime_s=lifetime_s)
        url, key = str(request.base_url).rstrip("/"), registry.key.kid
        return InvitationAnswer(
            id=device,
            key=find(device).key,
            token=invitation.token,
            expires_at=invitation.expires_at,
            hub_key=key,
            command=shlex.join(["strawberry", "spoke", "run", "--hub", url, "--hub-key", key]),
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


def _add_tokens(router: APIRouter, registry: Registry, gate: Gate) -> None:
    admin = Depends(gate.require_admin)
    authority, lifetimes = registry.authority, registry.settings.lifetimes

    @router.get("/api/tokens", dependencies=[admin])
    async def list_tokens() -> list[dict[str, Any]]:
        shown = ("jti", "kind", "subject", "owner", "name", "scope")
        moments = ("issued_at", "expires_at", "revoked_at")
        return [
            {name: getattr(token, name) for name in shown}
            | {name: rfc3339(at) if (at := getattr(token, name)) else None for name in moments}
            for token in await authority.list()
        ]

    @router.post("/api/tokens")
    async def add_token(body: TokenBody, bearer: Annotated[Bearer, admin]) -> TokenAnswer:
        token = await authority.issue(
            TokenRequest(
                kind="user",
                subject=bearer.user.id,
                owner=bearer.user.id,
                scopes=[scope for scope in SCOPES if scope in body.scopes],
                lifetime_s=body.lifetime_s or lifetimes.user_s,
                name=body.name,
            )
        )
        return TokenAnswer(token=token)

    @router.post("/api/tokens/renew")
    async def renew_token(bearer: Annotated[Bearer, Depends(gate.require("register"))]) -> TokenAnswer:
        # A person's token ends when it was said to; only what nobody looks after renews itself.
        if bearer.device is None:
            raise Forbidden("only a device renews its token", hint="'strawberry tokens add' makes a new one.")
        return TokenAnswer(token=await authority.renew(bearer.claims, lifetime_s=lifetimes.device_s))

    @router.delete("/api/tokens/{jti}", dependencies=[admin], status_code=204)
    async def revoke_token(jti: str) -> Response:
        if all(token.jti != jti for token in await authority.list()):
            raise NotFound(f"there is no token {jti!r}")
        await authority.revoke([jti])
        return Response(status_code=204)


def _add_skills(router: APIRouter, registry: Registry, gate: Gate) -> None:
    anyone = Depends(gate.require("chat", "call"))

    @router.get("/api/skills", dependencies=[anyone])
    async def list_skills() -> SearchAnswer:
        return registry.search.search(max_bytes=_ALL_BYTES)

    @router.get("/api/skills/search")
    async def search_skills(
        bearer: Annotated[Bearer, anyone],
        q: Annotated[str, Query(max_length=1_000)] = "",
        limit: Annotated[int, Query(gt=0, le=1_000)] = 20,
    ) -> SearchAnswer:
        return registry.search.search(q, current=bearer.device, limit=limit)

    @router.get("/api/skills/describe")
    async def describe_skill(
        bearer: Annotated[Bearer, anyone], path: Annotated[str, Query(max_length=300)]
    ) -> dict[str, str]:
        return {"path": path, "text": targets.describe(registry.directory, path, current=bearer.device)}


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
