"""Answers that take a while: they end when the client disconnects or its token is revoked."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Never

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chat.http import limits
from chat.http.errors import CLIENT_CLOSED_REQUEST
from chat.http.requests import Answer
from contracts.errors import TooManyRequests
from identity import tokens

STREAMS: Final = 64
"""Streams of one kind that a token has open at once: each page of a browser follows one, and a person has up
to 64 pages, see `hub_web.sockets`."""


@dataclass(eq=False)
class Client:
    """A client that waits for an answer.

    Attributes:
        scope: In which the answer is made.
        gone: Whether the answer is no longer wanted: the client left, or its token was revoked.
        revoked: Whether its token was revoked meanwhile.
        watching: Looks whether it leaves.
    """

    token: str
    scope: asyncio.Timeout
    gone: bool = False
    revoked: bool = False
    watching: "asyncio.Task[None] | None" = None

    def leave(self) -> None:
        """End the scope."""
        if not self.scope.expired():
            # A time-out that is moved to the past ends the block at once.
            self.scope.reschedule(0)


class Connections:
    """The clients that wait for answers.

    Args:
        tasks: Owns what watches over their connections.
        is_revoked: Whether the token of this ``jti`` was revoked.
    """

    def __init__(
        self, tasks: asyncio.TaskGroup, *, is_revoked: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._tasks = tasks
        self._is_revoked = is_revoked
        self._clients: set[Client] = set()

    @asynccontextmanager
    async def hold(self, receive: Receive | None, *, token: str = "") -> AsyncIterator[Client]:
        """Cancel the block as soon as the client may no longer have the answer.

        Args:
            receive: Of the request, whose body must have been read; None where the block itself reads on.
            token: ``jti`` of the client's token, if the block shall end when that is revoked.

        Raises:
            Unauthorized: If it was revoked since it was checked: a client can send its body slowly.
        """
        if token and self._is_revoked(token):
            raise tokens.revoked()
        try:
            async with asyncio.timeout(None) as scope:
                client, watch = Client(token, scope), None
                self._clients.add(client)
                if receive is not None:
                    watch = asyncio.get_running_loop().call_later(
                        limits.CLIENT_WATCH_S, self._watch, receive, client
                    )
                try:
                    yield client
                finally:
                    if watch is not None:
                        watch.cancel()
                    self._clients.discard(client)
                    if client.watching is not None:
                        client.watching.cancel()
        except TimeoutError:
            if not scope.expired():
                raise
            client.gone = True

    def _watch(self, receive: Receive, client: Client) -> None:
        client.watching = self._tasks.create_task(_watch(receive, client), name="client")

    def revoke(self, tokens: Container[str]) -> None:
        """End what is held with one of these tokens."""
        for client in tuple(self._clients):
            if client.token and client.token in tokens:
                client.revoked = True
                client.leave()


async def _watch(receive: Receive, client: Client) -> None:
    # A body that is not read may become too large: then the answer ends, and not the hub with this task.
    with suppress(HTTPException):
        while (await receive())["type"] != "http.disconnect":
            pass
    client.leave()


def farewell(client: Client) -> Answer[Never]:
    """Answer a client that is gone; only one whose token was revoked can still read it."""
    if client.revoked:
        raise tokens.revoked()
    return Answer(status_code=CLIENT_CLOSED_REQUEST)


def event(data: Any) -> bytes:
    return b"data: " + to_json(data) + b"\n\n"


DONE = b"data: [DONE]\n\n"
HEARTBEAT = b":\n\n"
HEARTBEAT_S: Final = 15.0
"""Seconds of silence after which a comment is sent: proxies close what is silent for half a minute."""


class EventStream(Response):
    """An answer piece by piece, by default server-sent events; its source is closed when the client leaves.

    Args:
        token: ``jti`` of the client's token, if the stream shall end when that is revoked.
    """

    def __init__(
        self,
        source: AsyncGenerator[bytes, None],
        *,
        connections: Connections,
        headers: Mapping[str, str] = MappingProxyType({}),
        token: str = "",
        media_type: str = "text/event-stream",
    ) -> None:
        self._source = source
        self._token = token
        self._connections = connections
        self.status_code = 200
        self.background = None
        self.media_type = media_type
        # A proxy that buffers would hold the first chunk back.
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        async with self._connections.hold(receive, token=self._token), aclosing(self._source) as chunks:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Streams:
    """Event streams of one kind, of which a token has a bounded number open at once.

    Args:
        connections: The clients that wait.
        most: How many.
    """

    def __init__(self, connections: Connections, *, most: int = STREAMS) -> None:
        self._connections = connections
        self._most = most
        self._open: Counter[str] = Counter()

    def answer(self, token: str, source: AsyncGenerator[bytes, None]) -> EventStream:
        """Make the response with a stream, which ends when its token is revoked.

        Args:
            token: ``jti`` of the client's token.

        Raises:
            TooManyRequests: If the token has too many open.
        """
        if self._open[token] >= self._most:
            raise TooManyRequests(
                "this token has {streams} streams open",
                streams=self._most,
                hint="Close one, or use another token.",
            )
        chunks = self._counted(token, source)
        return EventStream(chunks, connections=self._connections, token=token)

    async def _counted(self, token: str, source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        self._open[token] += 1
        try:
            async with aclosing(source) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._open[token] -= 1
