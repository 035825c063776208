"""The route ``/mcp``: MCP over streamable HTTP, with the rights of a person's token.

The library takes 0.6 s to import, so that it is loaded with the first request, in a thread.
"""

import asyncio
import importlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from agent_core.lazy import Lazy
from chat.http.limits import WITH_TOKEN
from chat.http.streams import Client, farewell
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError
from hub_agent.parts import HubParts
from hub_server import limits
from hub_server.mcp.runs import BEARER, ToolRuns

if TYPE_CHECKING:
    from hub_server.mcp.server import McpServer

_SESSION: Final = b"mcp-session-id"


async def load(module: str) -> Any:
    """Import a module that needs the library.

    Raises:
        ConfigError: If that is not installed.
    """
    if find_spec("mcp") is None:
        raise ConfigError(
            "MCP needs a package that is not installed",
            hint="Install it: pip install 'strawberry-home[mcp]'.",
        )
    return await asyncio.to_thread(importlib.import_module, module)


class _Holder(NamedTuple):
    """Token and person of a session."""

    token: str
    user: str


class Mcp:
    """The endpoint.

    Args:
        tasks: Owns the server and its calls.
    """

    def __init__(self, parts: HubParts, tasks: asyncio.TaskGroup) -> None:
        self._parts = parts
        self._authenticate = parts.gate.require_user("chat", "call")
        self._runs = ToolRuns(parts.agent.calls.questions, tasks)
        self._server = Lazy(self._open, tasks=tasks, name="MCP server")
        # By session, whose it is; the one that was used longest ago is first.
        self._sessions: OrderedDict[str, _Holder] = OrderedDict()
        self._clients: set[Client] = set()

    def route(self) -> Route:
        return Route("/mcp", self, methods=["GET", "POST", "DELETE"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        bearer = await self._authenticate(request)
        body = await request.body()
        WITH_TOKEN.check(body)
        read: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])
        server = await self._server.get()
        session, token = request.headers.get("mcp-session-id", ""), bearer.claims.jti
        if session in self._sessions:
            self._sessions.move_to_end(session)
        begun = False

        async def again() -> Message:
            return next(read, None) or await receive()

        async def noted(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                made = dict(message["headers"]).get(_SESSION, b"").decode()
                if made and made not in self._sessions and not session:
                    self._sessions[made] = _Holder(token, bearer.user.id)
                if scope["method"] == "DELETE" and message["status"] == 200:
                    # Its client has ended it; it no longer counts.
                    self._sessions.pop(session, None)
            await send(message)

        async with self._parts.connections.hold(None, token=token) as client:
            self._clients.add(client)
            try:
                await server.handle({**scope, BEARER: bearer}, again, noted, token=token)
            finally:
                self._clients.discard(client)
        if client.gone and begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif client.gone:
            await farewell(client)(scope, receive, send)
        await self._bound(token)

    async def end_revoked(self, revocation: Revocation) -> None:
        """End the sessions and calls of tokens that were revoked."""
        tokens = frozenset(revocation.tokens)
        self._runs.end(tokens)
        for session in [each for each, holder in self._sessions.items() if holder.token in tokens]:
            await self._end(session)

    def close(self) -> None:
        # The server waits for the streams when it closes.
        for client in tuple(self._clients):
            client.leave()

    async def _bound(self, token: str) -> None:
        """End the sessions that were used longest ago where there are too many."""
        own = [session for session, holder in self._sessions.items() if holder.token == token]
        for session in own[: -limits.SESSIONS_PER_TOKEN]:
            await self._end(session)
        while len(self._sessions) > limits.MOST_SESSIONS:
            crowd = Counter(holder.user for holder in self._sessions.values())
            ((user, _),) = crowd.most_common(1)
            await self._end(next(each for each, holder in self._sessions.items() if holder.user == user))

    async def _end(self, session: str) -> None:
        holder = self._sessions.pop(session, None)
        if holder is not None and (server := self._server.opened) is not None:
            await server.end(session, token=holder.token)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator["McpServer"]:
        module = await load("hub_server.mcp.server")
        server: McpServer = module.McpServer(self._parts, self._runs)
        async with server.manager.run():
            yield server
