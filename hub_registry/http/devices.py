"""Devices: adding, inviting, changing, shutting out, removing."""

import shlex
from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from agent_core.search.directory import SkillDirectory
from chat.http.requests import Answer, answer, answer_each, read, read_query
from contracts.addresses import host_of, is_loopback
from contracts.claims import DeviceScope
from contracts.errors import Forbidden
from contracts.wire import Part, Strict, Timestamp
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.bus.purging import Purged
from hub_registry.devices.devices import Device, DeviceChange
from hub_registry.devices.directory import Entry, Load
from hub_registry.devices.review import Item, digest_of
from hub_registry.http.parts import Lifetime, Remover
from hub_registry.registry import Registry

_OF_OWNER: Final = frozenset({"shared", "scopes"})
"""What people who are no admins change about devices of their own."""
_RUN: Final = ("strawberry", "spoke", "run")


class DeviceBody(Strict):
    """A device to be added; ``lifetime_s`` is how long its enrolment token is good."""

    name: str
    aliases: list[str] = []
    area: str | None = None
    floor: str | None = None
    confirm: bool = False
    trusted: bool = False
    shared: bool = False
    lifetime_s: Lifetime | None = None


class ChangeBody(Strict):
    """What shall be different about a device; what is left out stays."""

    name: str | None = None
    aliases: list[str] | None = None
    area: str | None = None
    floor: str | None = None
    confirm: bool | None = None
    trusted: bool | None = None
    owner: str | None = None
    shared: bool | None = None
    scopes: list[DeviceScope] | None = None


class RegistryProblem(Part):
    """Something that a device sent and the hub refused."""

    at: Timestamp
    message: str


class DeviceAnswer(Strict):
    """A device as people see it.

    Attributes:
        shared: Whether it is for all people of the home; otherwise only its owner sees and calls it.
        scopes: What its token opens: to chat as its owner, to call skills of other devices directly.
        confirm: Whether a person at it confirms calls; null if the owner has not decided, which is no.
        awaited: Skills that the device says it has, and that have not come or were refused.
        trusted: Whether what it declares needs no approval.
        to_review: How much waits for approval.
        problems: What of it was refused, for its owner and admins.
        version: Of its software, as long as it was heard since the hub started; empty before.
        mode: ``hub`` while its agent is the hub's, ``alone`` otherwise; null before its first heartbeat.
        load: One-minute load average divided by the number of processors.
        memory_mb: Resident memory of the spoke in MiB.
        uptime_s: Since the spoke started.
        loads: Where it was asked for, the last hour: Unix seconds, load, memory.
    """

    id: str
    key: str
    name: str
    aliases: tuple[str, ...]
    area: str | None
    floor: str | None
    owner: str
    shared: bool
    scopes: tuple[DeviceScope, ...]
    state: str
    confirm: bool | None
    last_seen: Timestamp | None
    skills: list[str]
    awaited: list[str]
    trusted: bool
    to_review: int
    problems: list[RegistryProblem]
    version: str
    mode: str | None
    load: float | None
    memory_mb: float | None
    uptime_s: float | None
    loads: list[Load] | None


class _Shown(Strict):
    """Query parameters: whether the load of the last hour is wanted."""

    loads: bool = False


class ReviewAnswer(Strict):
    """What of a device waits for approval.

    Attributes:
        digest: Of all items; to be sent with the decision.
    """

    id: str
    key: str
    name: str
    digest: str
    items: list[Item]


class DecisionBody(Strict):
    """The owner's decision on all that a device has waiting."""

    digest: str
    approve: bool


class AllowedBody(Strict):
    """A method that the model may call without a question, although its author declared nothing.

    Attributes:
        method: ``Skill.method``.
        digest: Of the method as it was shown; None has the person asked again.
    """

    method: Annotated[str, Field(pattern=r"^\w{1,64}\.\w{1,64}$")]
    digest: str | None


class InvitationBody(Strict):
    """How long a new invitation is good; ten minutes by default."""

    lifetime_s: Lifetime | None = None


class InvitationAnswer(Strict):
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


class RemovedAnswer(Part):
    """A device that is no more."""

    id: str
    name: str
    state: Literal["removed"]


