"""Sessions: logging in and out, choosing a password, what people change about themselves, their *Home*."""

import logging
import re
from contextlib import suppress
from typing import Annotated, Final

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from sqlmodel import Session
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, NoBody, answer, reads
from chat.operations import LOOK, TOKEN, Needs, Resource
from contracts.answers.people import HomeLayout, PersonAnswer
from contracts.errors import Forbidden, InvalidMessage, NotFound, Unauthorized
from contracts.validation import Language
from contracts.wire import Strict, Timestamp
from hub_registry import limits
from hub_registry.access.accounts import OwnLanguage, OwnTimeZone, User, UserChange
from hub_registry.access.bearer import SESSION_COOKIE, Bearer, Gate, source_of
from hub_registry.http.parts import read_open
from hub_registry.registry import Registry
from hub_registry.storage.tables import HomeLayoutRow

_log = logging.getLogger(__name__)

_IN_PERSON: Final = Needs(("confirm",))
"""With a person in front of it, as for confirmations: no program, no device."""


def _of_a_length(password: SecretStr) -> SecretStr:
    if not limits.MIN_PASSWORD <= len(password.get_secret_value()) <= limits.MAX_PASSWORD:
        # Not a ValueError, which would be named after the field.
        raise InvalidMessage(
            "a password has {shortest} to {longest:,} characters",
            shortest=limits.MIN_PASSWORD,
            longest=limits.MAX_PASSWORD,
        )
    return password


NewPassword = Annotated[SecretStr, AfterValidator(_of_a_length)]
_Password = Annotated[SecretStr, Field(max_length=limits.MAX_PASSWORD)]


class SetupBody(Strict):
    """The choice of a password with a one-time code."""

    code: Annotated[str, Field(max_length=64)] = Field(repr=False)
    password: NewPassword
    name: str | None = None
    language: Language | None = None


class LoginBody(Strict):
    """A person who logs in."""

    name: Annotated[str, Field(max_length=limits.MAX_PASSWORD)]
    password: _Password


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


sessions: Resource[Registry, Bearer] = Resource("sessions", "/api")


@sessions.get(TOKEN, "/session")
async def show_session(registry: Registry, asking: Bearer) -> SessionAnswer:
    """Return whom the token or session that asks is of, and what it opens."""
    return SessionAnswer(
        user=person_answer(asking.user),
        scopes=asking.claims.scope.split(),
        expires_at=asking.claims.expires_at,
    )


@sessions.patch(_IN_PERSON, "/session")
async def change_self(
    registry: Registry,
    asking: Bearer,
    name: str | None = None,
    language: OwnLanguage = None,
    time_zone: OwnTimeZone = None,
) -> PersonAnswer:
    """Change yourself; an empty text stands for the household's language or time zone."""
    change = UserChange(name=name, language=language, time_zone=time_zone)
    return person_answer(await registry.accounts.change(asking.user.id, change))


@sessions.post(_IN_PERSON, "/session/confirm", notes_refusals=True)
async def confirm_password(registry: Registry, asking: Bearer, password: _Password) -> None:
    """Allow a session for five minutes what needs the [password again](#sessions); 403 if it is wrong."""
    try:
        await registry.people.confirm(asking.claims, password, source=asking.source)
    except Forbidden:
        asking.note("confirm_password", address=asking.source, outcome="refused")
        raise


@sessions.put(_IN_PERSON, "/session/password")
async def change_password(
    registry: Registry, asking: Bearer, old: _Password, new: NewPassword
) -> Answer[LoggedInAnswer]:
    """Change your password, and answer with a new session's cookie and `{"user"}`; all other sessions end."""
    await registry.people.change_password(asking.user.id, old, new, source=asking.source)
    asking.note("change_password")
    return await _logged_in(registry, asking.connection, await registry.accounts.get(asking.user.id))


