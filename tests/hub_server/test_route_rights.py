"""Every route, page and socket of the hub and who may use it: one table, tried with all others as well."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from agent_core.prompt import Household
from contracts.claims import SCOPES, Scope
from hub_registry.access.accounts import User
from hub_registry.access.bearer import SESSION_COOKIE
from hub_registry.access.token_rows import TokenRequest
from hub_web import open_web
from tests.hub_agent.conftest import installed
from tests.hub_agent.home import Device, Home, open_home
from tests.hub_agent.skills import LampSkill

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Row(NamedTuple):
    """A route.

    Attributes:
        method: That of HTTP, or ``SOCKET`` for a WebSocket.
        path: ``VERSION`` in it is NiceGUI's.
        who: Who is let in, with a session, a token, or as a device: ``A`` an admin, ``M`` a member, ``G`` a
            guest, ``D`` a device of the admin; small letters with a session alone; ``*`` anybody, without
            any of that; ``-`` nobody. Who is let in may still be told that there is no such thing.
        own: What stands for the parameters of the path where it is about a thing of Anna's, which nobody
            else may know of, or a query; several after each other with ``|``; ``-`` where nothing is
            a person's own, or can be told by.
    """

    method: str
    path: str
    who: str
    own: str = ""

    def about(self, own: str) -> str:
        """Return the path with these values for its parameters."""
        if own.startswith("?"):
            return self.path + own
        values = iter(own.split("/"))
        return re.sub(r"\{[^}]+\}", lambda _: next(values), self.path)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


TABLE = """
POST   /api/chat                                        AMGD
SOCKET /api/chat/stream                                 AMGD
POST   /v1/chat/completions                             AMGD
POST   /v1/responses                                    AMGD
GET    /v1/models                                       AMGD
GET    /v1/models/{model}                               AMGD  -
GET    /ollama/                                         AMGD
GET    /ollama/api/version                              AMGD
GET    /ollama/api/tags                                 AMGD
GET    /ollama/api/ps                                   AMGD
POST   /ollama/api/show                                 AMGD
POST   /ollama/api/chat                                 AMGD
POST   /ollama/api/generate                             AMGD
GET    /api/agents                                      AMGD
POST   /api/agents                                      A
GET    /api/agents/{name}                               A
PUT    /api/agents/{name}                               A
POST   /api/agents/{name}/check                         A
GET    /api/agents/{name}/files                         A
GET    /api/agents/{name}/files/{path}                  A
PUT    /api/agents/{name}/files/{path}                  A
DELETE /api/agents/{name}/files/{path}                  A
DELETE /api/agents/{name}                               A
GET    /api/models                                      AMGD
GET    /api/prompt                                      AMG
GET    /api/world                                       AMGD
POST   /api/turns/{turn}/cancel                         AMGD  -
POST   /api/turns/{turn}/confirmations/{question}       AMG   TURN/q
GET    /api/conversations                               AMGD
GET    /api/conversations/{conversation}                AMGD  annas
GET    /api/conversations/{conversation}/export         AMGD  annas
PATCH  /api/conversations/{conversation}                AMGD  annas
DELETE /api/conversations/{conversation}                AMGD  annas
GET    /api/turns                                       AMG
GET    /api/turns/{turn}                                AMG   TURN
GET    /api/turns/{turn}/changes                        AMG   TURN
POST   /api/turns                                       D
GET    /api/skills                                      AMGD
GET    /api/skills/search                               AMGD
GET    /api/skills/describe                             AMGD  ?path=devices.annas.LampSkill
GET    /api/skills/methods                              AMGD
GET    /api/skills/sentence                             AMGD
GET    /api/skills/labels                               AMGD
GET    /api/vocabulary                                  AMGD
GET    /api/sentences                                   AMG
GET    /api/home                                        AMG
PUT    /api/home                                        AMG
GET    /api/skills/{skill}/providers                    A
PUT    /api/skills/{skill}/providers                    A
POST   /api/skills/call                                 AM    ?
POST   /api/skills/call/within                          D
POST   /api/exec                                        AMG
GET    /api/mcp/servers                                 A
POST   /api/notifications/test                          AMG
GET    /api/push                                        AMG
POST   /api/push                                        AMG
DELETE /api/push/{device}                               AMG   PUSH
GET    /metrics                                         A
GET    /mcp                                             AMG
POST   /mcp                                             AMG
DELETE /mcp                                             AMG
GET    /api/events                                      AMG
GET    /api/captures                                    AMG
POST   /api/captures                                    AM
GET    /api/captures/{capture}                          AMG   annas
DELETE /api/captures/{capture}                          AM    annas
GET    /api/captures/{capture}/files                    AMG   annas
GET    /api/captures/{capture}/files/{name}             AMG   annas/annas.jsonl
GET    /api/captures/{capture}/numbers                  AMG   annas
GET    /api/watchers                                    AMG
GET    /api/watchers/{name}                             AMG   annas
GET    /api/watchers/{name}/trace                       AMG   annas
POST   /api/watchers                                    AM
POST   /api/watchers/from-words                         AM
PATCH  /api/watchers/{name}                             AMG   annas
POST   /api/watchers/{name}/approve                     AMG   annas
POST   /api/watchers/{name}/predicate                   AMG   annas
POST   /api/watchers/{name}/pause                       AMG   annas
POST   /api/watchers/{name}/resume                      AMG   annas
POST   /api/watchers/{name}/snooze                      AMG   annas
POST   /api/watchers/{name}/run                         AMG   annas
POST   /api/watchers/{name}/test                        AMG   annas|own
DELETE /api/watchers/{name}                             AMG   annas
GET    /api/timers                                      AMG
POST   /api/timers/{timer}/pause                        AM    TIMER
POST   /api/timers/{timer}/resume                       AM    TIMER
DELETE /api/timers/{timer}                              AM    TIMER
GET    /api/bus/latest                                  AMG
GET    /api/bus/history                                 AMG
GET    /api/bus/tree                                    AMG
POST   /api/bus/publish                                 AMG
GET    /api/memory                                      AMG
POST   /api/memory                                      AM
PATCH  /api/memory/{entry}                              AM    MEMORY
POST   /api/memory/undo                                 AM
DELETE /api/memory/{entry}                              AM    MEMORY
GET    /api/nodes                                       AMG
GET    /api/nodes/{device}/{name}/logs                  AMG   annas/camera
POST   /api/nodes/{device}/{name}/{action}              AMG   annas/camera/stop
GET    /api/setup                                       *
POST   /api/setup                                       *
POST   /api/session                                     *
GET    /api/session                                     AMGD
PATCH  /api/session                                     AMG
DELETE /api/session                                     *
POST   /api/session/confirm                             AMG
PUT    /api/session/password                            AMG
DELETE /api/sessions                                    AMG
GET    /api/users                                       A
POST   /api/users                                       A
PATCH  /api/users/{user}                                A
POST   /api/users/{user}/code                           A
DELETE /api/users/{user}                                A
GET    /api/devices                                     AMG
GET    /api/devices/{name}                              AMG   annas
POST   /api/devices                                     A
PATCH  /api/devices/{name}                              AMG   annas
GET    /api/devices/review                              A
GET    /api/devices/{name}/review                       A
POST   /api/devices/{name}/review                       A
PUT    /api/devices/{name}/allowed                      AMG   annas
GET    /api/devices/{device}/installation               AMG   annas
PUT    /api/devices/{device}/installation/integrations/{name} AMG annas/weather
PUT    /api/devices/{device}/installation/uploads/{file} AMG  annas/tea.zip
GET    /api/devices/{device}/installation/skills/{name} AMG   annas/tea
POST   /api/devices/{device}/installation/skills/{name} AMG   annas/tea
DELETE /api/devices/{device}/installation/skills/{name} AMG   annas/tea
POST   /api/devices/{name}/invitations                  A
POST   /api/devices/{name}/revoke                       A
DELETE /api/devices/{name}                              A
GET    /api/devices/join                                A
POST   /api/devices/join/{code}/approve                 A
DELETE /api/devices/join/{code}                         A
GET    /api/tokens                                      AMG
POST   /api/tokens                                      AMG
DELETE /api/tokens/{jti}                                AMG   TOKEN
GET    /api/clients                                     A
POST   /api/clients                                     A
DELETE /api/clients/{name}                              A
POST   /api/purge                                       A
GET    /api/audit                                       AMG
GET    /api/cluster                                     A
GET    /api/audit/export                                AMG
GET    /api/home-assistant                              A
POST   /api/home-assistant/expose                       A
POST   /api/home-assistant/hide                         A
GET    /api/health                                      *
GET    /api/openapi.json                                AMGD
GET    /.well-known/strawberry                          *
GET    /.well-known/jwks.json                           *
GET    /ca.crt                                          *
POST   /api/devices/enrol                               *
POST   /api/devices/join                                *
POST   /api/devices/join/poll                           *
GET    /api/bus                                         D
POST   /api/tokens/renew                                D
GET    /api/models/settings                             A
PUT    /api/models                                      A
POST   /api/models/test                                 A
PUT    /api/models/keys/{name}                          A
GET    /api/ollama                                      A
POST   /api/ollama/pull                                 A
GET    /api/system                                      A
GET    /api/system/checks                               A
GET    /api/system/logs                                 A
POST   /api/system/backup                               A
PUT    /api/system/restore                              A
POST   /api/system/restore                              A
GET    /api/system/lan                                  A
PUT    /api/system/lan                                  A
GET    /api/system/household                            A
PATCH  /api/system/household                            A
GET    /api/system/home-assistant/found                 A
PUT    /api/system/home-assistant                       A
GET    /api/system/home-assistant                       A
PATCH  /api/system/home-assistant                       A
PUT    /api/system/home-broker                          A
GET    /api/system/skipped                              A
PUT    /api/system/skipped                              A
GET    /_strawberry/{digest}/{name}                     *
GET    /join                                            *
GET    /login                                           *
GET    /manifest.webmanifest                            *
GET    /join/{name}                                     *  -
GET    /sw.js                                           *
GET    /icon-192.png                                    *
GET    /icon-512.png                                    *
GET    /setup                                           *
GET    /_strawberry-session                             amg
GET    /                                                amg
GET    /agents                                          am
GET    /agents/{name}                                   a
GET    /audit                                           amg
GET    /bus                                             am
GET    /captures                                        am
GET    /chat                                            amg
GET    /chat/{conversation}                             amg   annas
GET    /devices                                         amg
GET    /devices/{name}                                  amg   annas
GET    /first-steps                                     a
GET    /home-assistant                                  a
GET    /memory                                          am
GET    /models                                          a
GET    /people                                          amg
GET    /skills                                          amg
GET    /system                                          a
GET    /turns                                           amg
GET    /turns/{turn}                                    amg   TURN
GET    /watchers                                        am
GET    /watchers/new                                    am
GET    /watchers/{name}                                 am   annas
GET    /watchers/{name}/edit                            am   annas
GET    /{path}                                          amg   -
SOCKET /_nicegui_ws/{path}                              amg   -
GET    /_nicegui_ws/{path}                              amg   -
SOCKET /_nicegui/VERSION/static/{path}                  -
GET    /_nicegui/VERSION/static/{path}                  amg   -
GET    /_nicegui/VERSION/libraries/{key}                amg   -
GET    /_nicegui/VERSION/components/{key}               amg   -
GET    /_nicegui/VERSION/resources/{key}/{path}         amg   -
GET    /_nicegui/VERSION/dynamic_resources/{name}       amg   -
GET    /_nicegui/VERSION/esm/{key}/{path}               amg   -
"""
ROWS = [Row(*line.split()) for line in TABLE.strip().splitlines()]

NICEGUI = version("nicegui")

HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
}

BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/api/captures"): {"topics": ["hub/main/status"], "path": "new.jsonl"},
    ("POST", "/api/watchers"): {
        "name": "new",
        "instruction": "tell me",
        "topics": {"hub": "hub/main/status"},
        "predicate": "changed(hub)",
    },
    ("POST", "/api/watchers/from-words"): {"sentence": "at 22:00 tell me to sleep"},
    ("POST", "/api/skills/call"): {
        "device": "hub",
        "skill": "WatcherSkill",
        "method": "set_timer",
        "kwargs": {"minutes": 60, "text": "tea"},
    },
}
"""Where only what is asked for says that a guest may not; other requests have none, and do nothing."""
OWN_BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PATCH", "/api/devices/{name}"): {"shared": True},
    ("PUT", "/api/devices/{device}/installation/integrations/{name}"): {"on": True},
    ("POST", "/api/devices/{device}/installation/skills/{name}"): {"digest": "0"},
    ("PUT", "/api/devices/{name}/allowed"): {"method": "LampSkill.turn_on", "digest": None},
    ("PATCH", "/api/memory/{entry}"): {"text": "mine now"},
    ("PATCH", "/api/conversations/{conversation}"): {"title": "mine now"},
    ("PATCH", "/api/watchers/{name}"): {"instruction": "mine now"},
    ("POST", "/api/turns/{turn}/confirmations/{question}"): {"approve": True},
    ("POST", "/api/watchers/{name}/approve"): {"digest": ""},
    ("POST", "/api/watchers/{name}/snooze"): {"seconds": 60},
    ("POST", "/api/watchers/{name}/test"): {"capture": "annas"},
    ("POST", "/api/watchers/{name}/predicate"): {"predicate": "changed(hub)"},
    ("POST", "/api/skills/call"): {"device": "annas", "skill": "LampSkill", "method": "turn_on"},
}
"""What would do something with a thing of Anna's."""


