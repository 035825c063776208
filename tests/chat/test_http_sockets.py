"""WebSockets of the HTTP server: they outlast the deadlines of requests, and no client can make them wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bus.ports import listen
from chat.http.connections import ConnectionBounds
from chat.http.limits import MAX_SOCKET_MESSAGE, SOCKET_FRAMES
from chat.http.server import serve

DEADLINE_S = 0.2


class Echo:
    """Says everything back, as often as it is told."""

    def __init__(self, times: int = 1) -> None:
        self.times = times
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] != "websocket.disconnect":
                for _ in range(self.times if message["type"] == "websocket.receive" else 0):
                    await send({"type": "websocket.send", "text": message["text"]})
        finally:
            self.ended.set()


@asynccontextmanager
async def serving(app: Echo, *, sockets: bool = True, most: int = 400) -> AsyncIterator[str]:
    bounds = ConnectionBounds(most=most, deadline_s=DEADLINE_S, idle_s=1)
    with listen("127.0.0.1", 0, purpose="HTTP") as listener:
        async with serve(app, listener, bounds=bounds, sockets=sockets):
            yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_a_socket_outlasts_the_deadline_of_requests() -> None:
    async with serving(Echo()) as place, connect(f"ws://{place}/") as socket:
        await asyncio.sleep(5 * DEADLINE_S)
        await socket.send("still here")
        assert await socket.recv() == "still here"


async def test_connections_that_wait_make_room_before_a_socket_does() -> None:
    async with serving(Echo(), most=2) as place, connect(f"ws://{place}/") as socket:
        host, _, port = place.partition(":")
        others = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        await socket.send("still here")
        assert await socket.recv() == "still here"
        for _, writer in others:
            writer.close()


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    app = Echo(times=100_000)
    async with serving(app) as place, connect(f"ws://{place}/", max_queue=1, close_timeout=0.1) as socket:
        await socket.send(token_hex(5_000))  # what cannot be compressed
        async with asyncio.timeout(60):
            await app.ended.wait()


async def test_a_message_that_is_too_large_ends_the_socket() -> None:
    async with serving(Echo()) as place, connect(f"ws://{place}/") as socket:
        await socket.send("x" * (MAX_SOCKET_MESSAGE + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


async def test_more_frames_than_a_client_has_use_for_end_the_socket() -> None:
    async with serving(Echo()) as place, connect(f"ws://{place}/") as socket:
        # Those of control are seen by the server alone.
        socket.transport.write(b"\x89\x80\0\0\0\0" * (5 * SOCKET_FRAMES))
        with pytest.raises(ConnectionClosed):
            await socket.recv()


async def test_a_server_without_sockets_takes_none() -> None:
    async with serving(Echo(), sockets=False) as place:
        with pytest.raises((InvalidStatus, httpx.HTTPError)):
            async with connect(f"ws://{place}/"):
                pass
