"""The pages as one application: sessions, sockets, headers and static files around NiceGUI."""

import asyncio
import importlib
import logging
import pkgutil
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

from nicegui import __version__ as nicegui_version
from nicegui import core
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import hub_web.pages
from agent_core.prompt import Household
from chat.http.errors import error_response
from chat.http.guard import is_from_own_page, page_policy
from chat.tasks import open_tasks, supervise
from contracts.errors import StrawberryError
from hub_server.http.pages import path_in_app
from hub_server.live import Live
from hub_server.service import Hub
from hub_web import door, limits
from hub_web.api import Api
from hub_web.feeds import Feeds
from hub_web.joining.files import WHEELS
from hub_web.parts.notices.notices import push_text
from hub_web.shell import add_missing_page, set_up_controls
from hub_web.sockets import SESSION, VIEW, Sessions, Sockets, WebSession, handle_errors, is_page_of, make_room
from hub_web.texts import LANGUAGE, choose
from hub_web.view import View

_log = logging.getLogger(__name__)

_SOCKET: Final = "/_nicegui_ws/"
_NICEGUI: Final = f"/_nicegui/{nicegui_version}/"
_OK: Final = 200


def load_pages() -> None:
    """Import every page, which registers it with NiceGUI; takes 0.1 s."""
    for module in pkgutil.walk_packages(hub_web.pages.__path__, f"{hub_web.pages.__name__}."):
        importlib.import_module(module.name)


@asynccontextmanager
async def open_server(hub: Hub, *, household: Household) -> AsyncIterator[ASGIApp]:
    """Start NiceGUI in this event loop; yield the application of all pages.

    NiceGUI has one application in a process, so there is one hub with pages in it.
    """
    add_missing_page()
    sessions = Sessions(hub.registry.authority, hub.registry.accounts)
    sockets = Sockets(sessions)
    sockets.guard(core.sio)
    core.app.config.add_run_config(
        reload=False,
        title="Strawberry",
        viewport="width=device-width, initial-scale=1",
        favicon=None,
        dark=None,
        language=None,
        binding_refresh_interval=None,
        reconnect_timeout=limits.RECONNECT_S,
        message_history_length=200,
        tailwind=False,
        unocss=None,
        prod_js=True,
        show_welcome_message=False,
        markdown=False,
    )
    set_up_controls()
    core.app.config.socket_io_js_transports = ["websocket"]
    # Expected errors are shown by the page.
    handle_errors(_on_error)
    core.loop = asyncio.get_running_loop()
    hub.leader.change("push words", _use_push_words)
    async with open_tasks(contained=True) as tasks:
        core.app.start()
        stop = hub.registry.authority.on_revoked(sockets.end)
        supervise(tasks, partial(sockets.watch, core.sio), name="web: sockets")
        app = WebApp(hub, sessions, sockets, household, tasks)
        try:
            yield GZipMiddleware(app, minimum_size=1_000, compresslevel=4)
        finally:
            stop()
            sockets.close()
            # Before the pages leave their turns, which would count as stopped by the person.
            hub.agent.assistant.running.interrupt()
            await core.app.stop()
            core.loop = None


def _use_push_words(live: Live) -> None:
    live.push.words = push_text


def _on_error(error: Exception) -> None:
    if not isinstance(error, StrawberryError):
        _log.error("a page failed", exc_info=error)


