"""Devices: ``/api/devices``, ``strawberry devices`` and their pages."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from pydantic import Field

from agent_core.search.directory import SkillDirectory
from chat.http.requests import paced
from chat.operations import ADMIN, Needs, Resource
from contracts.addresses import host_of, is_loopback
from contracts.answers.devices import (
    ApprovedAnswer,
    DeviceAnswer,
    InvitationAnswer,
    Purged,
    RegistryProblem,
    RemovedAnswer,
    ReviewAnswer,
    Waiting,
)
from contracts.answers.skills import FailingBody
from contracts.errors import Forbidden
from contracts.phrases import Phrase
from hub_registry.access.bearer import Bearer
from hub_registry.access.joining import Joining
from hub_registry.devices.devices import Device, DeviceChange
from hub_registry.devices.directory import Entry
from hub_registry.devices.review import digest_of
from hub_registry.http.parts import Lifetime, RegistryAdmin, Remover
from hub_registry.storage.tables import now

_OF_OWNER: Final = frozenset({"shared", "scopes"})
"""What people who are no admins change about devices of their own."""
_LOOK: Final = Needs(("chat", "call", "admin"))
_RUN: Final = ("strawberry", "spoke", "run")


devices: Resource[RegistryAdmin, Bearer] = Resource("devices", "/api/devices")
joining: Resource[Joining, Bearer] = Resource("joining", "/api/devices/join")
purging: Resource[Remover, Bearer] = Resource("purge", "/api/purge")


@devices.get(_LOOK)
async def list_devices(admin: RegistryAdmin, asking: Bearer, loads: bool = False) -> list[DeviceAnswer]:
    """List all devices, for an admin; for others theirs and those that are shared.

    What a device says in its heartbeats is null until this hub has heard one. `problems` are for the owner
    and admins.

    Args:
        loads: Also `[Unix seconds, load, MiB]` of the last hour.
    """
    return await paced(
        device_answer(each, asking, loads=loads) for each in _known_to(asking, admin).entries()
    )


@devices.post(ADMIN)
async def add_device(
    admin: RegistryAdmin,
    asking: Bearer,
    name: str,
    aliases: Sequence[str] = (),
    area: str | None = None,
    floor: str | None = None,
    confirm: bool = False,
    trusted: bool = False,
    shared: bool = False,
    lifetime_s: Lifetime | None = None,
) -> InvitationAnswer:
    """Add a device, with its enrolment token; `confirm` needs the password.

    Args:
        lifetime_s: How long the token is good.
    """
    if confirm:
        await admin.registry.authority.require_password(asking.claims)
    device = await admin.registry.devices.add(
        name,
        owner=asking.user.id,
        aliases=aliases,
        area=area,
        floor=floor,
        may_confirm=confirm,
        trusted=trusted,
        shared=shared,
    )
    return await _invitation(admin, asking, device, lifetime_s)


@devices.get(ADMIN, "/review")
async def list_reviews(admin: RegistryAdmin, asking: Bearer) -> list[ReviewAnswer]:
    """List what devices declare and the owner has not approved.

    `items` are `[{"kind", "skill", "method", "before", "after", "denied"}]`, `kind` is `flags`, `sentence`,
    `provider` or `documentation`; `digest` is of all of them.
    """
    return await paced(_review(entry) for entry in admin.registry.directory.entries() if entry.items)


@devices.get(_LOOK, "/{name}")
async def show_device(admin: RegistryAdmin, asking: Bearer, name: str) -> DeviceAnswer:
    """Return one device, with `loads`."""
    return device_answer(_find(name, _known_to(asking, admin)), asking, loads=True)


@devices.patch(_LOOK, "/{name}")
async def change_device(
    admin: RegistryAdmin, asking: Bearer, name: str, change: DeviceChange
) -> DeviceAnswer:
    """Change a device; an empty text clears `area` or `floor`.

    This is for admins, `shared` and `scopes` also for the owner, with the scope `confirm`. `confirm: true`
    and another owner need the password. `scopes` are at most those of the token that asks.
    """
    registry, entry = admin.registry, _find(name, _known_to(asking, admin))
    if change.model_fields_set <= _OF_OWNER:
        require_owner(asking, entry)
    else:
        asking.require(ADMIN)
    if lacking := [scope for scope in change.scopes or () if scope not in asking.claims.scopes]:
        raise Forbidden(
            "a device gets no more than the token that asks, which lacks {scope!r}",
            scope=lacking[0],
            hint="Leave it out, or ask an admin.",
        )
    if change.confirm or change.owner is not None:
        await registry.authority.require_password(asking.claims)
    if change.owner is not None:
        owner = await registry.accounts.find(change.owner)
        change = change.model_copy(update={"owner": owner.id})
    await registry.change_device(entry.id, change)
    admin.remover.tell_names(entry.id)
    if change.scopes is not None:
        asking.note(f"set_scopes {entry.id} ({', '.join(entry.device.scopes)})")
    return device_answer(entry, asking)


@devices.delete(ADMIN, "/{name}")
async def remove_device(admin: RegistryAdmin, asking: Bearer, name: str) -> RemovedAnswer:
    """Revoke a device, delete it and clear its topics."""
    entry = _find(name, admin.registry.directory)
    await admin.remover.remove_device(entry.id)
    return RemovedAnswer(id=entry.id, name=entry.device.display_name, state="removed")


@devices.post(ADMIN, "/{name}/revoke")
async def revoke_device(admin: RegistryAdmin, asking: Bearer, name: str) -> DeviceAnswer:
    """Revoke the tokens of a device, and its invitations; it stays in the list."""
    entry = _find(name, admin.registry.directory)
    await admin.remover.revoke_device(entry.id)
    return device_answer(entry, asking)


@devices.post(ADMIN, "/{name}/invitations")
async def invite(
    admin: RegistryAdmin, asking: Bearer, name: str, lifetime_s: Lifetime | None = None
) -> InvitationAnswer:
    """Make a new enrolment token for a device."""
    return await _invitation(admin, asking, _find(name, admin.registry.directory).device, lifetime_s)


@devices.get(ADMIN, "/{name}/review")
async def show_review(admin: RegistryAdmin, asking: Bearer, name: str) -> ReviewAnswer:
    """Return what one device has waiting for approval."""
    return _review(_find(name, admin.registry.directory))


@devices.post(ADMIN, "/{name}/review")
async def decide(
    admin: RegistryAdmin,
    asking: Bearer,
    name: str,
    digest: str,
    approve: bool,
    skill: Annotated[str, Field(max_length=64)] = "",
) -> ReviewAnswer:
    """Approve or deny what a device has waiting; 409 where something else waits by now.

    Args:
        digest: Of all items, or of those of the skill.
        skill: Whose items are meant; by default all.
    """
    entry = _find(name, admin.registry.directory)
    await admin.registry.decide(entry, digest, approve=approve, skill=skill)
    return _review(entry)


@devices.put(_LOOK, "/{name}/allowed")
async def allow_method(
    admin: RegistryAdmin,
    asking: Bearer,
    name: str,
    method: Annotated[str, Field(pattern=r"^\w{1,64}\.\w{1,64}$")],
    digest: str | None,
) -> DeviceAnswer:
    """Allow models to call a method whose author declared nothing without a confirmation, until it changes.

    This is for admins, and for the owner with the scope `confirm`.

    Args:
        method: `SKILL.METHOD`.
        digest: As `GET /api/skills/methods` shows it, 409 if it has changed since; null undoes it.
    """
    entry = _find(name, _known_to(asking, admin))
    require_owner(asking, entry)
    skill, _, called = method.partition(".")
    await admin.registry.allow(entry, skill, called, digest)
    asking.note(f"{'ask_again' if digest is None else 'allow'} {entry.id} {method}")
    return device_answer(entry, asking)


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


@purging.post(ADMIN)
async def purge(remover: Remover, asking: Bearer) -> Purged:
    """Empty every retained topic of this installation."""
    return await remover.purge()


def _known_to(asking: Bearer, admin: RegistryAdmin) -> SkillDirectory[Entry]:
    directory = admin.registry.directory
    return directory if asking.is_admin else directory.seen_by(asking.user.id)


def _find(name: str, directory: SkillDirectory[Entry]) -> Entry:
    # An id comes first: it is what programs use, and no other device can have it as its key.
    return directory.get(name) or directory.resolve(name)


def require_owner(asking: Bearer, entry: Entry) -> None:
    """Require that an admin asks, or the owner of a device with the scope ``confirm``.

    Raises:
        Forbidden: If another one asks.
    """
    is_own = entry.device.owner == asking.user.id and not asking.user.read_only
    if not (is_own and "confirm" in asking.claims.scopes):
        asking.require(ADMIN)


async def _invitation(
    admin: RegistryAdmin, asking: Bearer, device: Device, lifetime_s: int | None
) -> InvitationAnswer:
    registry = admin.registry
    invitation = await registry.invite(device.id, lifetime_s=lifetime_s)
    url, key = asking.hub_url(registry.settings.url), registry.key.kid
    return InvitationAnswer(
        id=device.id,
        key=device.key,
        token=invitation.token,
        expires_at=invitation.expires_at,
        hub_key=key,
        command=shlex.join([*_RUN, "--hub", url, "--hub-key", key, *_spelled_out(url)]),
        reachable=not is_loopback(host_of(url)),
    )


def _spelled_out(url: str) -> list[str]:
    # Without TLS a device refuses to join over the network, without its option for that.
    return ["--insecure"] if url.startswith("http://") and not is_loopback(host_of(url)) else []


def _review(entry: Entry) -> ReviewAnswer:
    return ReviewAnswer(
        id=entry.id,
        key=entry.key,
        name=entry.display_name,
        digest=digest_of(entry.items),
        items=entry.items,
    )


def _outdated(entry: Entry) -> Iterator[RegistryProblem]:
    for name, skill in sorted(entry.registered.items()):
        why = skill.registration.unavailable
        if why is not None and why.kind == "saved":
            message = Phrase("{skill}: {reason}", skill=name, reason=why.text)
            yield RegistryProblem(at=entry.last_heartbeat or now(), message=message)


def device_answer(entry: Entry, bearer: Bearer, *, loads: bool = False) -> DeviceAnswer:
    """Return a device as the person who asks may see it."""
    device, heartbeat = entry.device, entry.heartbeat
    is_own = bearer.is_admin or device.owner == bearer.user.id
    problems = entry.problems if is_own else ()
    skills = entry.registered if is_own else entry.skills
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
        failing=[
            FailingBody(device=device.key, skill=name, reason=why)
            for name, skill in sorted(skills.items())
            if (why := skill.problem)
        ],
        trusted=device.trusted,
        to_review=entry.to_review,
        problems=[
            *(RegistryProblem(at=problem.at, message=problem.message) for problem in problems),
            *(_outdated(entry) if is_own else ()),
        ],
        version=entry.version,
        mode=heartbeat.mode if heartbeat else None,
        load=heartbeat.load if heartbeat else None,
        memory_mb=heartbeat.memory_mb if heartbeat else None,
        uptime_s=heartbeat.uptime_s if heartbeat else None,
        loads=list(entry.loads) if loads else None,
    )
