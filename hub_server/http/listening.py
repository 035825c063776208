"""The HTTP API at its listeners: this machine's, and that for other machines."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from chat.http.connections import ConnectionBounds
from chat.http.server import serve
from chat.tasks import supervise
from hub_agent.settings import HttpSettings
from hub_server.http.app import guarded

if TYPE_CHECKING:
    from hub_server.http.lan import Lan


@asynccontextmanager
async def open_http(
    app: ASGIApp,
    settings: HttpSettings,
    listener: socket.socket,
    lan: "Lan | None",
    *,
    tasks: asyncio.TaskGroup,
) -> AsyncIterator[None]:
    """Serve the API while the context is open."""
    bounds = ConnectionBounds(most=settings.connections)
    proxies = settings.trusted_proxies
    near = guarded(app, settings, names=lambda: settings.names)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serve(near, listener, bounds=bounds, sockets=True, proxies=proxies))
        if lan is not None:
            supervise(tasks, lan.watch, name="certificates")
            far = guarded(app, settings, names=lan.names)
            await stack.enter_async_context(
                serve(far, lan.listener, tls=lan.context, bounds=bounds, sockets=True, proxies=proxies)
            )
        yield