def routes(registry: Registry, gate: Gate, remover: Remover) -> list[BaseRoute]:
    """Make the routes."""
    may_look = gate.require_user("chat", "call", "admin")

    def known_to(bearer: Bearer) -> SkillDirectory[Entry]:
        return registry.directory if bearer.is_admin else registry.directory.seen_by(bearer.user.id)

    def find(request: Request, directory: SkillDirectory[Entry] = registry.directory) -> Entry:
        name = request.path_params["name"]
        # An id comes first: it is what programs use, and no other device can have it as its key.
        return directory.get(name) or directory.resolve(name)

    async def require_owner(request: Request, bearer: Bearer, entry: Entry) -> None:
        is_own = entry.device.owner == bearer.user.id and not bearer.user.read_only
        if not (is_own and "confirm" in bearer.claims.scopes):
            await gate.require_admin(request)

    async def list_devices(request: Request) -> Answer[list[DeviceAnswer]]:
        bearer, loads = await may_look(request), read_query(request, _Shown).loads
        return await answer_each(_device(entry, bearer, loads=loads) for entry in known_to(bearer).entries())

    async def show_device(request: Request) -> Answer[DeviceAnswer]:
        bearer = await may_look(request)
        return answer(_device(find(request, known_to(bearer)), bearer, loads=True))

    async def add_device(request: Request) -> Answer[InvitationAnswer]:
        bearer = await gate.require_admin(request)
        body = await read(request, DeviceBody)
        if body.confirm:
            await registry.authority.require_password(bearer.claims)
        device = await registry.devices.add(
            body.name,
            owner=bearer.user.id,
            aliases=body.aliases,
            area=body.area,
            floor=body.floor,
            may_confirm=body.confirm,
            trusted=body.trusted,
            shared=body.shared,
        )
        return await _invitation(device, body.lifetime_s, request)

    async def invite(request: Request) -> Answer[InvitationAnswer]:
        await gate.require_admin(request)
        body = await read(request, InvitationBody, optional=True)
        return await _invitation(find(request).device, body.lifetime_s, request)

    async def _invitation(
        device: Device, lifetime_s: int | None, request: Request
    ) -> Answer[InvitationAnswer]:
        invitation = await registry.invite(device.id, lifetime_s=lifetime_s)
        url, key = address_for_others(request, registry.settings.url), registry.key.kid
        return answer(
            InvitationAnswer(
                id=device.id,
                key=device.key,
                token=invitation.token,
                expires_at=invitation.expires_at,
                hub_key=key,
                command=shlex.join([*_RUN, "--hub", url, "--hub-key", key, *_spelled_out(url)]),
                reachable=not is_loopback(host_of(url)),
            )
        )

    async def change_device(request: Request) -> Answer[DeviceAnswer]:
        bearer = await may_look(request)
        entry, body = find(request, known_to(bearer)), await read(request, ChangeBody)
        if body.model_fields_set <= _OF_OWNER:
            await require_owner(request, bearer, entry)
        else:
            await gate.require_admin(request)
        if lacking := [scope for scope in body.scopes or () if scope not in bearer.claims.scopes]:
            raise Forbidden(
                "a device gets no more than the token that asks, which lacks {scope!r}",
                scope=lacking[0],
                hint="Leave it out, or ask an admin.",
            )
        if body.confirm or body.owner is not None:
            await registry.authority.require_password(bearer.claims)
        owner = None if body.owner is None else (await registry.accounts.find(body.owner)).id
        await registry.change_device(
            entry.id,
            DeviceChange(
                display_name=body.name,
                aliases=body.aliases,
                area=body.area,
                floor=body.floor,
                may_confirm=body.confirm,
                trusted=body.trusted,
                owner=owner,
                shared=body.shared,
                scopes=body.scopes,
            ),
        )
        remover.tell_names(entry.id)
        if body.scopes is not None:
            gate.note(f"set_scopes {entry.id} ({', '.join(entry.device.scopes)})", bearer)
        return answer(_device(entry, bearer))

    async def list_reviews(request: Request) -> Answer[list[ReviewAnswer]]:
        await gate.require_admin(request)
        return await answer_each(_review(entry) for entry in registry.directory.entries() if entry.items)

    async def show_review(request: Request) -> Answer[ReviewAnswer]:
        await gate.require_admin(request)
        return answer(_review(find(request)))

    async def decide(request: Request) -> Answer[ReviewAnswer]:
        await gate.require_admin(request)
        entry, body = find(request), await read(request, DecisionBody)
        await registry.decide(entry, body.digest, approve=body.approve)
        return answer(_review(entry))

    async def allow(request: Request) -> Answer[DeviceAnswer]:
        bearer = await may_look(request)
        entry, body = find(request, known_to(bearer)), await read(request, AllowedBody)
        await require_owner(request, bearer, entry)
        skill, _, name = body.method.partition(".")
        await registry.allow(entry, skill, name, body.digest)
        gate.note(f"{'ask_again' if body.digest is None else 'allow'} {entry.id} {body.method}", bearer)
        return answer(_device(entry, bearer))

    async def revoke_device(request: Request) -> Answer[DeviceAnswer]:
        bearer = await gate.require_admin(request)
        entry = find(request)
        await remover.revoke_device(entry.id)
        return answer(_device(entry, bearer))

    async def remove_device(request: Request) -> Answer[RemovedAnswer]:
        await gate.require_admin(request)
        entry = find(request)
        await remover.remove_device(entry.id)
        return answer(RemovedAnswer(id=entry.id, name=entry.device.display_name, state="removed"))

    async def purge(request: Request) -> Answer[Purged]:
        await gate.require_admin(request)
        return answer(await remover.purge())

    device = "/api/devices/{name}"
    return [
        Route("/api/devices", list_devices),
        Route("/api/devices", add_device, methods=["POST"]),
        Route("/api/devices/review", list_reviews),
        Route(f"{device}/review", show_review),
        Route(f"{device}/review", decide, methods=["POST"]),
        Route(f"{device}/invitations", invite, methods=["POST"]),
        Route(f"{device}/allowed", allow, methods=["PUT"]),
        Route(f"{device}/revoke", revoke_device, methods=["POST"]),
        Route(device, show_device),
        Route(device, change_device, methods=["PATCH"]),
        Route(device, remove_device, methods=["DELETE"]),
        Route("/api/purge", purge, methods=["POST"]),
    ]


