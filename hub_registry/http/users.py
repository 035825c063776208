"""Users: ``/api/users``, ``strawberry users``, and the part of the people page for admins."""

from chat.operations import ADMIN, PASSWORD, Command, Resource
from contracts.addresses import host_of, is_loopback
from contracts.answers.people import CodeAnswer, UserAnswer
from hub_registry.access.accounts import (
    ADMIN_ID,
    OwnLanguage,
    OwnTimeZone,
    User,
    UserChange,
    require_not_first,
)
from hub_registry.access.bearer import Bearer
from hub_registry.access.people import PasswordCode
from hub_registry.http.parts import RegistryAdmin
from hub_registry.http.sessions import person_answer
from hub_registry.storage.tables import Role

users: Resource[RegistryAdmin, Bearer] = Resource("users", "/api/users")


@users.get(
    ADMIN,
    command=Command(
        "list",
        columns=("name", "role", "password=has_password", "language", "time_zone", "id"),
        empty="There are no users.",
    ),
)
async def list_users(admin: RegistryAdmin, asking: Bearer) -> list[UserAnswer]:
    """List all people."""
    return [_user(user) for user in await admin.registry.accounts.users()]


@users.post(PASSWORD)
async def add_user(
    admin: RegistryAdmin,
    asking: Bearer,
    name: str,
    role: Role = "member",
    language: OwnLanguage = None,
    time_zone: OwnTimeZone = None,
) -> CodeAnswer:
    """Add a person, who chooses a password with the code, at `/setup`, within a day."""
    user = await admin.registry.accounts.add(name, role=role, language=language, time_zone=time_zone)
    asking.note(f"add_user {user.id} ({user.role})")
    return _code(admin, asking, await admin.registry.people.make_code(user.id))


@users.patch(ADMIN, "/{user}")
async def change_user(admin: RegistryAdmin, asking: Bearer, user: str, change: UserChange) -> UserAnswer:
    """Change a person; an empty text clears language or time zone.

    Another role needs the password. It ends the person's sessions, and their tokens with the scope `admin`.
    """
    found = await admin.registry.accounts.find(user)
    if change.role not in (None, found.role):
        await admin.registry.authority.require_password(asking.claims)
    changed = await admin.registry.people.change(found.id, change)
    given = ((name, getattr(change, name)) for name in sorted(change.model_fields_set))
    told = ", ".join(f"{name}={value}" for name, value in given if value is not None)
    asking.note(f"change_user {found.id} ({told})")
    return _user(changed)


@users.delete(ADMIN, "/{user}")
async def remove_user(admin: RegistryAdmin, asking: Bearer, user: str) -> UserAnswer:
    """Remove a person; [people.md](people.md#removing-a-person) says what becomes of their things."""
    registry = admin.registry
    found = await registry.accounts.find(user)
    require_not_first(found.id)
    for entry in registry.directory.entries():
        if entry.device.owner == found.id and not entry.revoked:
            await admin.remover.revoke_device(entry.id)
    await registry.people.remove(found.id, heir=asking.user.id if asking.user.id != found.id else ADMIN_ID)
    asking.note(f"remove_user {found.id}")
    return _user(found)


@users.post(PASSWORD, "/{user}/code")
async def make_code(admin: RegistryAdmin, asking: Bearer, user: str) -> CodeAnswer:
    """Make a new code, for a forgotten password; until it is used the old password stays."""
    found = await admin.registry.accounts.find(user)
    asking.note(f"make_code {found.id}")
    return _code(admin, asking, await admin.registry.people.make_code(found.id))


def _code(admin: RegistryAdmin, asking: Bearer, made: PasswordCode) -> CodeAnswer:
    address = asking.hub_url(admin.registry.settings.url)
    return CodeAnswer(
        user=_user(made.user),
        code=made.code,
        link=f"{address}/setup#{made.code}",
        expires_at=made.expires_at,
        reachable=not is_loopback(host_of(address)),
    )


def _user(user: User) -> UserAnswer:
    return UserAnswer(**person_answer(user).model_dump(), has_password=user.has_password)