@dataclass
class Visitors:
    """A home, and everybody who comes to its door."""

    home: Home
    people: dict[str, User]
    device: Device
    http: httpx.AsyncClient

    async def ask(self, row: Row, **headers: str) -> int:
        """Return the status of an answer; what it streams is not waited for."""
        path = row.about("/".join(["nothing-there"] * 3)).replace("VERSION", NICEGUI)
        body = BODIES.get((row.method, row.path))
        method = row.method
        if method == "SOCKET":
            method, headers = "GET", {**headers, **HANDSHAKE}
            path = path.replace("_ws/nothing-there", "_ws/socket.io/?EIO=4&transport=websocket")
        async with self.http.stream(method, path, headers=headers, json=body) as answer:
            if answer.headers.get("location", "").startswith("/login"):
                return 401
            if answer.status_code in (403, 405) and path.startswith("/api/"):
                told = json.loads(await answer.aread())
                error = told.get("error", told)
                assert error["hint"] if isinstance(error, dict) else ". " in error, f"{row}: {told}"
            return answer.status_code

    async def session(self, person: str) -> dict[str, str]:
        """Headers of a browser in which a person has just logged in."""
        token = await self.home.hub.registry.people.open_session(self.people[person], name="browser")
        origin = str(self.http.base_url).rstrip("/")
        return {"cookie": f"strawberry_session={token}", "origin": origin}

    async def bearer(self, person: str) -> dict[str, str]:
        """Headers of a program that acts for a person with every scope."""
        scopes: tuple[Scope, ...] = ("chat", "call", "confirm", "admin")
        return {"authorization": f"Bearer {await self.home.token(self.people[person], scopes=scopes)}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitors(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitors]:
    """One home for all of them: no request may change what another one is answered."""
    directory = tmp_path_factory.mktemp("rights") / "home"
    async with open_home(directory, host=installed(directory)) as home:
        registry = home.hub.registry
        people = {
            "A": registry.admin,
            "M": await registry.accounts.add("Anna", role="member"),
            "B": await registry.accounts.add("Ben", role="member"),
            "G": await registry.accounts.add("Guest", role="guest"),
        }
        device = await home.device("Spy", LampSkill(), shared=True)
        home.hub.pages.expect()
        async with (
            open_web(home.hub, household=Household()),
            httpx.AsyncClient(base_url=home.hub.url, timeout=60, verify=False) as http,
        ):
            yield Visitors(home, people, device, http)


def _served(route: BaseRoute) -> set[tuple[str, str]]:
    match route:
        case Mount():
            return {(method, f"{route.path}/{{path}}") for method in ("GET", "SOCKET")}
        case Route():
            return {(method, route.path) for method in (route.methods or set()) - {"HEAD"}}
        case WebSocketRoute():
            return {("SOCKET", route.path)}
    raise AssertionError(f"{route!r} may serve anything")


async def test_every_route_is_in_the_table(visitors: Visitors) -> None:
    api, headers = visitors.home.hub.app, await visitors.session("A")
    for row in ROWS:
        if row.who in ("a", "amg"):
            # NiceGUI adds routes for some elements of a page that is open.
            await visitors.ask(row, **headers)
    pages: Any = visitors.home.hub.pages.app
    assert isinstance(api, Starlette)
    served = set[tuple[str, str]]().union(*map(_served, [*api.routes, *pages.app.routes]))
    assert {(method, path.replace(":path", "")) for method, path in served} == {
        (row.method, row.path.replace("VERSION", NICEGUI)) for row in ROWS
    }
    by_name = [row for row in ROWS if "{" in row.path and set(row.who.upper()) & {"M", "G"}]
    assert [str(row) for row in by_name if not row.own] == []


async def tried(
    visitors: Visitors,
    is_right: Callable[[Row, int], bool],
    headers: Callable[[], Awaitable[dict[str, str]]],
    rows: Iterable[Row] = ROWS,
) -> list[str]:
    """Return the rows that answered otherwise than they must, with their status."""
    wrong = []
    given = await headers()
    for row in rows:
        status = await visitors.ask(row, **given)
        if not is_right(row, status):
            wrong.append(f"{row}: {status}")
        if "/api/session" in row.path:
            # It may have ended with that.
            given = await headers()
    return wrong


_KINDS = """
POST /api/chat, SOCKET /api/chat/stream, POST /api/turns, GET /v1/models, GET /ollama/api/tags, GET /mcp,
GET /metrics, GET /api/session, GET /api/users, GET /api/health,
GET /devices, SOCKET /_nicegui_ws/{path}, GET /join
"""
_BY_NAME = {str(row): row for row in ROWS}
OF_EACH_KIND = [_BY_NAME[name] for name in re.split(r",\s+", _KINDS.strip())]
"""Enough for what one place checks for all: the guard before the routes, or what reads a token."""


def is_let_in(status: int) -> bool:
    """Return whether an answer comes from behind the door; one that failed says nothing of who may."""
    return status < 500 and status not in (401, 403)


@pytest.mark.parametrize("way", ["session", "bearer"])
@pytest.mark.parametrize("person", ["A", "M", "G"])
async def test_each_route_lets_in_those_whom_it_names(visitors: Visitors, person: str, way: str) -> None:
    def is_right(row: Row, status: int) -> bool:
        if row.who == "*" or person in row.who:
            return is_let_in(status)
        if row.who.islower() and way == "session":
            return is_let_in(status) if person.lower() in row.who else status == 403
        return status in ((401, 403) if row.who.islower() else (403,))

    assert await tried(visitors, is_right, lambda: getattr(visitors, way)(person)) == []


async def test_a_device_is_let_in_where_it_is_named(visitors: Visitors) -> None:
    wrong = []
    async with visitors.home.client(visitors.device.token) as client:
        by_device = Visitors(visitors.home, visitors.people, visitors.device, client)
        for row in ROWS:
            status = await by_device.ask(row)
            if row.who != "*" and not (is_let_in(status) if "D" in row.who else status in (401, 403)):
                wrong.append(f"{row}: {status}")
    assert wrong == []


@pytest.mark.parametrize("visitor", ["without a session", "logged out", "revoked", "expired", "nonsense"])
async def test_nobody_else_is_let_in(visitors: Visitors, visitor: str) -> None:
    authority, admin = visitors.home.hub.registry.authority, visitors.people["A"]

    async def headers() -> dict[str, str]:
        match visitor:
            case "expired":
                # Issued as any other: the hub knows it, and only its time is over.
                request = TokenRequest(
                    kind="user", subject=admin.id, owner=admin.id, scopes=SCOPES, lifetime_s=-60
                )
                return {
                    **await visitors.session("A"),
                    "cookie": f"{SESSION_COOKIE}={await authority.issue(request)}",
                }
            case "logged out" | "revoked":
                given = await (visitors.session if visitor == "logged out" else visitors.bearer)("A")
                token = (given.get("authorization") or given["cookie"]).replace("=", " ").split()[-1]
                await authority.revoke([authority.check(token).jti])
                return given
            case "nonsense":
                return {"authorization": "Bearer nonsense"}
        return {}

    def is_right(row: Row, status: int) -> bool:
        refused = (401, 403) if row.method == "SOCKET" else (401,)
        return (status not in refused) if row.who == "*" else status in refused

    rows = ROWS if visitor == "without a session" else OF_EACH_KIND
    assert await tried(visitors, is_right, headers, rows) == []


@pytest.mark.parametrize(
    ("foreign", "status", "way"),
    [
        ({"host": "evil.example"}, 421, "session"),
        ({"host": "evil.example"}, 421, "bearer"),
        ({"origin": "http://evil.example"}, 403, "session"),
        ({"origin": "null"}, 403, "bearer"),
        ({"origin": "http://127.0.0.1:1"}, 403, "session"),
    ],
)
async def test_no_route_serves_another_host_or_the_page_of_another_origin(
    visitors: Visitors, foreign: dict[str, str], status: int, way: str
) -> None:
    given = await getattr(visitors, way)("A")

    async def headers() -> dict[str, str]:
        return {**given, **foreign}

    assert await tried(visitors, lambda _, found: found == status, headers, OF_EACH_KIND) == []


async def test_a_session_changes_nothing_for_a_page_that_does_not_say_where_it_is_from(
    visitors: Visitors,
) -> None:
    """A form of another site sends the cookie in old browsers; it has no Origin of ours."""
    cookie = {"cookie": (await visitors.session("A"))["cookie"]}

    async def headers() -> dict[str, str]:
        return cookie

    changing = [row for row in ROWS if row.method != "GET" and row.who != "*"]
    assert await tried(visitors, lambda _, status: status == 403, headers, changing) == []


async def test_what_is_one_persons_is_unknown_to_another(visitors: Visitors) -> None:
    anna, http = await visitors.bearer("M"), visitors.http

    async def done(method: str, path: str, body: Any = None) -> Any:
        answer = await http.request(method, path, headers=anna, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    device = await visitors.home.device("Annas", LampSkill())
    async with visitors.home.client() as admin:
        await admin.patch(f"/api/devices/{device.id}", json={"owner": "anna"})
    said = await done("POST", "/api/chat", {"message": "turn on the lamp on spy", "conversation": "annas"})
    watcher = BODIES["POST", "/api/watchers"]
    await done("POST", "/api/watchers", {**watcher, "name": "annas"})
    await done("POST", "/api/captures", {"topics": ["hub/main/status"], "path": "annas.jsonl"})
    fact = {"category": "Presents", "text": "Ben wants a kite", "private": True}
    memory = (await done("POST", "/api/memory", fact))["id"]
    timer = {"device": "hub", "skill": "WatcherSkill", "method": "set_timer"}
    given = {"kwargs": {"minutes": 60, "text": "annas"}}
    timer_id = (await done("POST", "/api/skills/call", {**timer, **given}))["result"]["id"]
    await done("POST", "/api/tokens", {"name": "annas", "scopes": ["chat"]})
    jti = next(each["jti"] for each in await done("GET", "/api/tokens") if each["name"] == "annas")
    key = (await done("GET", "/api/push"))["key"]
    keys = {"p256dh": key, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}
    browser = {"endpoint": "https://push.example/annas", "keys": keys, "origin": "https://home.example"}
    push = (await done("POST", "/api/push", browser))["id"]
    named = {"TURN": said["turn"], "MEMORY": memory, "TIMER": timer_id, "TOKEN": jti, "PUSH": push}
    shown = (
        "/api/conversations/annas",
        "/api/devices/annas",
        "/api/memory",
        "/api/push",
        "/api/timers",
        "/api/tokens",
    )
    before = [await done("GET", path) for path in shown]

    wrong = []
    for other in ("B", "G"):
        headers = await visitors.session(other)
        await http.post("/api/watchers", json={**watcher, "name": "own"}, headers=headers)
        for row in ROWS:
            if row.own == "-" or (not row.own and (row.method != "GET" or "{" in row.path)):
                continue
            # Lists have nothing of hers in them.
            for own in row.own.split("|"):
                path = row.about("/".join(named.get(value, value) for value in own.split("/")))
                body = OWN_BODIES.get((row.method, row.path))
                async with http.stream(row.method, path, headers=headers, json=body) as answer:
                    is_endless = answer.headers.get("content-type", "").startswith("text/event-stream")
                    told = "" if is_endless else (await answer.aread()).decode(errors="replace")
                # A guest is told that a guest may not, before it is looked for.
                if own and answer.status_code != 404 and (other, answer.status_code) != ("G", 403):
                    wrong.append(f"{row}: {answer.status_code}")
                elif re.search("kite|lamp" if own else "kite|annas", told):
                    wrong.append(f"{row} tells {told}")
    assert wrong == []
    assert [await done("GET", path) for path in shown] == before
    assert (await done("GET", "/api/captures/annas"))["state"] == "active"
    assert (await done("GET", "/api/watchers/annas"))["state"] == "active"
