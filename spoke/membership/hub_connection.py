"""A connection to the hub: one request after another, each answer read as it arrives."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import h11
from pydantic import SecretStr

from contracts.errors import HubBroken, HubUnreachable
from contracts.wire import Json

_PIECE: Final = 65_536
_MAX_EVENT: Final = 4 * 1024 * 1024
"""Bytes of one event of a stream; a tool's output and a person's text are smaller."""


@dataclass(frozen=True)
class Received:
    """The head of an answer.

    Attributes:
        status: HTTP status.
        headers: By lower-case name.
        at: This machine's time at which it was asked for and came, on average.
    """

    status: int
    headers: Mapping[str, str]
    at: float


class HubConnection:
    """An open connection.

    Args:
        host: Value of the ``Host`` header.
        base: Path in front of every path.
        is_kept: Whether the connection shall stay open after an answer.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        host: str,
        base: str,
        is_kept: bool,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._base = base
        self._is_kept = is_kept
        self._state = h11.Connection(h11.CLIENT)

    async def send(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        bearer: SecretStr | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Received:
        """Send a request and return the head of its answer.

        Raises:
            HubBroken: If the connection breaks; the hub may have acted on the request.
        """
        # Not escaped, so that three bytes of Chinese do not become six.
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode(errors="replace")
        sent = {"Host": self._host, "Accept": "application/json", **(headers or {})}
        if body is not None:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        if bearer is not None:
            sent["Authorization"] = f"Bearer {bearer.get_secret_value()}"
        if not self._is_kept:
            sent["Connection"] = "close"
        request = h11.Request(method=method, target=self._base + path, headers=list(sent.items()))
        asked = time.time()
        with _broken():
            for event in (request, h11.Data(content), h11.EndOfMessage()):
                self._writer.write(self._state.send(event) or b"")
            await self._writer.drain()
            head = await self._next()
            while isinstance(head, h11.InformationalResponse):
                head = await self._next()
        if not isinstance(head, h11.Response):
            raise HubBroken("the hub closed the connection")
        received = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        return Received(head.status_code, received, (asked + time.time()) / 2)

    async def json(self, *, at_most: int) -> Json:
        """Return the JSON of the answer's body; None where it is none.

        Raises:
            HubBroken: If it breaks off.
            HubUnreachable: If it is too long to be a hub's.
        """
        content = b""
        async for piece in self._pieces():
            content += piece
            if len(content) > at_most:
                raise HubUnreachable("the answer is longer than one of a hub", hint="Check the address.")
        with suppress(ValueError):
            return json.loads(content)
        return None

    async def events(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the JSON of each server-sent event, up to ``[DONE]``.

        Raises:
            HubBroken: If the stream breaks off before that, or is not one of a hub.
        """
        rest, is_done = b"", False
        async for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n\n")
            if len(rest) > _MAX_EVENT:
                raise HubBroken("an event of the hub's is too long")
            for event in whole:
                data = event.removeprefix(b"data:").strip()
                is_done = is_done or data == b"[DONE]"
                if not is_done:
                    yield _object(data)
        if not is_done:
            raise HubBroken("the hub's answer broke off")

    def reuse(self) -> bool:
        """Prepare for the next request; return whether there can be one."""
        if not self._is_kept or self._reader.at_eof() or self._writer.is_closing():
            return False
        try:
            self._state.start_next_cycle()
        except h11.LocalProtocolError:
            return False
        return True

    @property
    def is_open(self) -> bool:
        """Whether the hub has not closed the connection meanwhile."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """Close the connection at once: a server that hangs never answers a goodbye."""
        self._writer.transport.abort()

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        while True:
            with _broken():
                event = await self._next()
            if isinstance(event, h11.EndOfMessage):
                return
            if not isinstance(event, h11.Data):
                raise HubBroken("the hub closed the connection")
            yield bytes(event.data)

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            self._state.receive_data(await self._reader.read(_PIECE))
        return cast("h11.Event | type[h11.PAUSED]", event)


@contextmanager
def _broken() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HubBroken(f"the connection to the hub broke: {error.strerror or error}") from None
    except h11.RemoteProtocolError:
        # Closed in the middle, or no HTTP: h11's own words name the states of its machine.
        raise HubBroken("the connection to the hub was closed before its answer was complete") from None


def _object(data: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        made = json.loads(data)
        if isinstance(made, dict):
            return made
    raise HubBroken("what answers does not answer as a hub does")