def address_for_others(request: Request, for_others: str | None) -> str:
    """Return where others find the hub: where the request came in, unless only this machine does there."""
    if for_others is not None and is_loopback(request.url.hostname):
        return for_others
    return str(request.base_url).rstrip("/")


def _spelled_out(url: str) -> list[str]:
    """Without TLS a device refuses to join over the network, without its option for that."""
    return ["--insecure"] if url.startswith("http://") and not is_loopback(host_of(url)) else []


def _review(entry: Entry) -> ReviewAnswer:
    return ReviewAnswer(
        id=entry.id,
        key=entry.key,
        name=entry.display_name,
        digest=digest_of(entry.items),
        items=entry.items,
    )


def _device(entry: Entry, bearer: Bearer, *, loads: bool = False) -> DeviceAnswer:
    device, heartbeat = entry.device, entry.heartbeat
    problems = entry.problems if bearer.is_admin or device.owner == bearer.user.id else ()
    waiting = "revoked" if device.revoked else "invited" if device.public_key is None else None
    return DeviceAnswer(
        id=device.id,
        key=device.key,
        name=device.display_name,
        aliases=device.aliases,
        area=device.area,
        floor=device.floor,
        owner=device.owner,
        shared=device.shared,
        scopes=device.scopes,
        state=waiting or ("online" if entry.connected else "offline"),
        confirm=device.may_confirm,
        last_seen=entry.last_heartbeat,
        skills=sorted(entry.skills),
        awaited=sorted(set(entry.listed or ()) - set(entry.skills)),
        trusted=device.trusted,
        to_review=entry.to_review,
        problems=[RegistryProblem(at=problem.at, message=problem.message) for problem in problems],
        version=entry.version,
        mode=heartbeat.mode if heartbeat else None,
        load=heartbeat.load if heartbeat else None,
        memory_mb=heartbeat.memory_mb if heartbeat else None,
        uptime_s=heartbeat.uptime_s if heartbeat else None,
        loads=list(entry.loads) if loads else None,
    )
