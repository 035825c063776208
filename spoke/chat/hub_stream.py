"""A request to the hub whose answer is read as it comes."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import h11
from pydantic import SecretStr

from contracts.wire import Json
from spoke.membership.hub_http import HubHttp, HubUnreachable, encoded

_PIECE: Final = 65_536
_MAX_EVENT: Final = 4 * 1024 * 1024
"""Bytes of one event, or of an answer that is none; a tool's output and a person's text are smaller."""


class HubBroken(HubUnreachable):
    """The connection was lost after the request went out: the hub may have acted on it."""


class HubStream:
    """An answer that has begun.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: int, pieces: AsyncGenerator[bytes, None]) -> None:
        self.status = status
        self._pieces = pieces

    async def whole(self) -> Json:
        """Read it to its end and give its JSON; None where it is none.

        Raises:
            HubBroken: If it breaks off.
        """
        content = b""
        async for piece in self._pieces:
            content += piece
            if len(content) > _MAX_EVENT:
                raise HubBroken("the hub's answer is too long")
        with suppress(ValueError):
            return json.loads(content)
        return None

    async def events(self) -> AsyncGenerator[dict[str, Any], None]:
        """Give the JSON of each server-sent event, up to ``[DONE]``.

        Raises:
            HubBroken: If it breaks off before that, or is not what a hub sends.
        """
        rest = b""
        async for piece in self._pieces:
            *whole, rest = (rest + piece).split(b"\n\n")
            if len(rest) > _MAX_EVENT:
                raise HubBroken("an event of the hub's is too long")
            for event in whole:
                data = event.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    return
                yield _object(data)
        raise HubBroken("the hub's answer broke off")


@asynccontextmanager
async def posted(
    http: HubHttp,
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    path: str,
    body: dict[str, Any],
    *,
    bearer: SecretStr,
    headers: dict[str, str],
) -> AsyncIterator[HubStream]:
    """Send a JSON object and give the answer once its head is there. Times are up to the caller.

    Args:
        connection: To this hub; leaving hangs up.

    Raises:
        HubBroken: If the connection breaks.
    """
    reader, writer = connection
    try:
        state = h11.Connection(h11.CLIENT)
        content = encoded(body)
        host, target = http.target(path)
        request = h11.Request(
            method="POST",
            target=target,
            headers=[
                ("Host", host),
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(content))),
                ("Authorization", f"Bearer {bearer.get_secret_value()}"),
                *headers.items(),
            ],
        )
        for event in (request, h11.Data(content), h11.EndOfMessage()):
            writer.write(state.send(event) or b"")
        async with aclosing(_received(state, reader)) as events, aclosing(_pieces(events)) as pieces:
            with _broken_off():
                await writer.drain()
                head = await anext(events)
            assert isinstance(head, h11.Response)
            yield HubStream(head.status_code, pieces)
    finally:
        # At once: a server that hangs never says goodbye.
        writer.transport.abort()


async def _received(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> AsyncGenerator[h11.Response | h11.Data, None]:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_PIECE))
        elif isinstance(event, h11.Response | h11.Data):
            yield event
        elif isinstance(event, h11.EndOfMessage):
            return
        elif not isinstance(event, h11.InformationalResponse):
            raise HubBroken("the hub hung up")


async def _pieces(events: AsyncGenerator[h11.Response | h11.Data, None]) -> AsyncGenerator[bytes, None]:
    with _broken_off():
        async for event in events:
            assert isinstance(event, h11.Data)
            yield bytes(event.data)


@contextmanager
def _broken_off() -> Iterator[None]:
    try:
        yield
    except (OSError, h11.RemoteProtocolError, StopAsyncIteration) as error:
        raise HubBroken(f"the connection to the hub broke: {error or type(error).__name__}") from None


def _object(data: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        made = json.loads(data)
        if isinstance(made, dict):
            return made
    raise HubBroken("what answers does not answer as a hub does")
