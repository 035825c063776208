"""The people of the home, as an admin manages them."""

from typing import Literal

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, answer, read
from contracts.addresses import host_of, is_loopback
from contracts.validation import Language, TimeZone
from contracts.wire import Strict, Timestamp
from hub_registry.access.accounts import ADMIN_ID, User, UserChange, require_not_first
from hub_registry.access.bearer import Gate
from hub_registry.access.people import PasswordCode
from hub_registry.http.devices import address_for_others
from hub_registry.http.parts import Remover
from hub_registry.http.sessions import PersonAnswer, SelfBody
from hub_registry.registry import Registry
from hub_registry.storage.tables import Role


class UserBody(Strict):
    """A person to be added."""

    name: str
    role: Role = "member"
    language: Language | Literal[""] | None = None
    time_zone: TimeZone | Literal[""] | None = None


class UserChangeBody(SelfBody):
    """What shall be different about a person; what is left out stays, an empty text clears it."""

    role: Role | None = None


class UserAnswer(PersonAnswer):
    """A person as an admin sees them."""

    has_password: bool


class CodeAnswer(Strict):
    """A one-time code with which a person chooses a password; it is shown once and stored nowhere.

    Attributes:
        link: To the page for that; the code stands behind ``#``, which no browser sends.
        reachable: Whether the address in the link is one for other machines, too.
    """

    user: UserAnswer
    code: str
    link: str
    expires_at: Timestamp
    reachable: bool


def routes(registry: Registry, gate: Gate, remover: Remover) -> list[BaseRoute]:
    """Make the routes."""
    people, accounts = registry.people, registry.accounts

    async def find(request: Request) -> User:
        return await accounts.find(request.path_params["user"])

    def with_code(request: Request, code: PasswordCode) -> Answer[CodeAnswer]:
        address = address_for_others(request, registry.settings.url)
        return answer(
            CodeAnswer(
                user=_user(code.user),
                code=code.code,
                link=f"{address}/setup#{code.code}",
                expires_at=code.expires_at,
                reachable=not is_loopback(host_of(address)),
            )
        )

    async def list_users(request: Request) -> Answer[list[UserAnswer]]:
        await gate.require_admin(request)
        return answer([_user(user) for user in await accounts.users()])

    async def add_user(request: Request) -> Answer[CodeAnswer]:
        bearer = await gate.require_password(request)
        body = await read(request, UserBody)
        user = await accounts.add(body.name, role=body.role, language=body.language, time_zone=body.time_zone)
        gate.note(f"add_user {user.id} ({user.role})", bearer)
        return with_code(request, await people.make_code(user.id))

    async def change_user(request: Request) -> Answer[UserAnswer]:
        bearer = await gate.require_admin(request)
        user, body = await find(request), await read(request, UserChangeBody)
        if body.role not in (None, user.role):
            await gate.require_password(request)
        change = UserChange(
            display_name=body.name, role=body.role, language=body.language, time_zone=body.time_zone
        )
        changed = await people.change(user.id, change)
        given = ((name, getattr(body, name)) for name in sorted(body.model_fields_set))
        told = ", ".join(f"{name}={value}" for name, value in given if value is not None)
        gate.note(f"change_user {user.id} ({told})", bearer)
        return answer(_user(changed))

    async def make_code(request: Request) -> Answer[CodeAnswer]:
        bearer, user = await gate.require_password(request), await find(request)
        gate.note(f"make_code {user.id}", bearer)
        return with_code(request, await people.make_code(user.id))

    async def remove_user(request: Request) -> Answer[UserAnswer]:
        bearer = await gate.require_admin(request)
        user = await find(request)
        require_not_first(user.id)
        for entry in registry.directory.entries():
            if entry.device.owner == user.id and not entry.revoked:
                await remover.revoke_device(entry.id)
        await people.remove(user.id, heir=bearer.user.id if bearer.user.id != user.id else ADMIN_ID)
        gate.note(f"remove_user {user.id}", bearer)
        return answer(_user(user))

    one = "/api/users/{user}"
    return [
        Route("/api/users", list_users),
        Route("/api/users", add_user, methods=["POST"]),
        Route(one, change_user, methods=["PATCH"]),
        Route(one, remove_user, methods=["DELETE"]),
        Route(f"{one}/code", make_code, methods=["POST"]),
    ]


def _user(user: User) -> UserAnswer:
    return UserAnswer(**vars(PersonAnswer.of(user)), has_password=user.has_password)
