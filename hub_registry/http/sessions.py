"""Logging in and out, choosing a password, and what people change about themselves."""

import re
from contextlib import suppress
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, SecretStr
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, NoBody, answer, read
from contracts.errors import Forbidden, InvalidMessage, NotFound, Unauthorized
from contracts.validation import Language, TimeZone
from contracts.wire import Strict, Timestamp
from hub_registry.access.accounts import User, UserChange
from hub_registry.access.bearer import SESSION_COOKIE, Gate, source_of
from hub_registry.http.parts import read_open
from hub_registry.registry import Registry

_SHORTEST: Final = 10
_LONGEST: Final = 1_000


def _of_a_length(password: SecretStr) -> SecretStr:
    if not _SHORTEST <= len(password.get_secret_value()) <= _LONGEST:
        # Not a ValueError, which would be named after the field.
        raise InvalidMessage(
            "a password has {shortest} to {longest:,} characters", shortest=_SHORTEST, longest=_LONGEST
        )
    return password


NewPassword = Annotated[SecretStr, AfterValidator(_of_a_length)]
_Password = Annotated[SecretStr, Field(max_length=_LONGEST)]


class SetupBody(Strict):
    """The choice of a password with a one-time code."""

    code: Annotated[str, Field(max_length=64)] = Field(repr=False)
    password: NewPassword
    name: str | None = None
    language: Language | None = None


class LoginBody(Strict):
    """A person who logs in."""

    name: Annotated[str, Field(max_length=_LONGEST)]
    password: _Password


class PasswordBody(Strict):
    """A new password."""

    old: _Password
    new: NewPassword


class ConfirmBody(Strict):
    """The password of who is logged in, again."""

    password: _Password


class SelfBody(Strict):
    """What people change about themselves; what is left out stays, an empty text clears it."""

    name: str | None = None
    language: Language | Literal[""] | None = None
    time_zone: TimeZone | Literal[""] | None = None


class PersonAnswer(Strict):
    """A person as they see themselves; language and time zone are null where the household's apply."""

    id: str
    name: str
    role: str
    language: str | None
    time_zone: str | None

    @classmethod
    def of(cls, user: User) -> "PersonAnswer":
        """Make it of a person."""
        return cls(
            id=user.id,
            name=user.display_name,
            role=user.role,
            language=user.language,
            time_zone=user.time_zone,
        )


class LoggedInAnswer(Strict):
    """A person who has just logged in."""

    user: PersonAnswer


class SessionAnswer(LoggedInAnswer):
    """Whom a token is of, and what it opens."""

    scopes: list[str]
    expires_at: Timestamp


class SetupAnswer(Strict):
    """Whether no admin has a password yet."""

    needed: bool


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    people, accounts = registry.people, registry.accounts
    # With a person in front of it, as for confirmations: no program, no device.
    in_person, of_home = gate.require_user("confirm"), gate.require()

    async def logged_in(request: Request, user: User) -> Answer[LoggedInAnswer]:
        token = await people.open_session(user, name=_browser(request.headers.get("user-agent", "")))
        response = answer(LoggedInAnswer(user=PersonAnswer.of(user)))
        _set_cookie(response, request, token, max_age=registry.settings.lifetimes.session_s)
        return response

    async def show_setup(_: Request) -> Answer[SetupAnswer]:
        return answer(SetupAnswer(needed=await people.needs_setup()))

    async def set_up(request: Request) -> Answer[LoggedInAnswer]:
        body = await read_open(request, SetupBody, gate)
        source = source_of(request)
        user = await people.set_up(
            body.code, body.password, name=body.name, language=body.language, source=source
        )
        gate.note("choose_password", user, address=source)
        return await logged_in(request, user)

    async def log_in(request: Request) -> Answer[LoggedInAnswer]:
        body = await read_open(request, LoginBody, gate)
        source = source_of(request)
        try:
            user = await people.log_in(body.name, body.password, source=source)
        except Unauthorized:
            # What was typed as an unknown name may be a password.
            with suppress(NotFound):
                known = await accounts.find(body.name)
                gate.note("log_in", known, address=source, outcome="refused")
            raise
        gate.note("log_in", user, address=source)
        return await logged_in(request, user)

    async def show(request: Request) -> Answer[SessionAnswer]:
        bearer = await of_home(request)
        return answer(
            SessionAnswer(
                user=PersonAnswer.of(bearer.user),
                scopes=bearer.claims.scope.split(),
                expires_at=bearer.claims.expires_at,
            )
        )

    async def change(request: Request) -> Answer[PersonAnswer]:
        bearer = await in_person(request)
        body = await read(request, SelfBody)
        changed = UserChange(display_name=body.name, language=body.language, time_zone=body.time_zone)
        return answer(PersonAnswer.of(await accounts.change(bearer.user.id, changed)))

    async def change_password(request: Request) -> Answer[LoggedInAnswer]:
        bearer = await in_person(request)
        body = await read(request, PasswordBody)
        await people.change_password(bearer.user.id, body.old, body.new, source=source_of(request))
        gate.note("change_password", bearer)
        return await logged_in(request, await accounts.get(bearer.user.id))

    async def confirm(request: Request) -> NoBody:
        bearer = await in_person(request)
        body = await read(request, ConfirmBody)
        source = source_of(request)
        try:
            await people.confirm(bearer.claims, body.password, source=source)
        except Forbidden:
            gate.note("confirm_password", bearer, address=source, outcome="refused")
            raise
        return NoBody()

    async def log_out(request: Request) -> NoBody:
        try:
            bearer = await of_home(request)
        except Unauthorized:
            pass  # a session that has ended already leaves its cookie to be removed
        else:
            await people.end_session(bearer.claims)
            gate.note("log_out", bearer)
        return _logged_out(request)

    async def log_out_everywhere(request: Request) -> NoBody:
        bearer = await in_person(request)
        await people.end_sessions(bearer.user.id)
        gate.note("log_out_everywhere", bearer)
        return _logged_out(request)

    return [
        Route("/api/setup", show_setup),
        Route("/api/setup", set_up, methods=["POST"]),
        Route("/api/session", show),
        Route("/api/session", log_in, methods=["POST"]),
        Route("/api/session", change, methods=["PATCH"]),
        Route("/api/session", log_out, methods=["DELETE"]),
        Route("/api/session/confirm", confirm, methods=["POST"]),
        Route("/api/session/password", change_password, methods=["PUT"]),
        Route("/api/sessions", log_out_everywhere, methods=["DELETE"]),
    ]


def _logged_out(request: Request) -> NoBody:
    response = NoBody()
    _set_cookie(response, request, "", max_age=0)
    return response


def _set_cookie(response: Response, request: Request, value: str, *, max_age: int) -> None:
    response.set_cookie(
        SESSION_COOKIE,
        value,
        max_age=max_age,
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


_PRODUCTS: Final = {
    "Edg": "Edge",
    "OPR": "Opera",
    "Firefox": "Firefox",
    "(Headless)?Chrome": "Chrome",
    "Safari": "Safari",
}
_SYSTEMS: Final = ("Android", "iPhone", "iPad", "Windows", "Macintosh", "CrOS", "Linux")


def _browser(agent: str) -> str:
    """Return a name by which a person recognises a browser in the list of tokens."""
    product = next((name for sign, name in _PRODUCTS.items() if re.search(rf"\b{sign}/", agent)), None)
    system = next((name for name in _SYSTEMS if name in agent), None)
    return f"browser ({', '.join(filter(None, (product, system)))})" if product or system else "browser"
