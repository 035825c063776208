"""Answers that last: they end when the client leaves."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


@dataclass
class Client:
    """Whoever waits for an answer.

    Attributes:
        left: Whether it closed its connection before it had it.
    """

    left: bool = False


@asynccontextmanager
async def while_connected(receive: Receive, *, tasks: asyncio.TaskGroup) -> AsyncIterator[Client]:
    """Cancel the block as soon as the client closes its connection; the request's body must be read.

    Args:
        receive: Of the request.
        tasks: Owns the task that watches the connection.
    """
    client = Client()
    try:
        async with asyncio.timeout(None) as scope:
            watching = tasks.create_task(_watch(receive, scope), name="client")
            try:
                yield client
            finally:
                watching.cancel()
    except TimeoutError:
        if not scope.expired():
            raise
        client.left = True


async def _watch(receive: Receive, scope: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    # A time-out that is moved to the past ends the block at once.
    scope.reschedule(0)


def event(data: Any) -> bytes:
    """Make one server-sent event without a name, with JSON as its data."""
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class EventStream(Response):
    """Server-sent events; their source is closed when the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self, source: AsyncGenerator[bytes, None], *, tasks: asyncio.TaskGroup, headers: dict[str, str]
    ) -> None:
        self._source = source
        self._tasks = tasks
        self.status_code = 200
        self.background = None
        # A proxy that buffers would hold the first chunk back.
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with while_connected(receive, tasks=self._tasks), aclosing(self._source) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
