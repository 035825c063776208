"""The HTTP server of a hub or a spoke, in the event loop of its process."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from chat.http import limits
from chat.http.connections import Acceptor, ConnectionBounds, DeadlineProtocol
from chat.http.limits import MAX_SOCKET_MESSAGE
from chat.tasks import open_tasks

_GRACE_S = 3
"""How long requests that are under way may go on when the hub stops; turns are cancelled before."""


_BOUNDS = ConnectionBounds()


@asynccontextmanager
async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    bounds: ConnectionBounds = _BOUNDS,
    sockets: bool = False,
    proxies: Sequence[str] = (),
) -> AsyncIterator[None]:
    """Serve the app on a socket that is bound already, until the block is left.

    Args:
        tls: The server's side of TLS; None serves in the clear.
        sockets: Whether the app takes WebSockets.
        proxies: Addresses or networks whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed; of
            the addresses in it the last one that is no proxy counts, as who came before may have made up
            the rest.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        # Its protocol is chosen with the first socket, see `chat.http.connections`.
        ws="none",
        ws_max_size=MAX_SOCKET_MESSAGE,
        # By itself it believes whatever comes over loopback, and a variable of the environment.
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        server_header=False,
        date_header=False,
        timeout_keep_alive=bounds.idle_s,
    )
    config.load()
    state = ServerState()

    def make_protocol() -> DeadlineProtocol:
        protocol = DeadlineProtocol(config, state, {})
        protocol.takes_sockets = sockets
        return protocol

    # A context of uvicorn's own would be of files; this one takes a renewed certificate up while in use.
    acceptor = Acceptor(make_protocol, tls=tls, bounds=bounds)
    async with open_tasks() as tasks:
        accepting = tasks.create_task(acceptor.run(listener), name="http: accept")
        try:
            yield
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            listener.close()
            await _end(state)


async def _end(state: ServerState) -> None:
    """End the connections, each after the request that is under way."""
    for connection in list(state.connections):
        connection.shutdown()
    try:
        async with asyncio.timeout(_GRACE_S):
            while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(limits.SERVER_LOOK_S)
    except TimeoutError:
        for task in state.tasks:
            task.cancel()
