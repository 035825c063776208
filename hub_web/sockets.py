"""Sessions, and the sockets of their pages: each acts on pages of its session alone, and ends with it.

Parts of NiceGUI, python-socketio and python-engineio that are not documented are used in this module alone:
``tests/hub_web/test_nicegui.py`` fails where they change.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

import socketio
from nicegui import Client, core
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chat.http.limits import MAX_SOCKET_MESSAGE, WITH_TOKEN
from contracts.devices.presence import Revocation
from contracts.errors import InvalidMessage, NotFound, Unauthorized
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.bearer import SESSION_COOKIE
from hub_registry.access.tokens import TokenAuthority
from hub_web import limits

_log = logging.getLogger(__name__)

SESSION: Final = "strawberry.session"
"""Where the scope of a request or a socket has its `WebSession`."""
VIEW: Final = "strawberry.view"
"""Where the scope of the request for a page has its `View`."""


_GUARDED: Final[WeakKeyDictionary[socketio.AsyncServer, Any]] = WeakKeyDictionary()


@dataclass(frozen=True)
class WebSession:
    """A login: a token of its person, which the browser keeps in a cookie.

    Attributes:
        id: ``jti`` of its token.
        scopes: What the token is good for.
        expires_at: Unix time.
    """

    id: str
    token: str
    user: User
    scopes: frozenset[str]
    expires_at: float

    @property
    def is_admin(self) -> bool:
        return self.user.role == "admin" and "admin" in self.scopes


class Sessions:
    """Reads the session of a request or a socket."""

    def __init__(self, authority: TokenAuthority, accounts: Accounts) -> None:
        self._authority = authority
        self._accounts = accounts

    async def of(self, connection: HTTPConnection) -> WebSession | None:
        """Return the session; None where there is no valid one."""
        token = connection.cookies.get(SESSION_COOKIE)
        if not token:
            return None
        try:
            claims = await self._authority.authenticate(token)
            if claims.kind != "user":
                return None
            user = await self._accounts.get(claims.own)
        except (Unauthorized, NotFound):
            return None
        return WebSession(claims.jti, token, user, frozenset(claims.scopes), claims.exp)

    def is_good(self, session: WebSession) -> bool:
        return session.expires_at > time.time() and not self._authority.is_revoked(session.id)


@dataclass(eq=False)
class _Socket:
    session: WebSession
    scope: asyncio.Timeout

    def end(self) -> None:
        """Cancel what serves it."""
        if not self.scope.expired():
            # A time-out that is moved to the past ends its block at once.
            self.scope.reschedule(0)


class Sockets:
    """All open sockets."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: set[_Socket] = set()

    def guard(self, server: socketio.AsyncServer) -> None:
        """Restrict a socket to pages of its own session; NiceGUI finds a page by the id in a message."""
        server.eio.max_http_buffer_size = MAX_SOCKET_MESSAGE
        server.eio.ping_interval, server.eio.ping_timeout = limits.PING_S
        # `watch` looks after the clients: a task of its own would not outlive the loop that it was begun in.
        server.eio.start_service_task = False
        handlers = server.handlers["/"]
        if handlers is _GUARDED.get(server):
            return  # a second hub in this process, one after the other
        for name in ("event", "javascript_response", "ack", "log", "handshake"):
            handlers[name] = _checked(server, handlers[name])
        handlers["connect"] = _checked_connect(handlers["connect"])
        _GUARDED[server] = handlers

    async def serve(
        self, session: WebSession, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve one until its client leaves or its session ends."""
        if sum(each.session.user.id == session.user.id for each in self._open) >= limits.MOST_SOCKETS:
            await send({"type": "websocket.close", "code": 1013})
            return

        async def bounded() -> Message:
            message = await receive()
            try:
                WITH_TOKEN.check((message.get("text") or "").encode())
            except InvalidMessage:
                return {"type": "websocket.disconnect", "code": 1009}
            return message

        with suppress(TimeoutError):
            async with asyncio.timeout(None) as scope_of:
                socket = _Socket(session, scope_of)
                self._open.add(socket)
                try:
                    await app({**scope, SESSION: session}, bounded, send)
                finally:
                    self._open.discard(socket)
        if scope_of.expired():
            # What serves it has closed it, unless it had not begun.
            with suppress(RuntimeError, OSError):
                await send({"type": "websocket.close", "code": 1000})

    async def end(self, revocation: Revocation) -> None:
        self._end(lambda session: session.id in revocation.tokens)

    def close(self) -> None:
        """End all: the hub stops.

        Their pages are not deleted: the browsers would empty what they show until the hub is back.
        """
        for socket in tuple(self._open):
            socket.end()

    def _end(self, concerned: Callable[[WebSession], bool]) -> None:
        for socket in tuple(self._open):
            if concerned(socket.session):
                socket.end()
        for client in tuple(Client.instances.values()):
            session = session_of(client)
            if session is not None and concerned(session):
                _delete(client)

    async def watch(self, server: socketio.AsyncServer) -> None:
        """End sockets whose session has expired, and those of clients that do not read, until cancelled."""
        while True:
            await asyncio.sleep(limits.SOCKETS_LOOK_S)
            if not all(self._sessions.is_good(each.session) for each in self._open):
                self._end(lambda session: not self._sessions.is_good(session))
            for name, socket in tuple(server.eio.sockets.items()):
                if socket.closed:
                    server.eio.sockets.pop(name, None)
                elif not socket.closing and socket.queue.qsize() > limits.MOST_UNREAD:
                    _log.info("a browser does not read: disconnected")
                    await socket.close(wait=False, abort=True)
                elif not socket.closing:
                    await socket.check_ping_timeout()


def handle_errors(handler: Callable[[Exception], None]) -> None:
    # NiceGUI's own handler logs each with a stack trace.
    core.app._exception_handlers[:] = [handler]


def make_room(session: WebSession) -> None:
    """Delete the oldest pages of a person with too many, those without a browser first."""
    theirs = [each for each in Client.instances.values() if _is_of_person(each, session)]
    theirs.sort(key=lambda client: (client.has_socket_connection, client.created))
    for client in theirs[: max(0, len(theirs) - limits.MOST_PAGES + 1)]:
        _delete(client)


def _delete(client: Client) -> None:
    """Delete a page at once; NiceGUI would do so again some time after its browser has gone."""
    for task in client._delete_tasks.values():
        task.cancel()
    client.delete()


def session_of(client: Client) -> WebSession | None:
    """Return the session that a page was made for."""
    found = client.request.scope.get(SESSION)
    return found if isinstance(found, WebSession) else None


def _is_of_person(client: Client, session: WebSession) -> bool:
    found = session_of(client)
    return found is not None and found.user.id == session.user.id


def is_page_of(client_id: object, session: WebSession) -> bool:
    """Return whether there is a page with this id, and it is one of this session."""
    client = Client.instances.get(client_id) if isinstance(client_id, str) else None
    found = None if client is None else session_of(client)
    return found is not None and found.id == session.id


def _checked(server: socketio.AsyncServer, handler: Callable[..., Any]) -> Callable[..., Any]:
    async def checked(sid: str, message: Any) -> Any:
        session = server.get_environ(sid)["asgi.scope"][SESSION]
        if not isinstance(message, dict) or not is_page_of(message.get("client_id"), session):
            return False
        Client.instances[message["client_id"]].request.scope[VIEW].enter()
        answer = handler(sid, message)
        return await answer if asyncio.iscoroutine(answer) else answer

    return checked


def _checked_connect(handler: Callable[..., Any]) -> Callable[..., Any]:
    async def checked(sid: str, environ: dict[str, Any], _: Any = None) -> Any:
        scope = environ["asgi.scope"]
        wanted = parse_qs(scope["query_string"].decode("latin-1")).get("client_id", [""])[0]
        if not is_page_of(wanted, scope[SESSION]):
            raise socketio.exceptions.ConnectionRefusedError("Implicit handshake failed")
        return await handler(sid, environ)

    return checked
