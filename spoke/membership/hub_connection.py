"""A connection to the hub: one request after another, each answer read as it arrives."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast
from urllib.parse import SplitResult

import h11
from pydantic import SecretStr
from pydantic_core import from_json

from contracts.errors import HubBroken, HubUnreachable, HubUntrusted
from contracts.wire import Json
from identity.keys import KeyPair
from identity.logins.challenges import PATH as WELL_KNOWN
from identity.logins.challenges import new_challenge, proves_hub
from identity.logins.proofs import make_proof
from spoke import limits

TRY_LATER: Final = (429, 500, 502, 503, 504)
"""HTTP statuses of a hub that is up and cannot answer now."""

_PIECE: Final = 65_536


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

    @property
    def clock_ahead_s(self) -> float | None:
        """Return how far the hub's clock is ahead, to about a second; None without a ``Date``."""
        try:
            there = parsedate_to_datetime(self.headers["date"]).timestamp()
        except (KeyError, ValueError):
            return None
        # The header drops the fraction of the second: on average half a second.
        return there + 0.5 - self.at


@dataclass(eq=False)
class HubConnection:
    """An open connection.

    Attributes:
        url: Scheme and host; the latter is the value of the ``Host`` header.
        base: Path in front of every path.
        key: This device's key, which proves with each token and body that they are the device's own.
        is_kept: Whether the connection shall stay open after an answer.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _: KW_ONLY
    url: SplitResult
    base: str
    key: KeyPair | None
    is_kept: bool
    _ahead_s: float = field(default=0.0, init=False)
    _state: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT), init=False)

    async def send(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        bearer: SecretStr | None = None,
        headers: Mapping[str, str] | None = None,
        is_last: bool | None = None,
    ) -> Received:
        """Send a request and return the head of its answer.

        Args:
            is_last: Whether the connection is closed after it; by default unless it is kept.

        Raises:
            HubBroken: If the connection breaks; the hub may have acted on the request.
        """
        # Not escaped, so that three bytes of Chinese do not become six.
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode(errors="replace")
        sent = {"Host": self.url.netloc, "Accept": "application/json", **(headers or {})}
        if body is not None:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        token = bearer.get_secret_value() if bearer is not None else None
        if token is not None:
            sent["Authorization"] = f"DPoP {token}"
        if self.key is not None and (token is not None or body is not None):
            target = self.url._replace(path=self.base + path).geturl().partition("?")[0]
            now = time.time() + self._ahead_s
            sent["DPoP"] = make_proof(self.key, method=method, target=target, token=token, now=now)
        if is_last if is_last is not None else not self.is_kept:
            sent["Connection"] = "close"
        request = h11.Request(method=method, target=self.base + path, headers=list(sent.items()))
        asked = time.time()
        with _broken():
            for event in (request, h11.Data(content), h11.EndOfMessage()):
                self.writer.write(self._state.send(event) or b"")
            await self.writer.drain()
            head = await self._next()
            while isinstance(head, h11.InformationalResponse):
                head = await self._next()
        if not isinstance(head, h11.Response):
            raise HubBroken("the hub closed the connection")
        received = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        answer = Received(head.status_code, received, (asked + time.time()) / 2)
        self._ahead_s = answer.clock_ahead_s or 0.0
        return answer

    async def check_hub(self, key_id: str) -> None:
        """Check that the server proves to be the hub whose key has this id, before anything is sent to it.

        Raises:
            HubUntrusted: If it does not.
            HubBroken: If the connection breaks.
        """
        challenge, host = new_challenge(), self.url.netloc
        received = await self.send("GET", f"{WELL_KNOWN}?challenge={challenge}", is_last=False)
        body = await self.json(at_most=limits.MAX_CARD_BYTES)
        if received.status in TRY_LATER:
            raise HubUnreachable(f"the hub at {host} answered {received.status}")
        if not proves_hub(body, key_id=key_id, challenge=challenge, host=host):
            raise HubUntrusted(
                f"the server at {host} does not prove to be the hub",
                hint="Another program may listen there. A proxy in between must pass on the header 'Host'.",
            )
        self._restart()

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
            return from_json(content)
        return None

    async def events(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the JSON of each server-sent event, up to ``[DONE]``.

        Raises:
            HubBroken: If the stream breaks off before that, or is not one of a hub.
        """
        rest, is_done = b"", False
        async for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n\n")
            if len(rest) > limits.MAX_EVENT_BYTES:
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
        if not self.is_kept or not self.is_open:
            return False
        try:
            self._restart()
        except HubBroken:
            return False
        return True

    def _restart(self) -> None:
        try:
            self._state.start_next_cycle()
        except h11.LocalProtocolError:
            raise HubBroken("the hub closed the connection") from None

    @property
    def is_open(self) -> bool:
        return not self.reader.at_eof() and not self.writer.is_closing()

    def close(self) -> None:
        # A server that hangs never answers a closing handshake.
        self.writer.transport.abort()

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
            self._state.receive_data(await self.reader.read(_PIECE))
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
        made = from_json(data)
        if isinstance(made, dict):
            return made
    raise HubBroken("what answers does not answer as a hub does")
