"""Wyoming connections, both ways: events with bounds, because what the other side sends is not trusted.

The classes of events are those of the `wyoming` package. Its own reader takes a payload of any length, so
events are read here.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from wyoming.audio import AudioChunk, AudioStart
from wyoming.event import Event, Eventable, async_write_event

from contracts.addresses import bracketed
from contracts.errors import ConfigError, InvalidMessage
from voice import limits
from voice.serving import MOST_LINE, peer_of
from voice.sound.audio import Sound

_RATES: Final = range(8_000, 96_001)

_Kind = TypeVar("_Kind", bound=Eventable)


class Address(NamedTuple):
    """Where a Wyoming server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read ``host:port``, with or without ``tcp://``.

        Raises:
            ConfigError: If it is no such address.
        """
        with suppress(ValueError):
            parts = urlsplit(text if "://" in text else f"tcp://{text}")
            if parts.scheme == "tcp" and parts.hostname and parts.port and not parts.path.strip("/"):
                parts.hostname.encode("idna")  # as connecting does: no label may be empty, or longer than 63
                return cls(parts.hostname, parts.port)
        raise ConfigError(
            f"{text!r} is not the address of a Wyoming server",
            hint="Write it as host:port, as in pi.local:10300.",
        )


class WyomingConnection:
    """One connection.

    Attributes:
        peer: IP address of the other side.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.peer = peer_of(writer)
        # Two events at once would mix.
        self._lock = asyncio.Lock()

    async def read(self) -> Event | None:
        """Return the next event; None where the other side has closed.

        Raises:
            InvalidMessage: If it is none, or too long.
        """
        try:
            line = await self._reader.readline()
            if not line:
                return None
            head = _object(line)
            data = head.get("data") or {}
            if (size := _length(head, "data_length", limits.MAX_DATA_BYTES)) > 0:
                data = {**data, **_object(await self._reader.readexactly(size))}
            size = _length(head, "payload_length", limits.MAX_PAYLOAD_BYTES)
            payload = await self._reader.readexactly(size) if size else None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except (ValueError, TypeError, RecursionError):
            raise InvalidMessage("not a Wyoming event, or one that is too long") from None
        return Event(type=str(head.get("type")), data=data, payload=payload)

    async def send(self, *events: Eventable) -> None:
        """Send events.

        Raises:
            OSError: If the other side is gone, or takes nothing (`TimeoutError`).
        """
        async with self._lock, asyncio.timeout(limits.STALL_S):
            for event in events:
                await async_write_event(event.event(), self._writer)

    def close(self) -> None:
        # Data that is not sent yet is lost.
        self._writer.close()


def read_as(kind: type[_Kind], event: Event) -> _Kind:
    """Read an event as one of its kind.

    Raises:
        InvalidMessage: If something in it is missing or of another type.
    """
    try:
        return cast(_Kind, kind.from_event(event))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InvalidMessage(f"a Wyoming event {event.type[:40]!r} that cannot be read") from None


def text_of(text: object, *, most: int) -> str:
    """Return a text of an event, stripped.

    Raises:
        InvalidMessage: If it is none, or longer than that.
    """
    if not isinstance(text, str) or len(text) > most:
        raise InvalidMessage(f"a Wyoming event without a text of at most {most:,} characters")
    return text.strip()


def sound_of(event: Event) -> Sound:
    """Return the sound of an ``audio-chunk``.

    Raises:
        InvalidMessage: If it is not 16-bit mono.
    """
    chunk = read_as(AudioChunk, event)
    if (chunk.width, chunk.channels) != (2, 1) or chunk.rate not in _RATES:
        raise InvalidMessage("sound that is not 16-bit mono", hint="Choose another voice at the server.")
    return Sound(chunk.audio, chunk.rate)


def start_of(rate: int) -> AudioStart:
    return AudioStart(rate=rate, width=2, channels=1)


def chunk_of(sound: Sound) -> AudioChunk:
    return AudioChunk(rate=sound.rate, width=2, channels=1, audio=sound.samples)


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[WyomingConnection]:
    """Connect to a server for the length of a block.

    Raises:
        OSError: If it does not answer.
    """
    reader, writer = await asyncio.open_connection(*address, limit=MOST_LINE)
    connection = WyomingConnection(reader, writer)
    try:
        yield connection
    finally:
        writer.transport.abort()  # it was asked one thing, and whatever else it has is not waited for


def _object(text: bytes) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("data") or {}, dict):
        raise TypeError("no object")
    return found


def _length(head: dict[str, Any], name: str, most: int) -> int:
    length = head.get(name) or 0
    if not isinstance(length, int) or not 0 <= length <= most:
        raise ValueError(name)
    return length