@sessions.delete(_IN_PERSON, "/sessions")
async def log_out_everywhere(registry: Registry, asking: Bearer) -> NoBody:
    """Log out everywhere."""
    await registry.people.end_sessions(asking.user.id)
    asking.note("log_out_everywhere")
    return _logged_out(asking.connection)


home: Resource[Registry, Bearer] = Resource("home", "/api/home")


@home.get(LOOK)
async def show_home(registry: Registry, asking: Bearer) -> HomeLayout:
    """Show how you arranged your *Home*: its cards in their order, starred, hidden and renamed."""
    user = asking.user.id
    row = await registry.store.read(lambda session: session.get(HomeLayoutRow, user))
    try:
        return HomeLayout.model_validate_json(row.layout) if row is not None else HomeLayout()
    except ValidationError:
        _log.warning("the layout of %s's Home cannot be read, and is not used", user)
        return HomeLayout()


@home.put(LOOK)
async def arrange_home(registry: Registry, asking: Bearer, layout: HomeLayout) -> HomeLayout:
    """Arrange your *Home*; an empty list of cards resets it."""
    row = HomeLayoutRow(user=asking.user.id, layout=layout.model_dump_json(exclude_defaults=True))

    def work(session: Session) -> None:
        session.merge(row)

    await registry.store.write(work)
    return layout


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the routes of those who have no session, or none any more."""
    people, of_home = registry.people, gate.require()

    async def show_setup(_: Request) -> Answer[SetupAnswer]:
        return answer(SetupAnswer(needed=await people.needs_setup()))

    @reads(SetupBody)
    async def set_up(request: Request) -> Answer[LoggedInAnswer]:
        body = await read_open(request, SetupBody, gate)
        source = source_of(request)
        user = await people.set_up(
            body.code, body.password, name=body.name, language=body.language, source=source
        )
        gate.note("choose_password", user, address=source)
        return await _logged_in(registry, request, user)

    @reads(LoginBody)
    async def log_in(request: Request) -> Answer[LoggedInAnswer]:
        body = await read_open(request, LoginBody, gate)
        source = source_of(request)
        try:
            user = await people.log_in(body.name, body.password, source=source)
        except Unauthorized:
            # What was typed as an unknown name may be a password.
            with suppress(NotFound):
                known = await registry.accounts.find(body.name)
                gate.note("log_in", known, address=source, outcome="refused")
            raise
        gate.note("log_in", user, address=source)
        return await _logged_in(registry, request, user)

    async def log_out(request: Request) -> NoBody:
        try:
            bearer = await of_home(request)
        except Unauthorized:
            pass  # a session that has ended already leaves its cookie to be removed
        else:
            await people.end_session(bearer.claims)
            bearer.note("log_out")
        return _logged_out(request)

    return [
        Route("/api/setup", show_setup),
        Route("/api/setup", set_up, methods=["POST"]),
        Route("/api/session", log_in, methods=["POST"]),
        Route("/api/session", log_out, methods=["DELETE"]),
    ]


async def _logged_in(registry: Registry, connection: HTTPConnection, user: User) -> Answer[LoggedInAnswer]:
    name = _browser(connection.headers.get("user-agent", ""))
    token = await registry.people.open_session(user, name=name)
    response = answer(LoggedInAnswer(user=person_answer(user)))
    _set_cookie(response, connection, token, max_age=limits.SESSION_S)
    return response


def _logged_out(connection: HTTPConnection) -> NoBody:
    response = NoBody()
    _set_cookie(response, connection, "", max_age=0)
    return response


def _set_cookie(response: Response, connection: HTTPConnection, value: str, *, max_age: int) -> None:
    response.set_cookie(
        SESSION_COOKIE,
        value,
        max_age=max_age,
        path=connection.scope.get("root_path") or "/",
        secure=connection.url.scheme == "https",
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


def person_answer(user: User) -> PersonAnswer:
    return PersonAnswer.model_validate(vars(user) | {"name": user.display_name}, extra="ignore")