@dataclass(eq=False)
class WebApp:
    """Answers what the API does not.

    Attributes:
        tasks: Owns what pages follow.
    """

    hub: Hub
    sessions: Sessions
    sockets: Sockets
    household: Household
    tasks: asyncio.TaskGroup

    def __post_init__(self) -> None:
        self._feeds = Feeds(self.tasks)
        self._open = [
            Route(f"{door.ASSETS}{{digest}}/{{name}}", door.serve_asset),
            *(Route(f"/{name}", door.serve_fixed) for name in door.FIXED),
            Route(f"{WHEELS}{{name}}", self._joining),
            Route("/login", self._door),
            Route("/setup", self._door),
            Route(f"{door.ASSETS.rstrip('/')}-session", self._session),
        ]

    @property
    def routes(self) -> list[BaseRoute]:
        # Those of NiceGUI change with the pages that are open.
        return [*self._open, *core.app.routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or serve a socket."""
        path, base = path_in_app(scope), scope["root_path"]
        # NiceGUI would take a client's word for a prefix, and misses a base path that a proxy has taken off.
        headers = [pair for pair in scope["headers"] if pair[0] != b"x-forwarded-prefix"]
        scope = {**scope, "path": base + path, "headers": headers}
        connection = HTTPConnection(scope)
        if scope["type"] == "websocket":
            session = await self.sessions.of(connection)
            if session is None or not is_from_own_page(connection) or not path.startswith(_SOCKET):
                await send({"type": "websocket.close", "code": 1008})
                return
            await self.sockets.serve(session, core.app, scope, receive, send)
            return
        for route in self._open:
            match, found = route.matches(scope)
            if match is Match.FULL:
                await route.handle({**scope, **found}, receive, send)
                return
        session = await self.sessions.of(connection)
        if session is None:
            await self._outside(scope, path)(scope, receive, send)
            return
        if (refusal := _refusal(connection, path, session)) is not None:
            await refusal(scope, receive, send)
            return
        if not path.startswith("/_nicegui/"):
            make_room(session)
        scope[SESSION] = session
        scope[VIEW] = View(
            connection,
            session,
            Api(self.hub, session.token, connection),
            household=self.household,
            tasks=self.tasks,
            feeds=self._feeds,
        )
        scope[VIEW].enter()
        await core.app(scope, receive, _hardened(send, path))

    async def _door(self, request: Request) -> Response:
        path = path_in_app(request.scope)
        if path == "/login" and await self.sessions.of(request) is not None:
            return RedirectResponse(f"{request.scope['root_path']}/", 303)
        self._speak(request)
        return door.login_page(path, request, needs_setup=await self.hub.registry.people.needs_setup())

    async def _joining(self, request: Request) -> Response:
        self._speak(request)
        return await door.serve_joining(request, pin=self.hub.pin())

    def _speak(self, connection: HTTPConnection) -> None:
        LANGUAGE.set(choose(connection.headers.get("accept-language"), self.household.language))

    async def _session(self, request: Request) -> Response:
        # A page asks whose socket was closed.
        return Response(status_code=401 if await self.sessions.of(request) is None else 204)

    def _outside(self, scope: Scope, path: str) -> Response:
        """Return what who has no session gets: how a device joins, or the way to the login."""
        if path == "/join":
            connection = HTTPConnection(scope)
            self._speak(connection)
            return door.joining_page(connection, pin=self.hub.pin())
        if path.startswith("/_nicegui"):
            return error_response(path, 401, "unauthorized", "you are not logged in")
        query = scope["query_string"].decode("latin-1")
        wanted = path + (f"?{query}" if query else "")
        return RedirectResponse(f"{scope['root_path']}/login?next={quote(wanted, safe='/')}", 303)


def _refusal(connection: HTTPConnection, path: str, session: WebSession) -> Response | None:
    """Return the answer to a request that no page makes."""
    if path.startswith(_SOCKET):
        return error_response(path, 404, "not_found", "pages use WebSockets")
    if not is_from_own_page(connection):
        return error_response(path, 403, "wrong_origin", "only pages of this hub may send something here")
    if path.startswith("/_nicegui/client/") and not is_page_of(path.split("/")[3], session):
        return error_response(path, 404, "not_found", "there is no such page")
    return None


def _hardened(send: Send, path: str) -> Send:
    """Add the headers of pages and files; a page's own scripts run by a word that no text in it can know."""
    begun: Message | None = None
    page: list[bytes] = []
    nonce = secrets.token_urlsafe(16)

    async def hardened(message: Message) -> None:
        nonlocal begun
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if "x-nicegui-content" in headers:
                headers["content-security-policy"] = page_policy(nonce)
                begun = message
                return
            if path.startswith(_NICEGUI) and message["status"] == _OK:
                headers["cache-control"] = door.KEPT
        if begun is None:
            await send(message)
            return
        page.append(message.get("body", b""))
        if not message.get("more_body", False):
            # Texts in a page have no "<" of their own: they are JSON in which it is escaped.
            whole = b"".join(page).replace(b"<script", b'<script nonce="%s"' % nonce.encode())
            MutableHeaders(scope=begun)["content-length"] = str(len(whole))
            await send(begun)
            await send({"type": "http.response.body", "body": whole})

    return hardened
