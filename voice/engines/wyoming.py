"""A Wyoming server, as both engines ask one: faster-whisper, Piper and others."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from wyoming.error import Error
from wyoming.event import Event

from contracts.errors import InvalidMessage, SoundError, SpeechError
from contracts.rates import Backoff
from voice.wyoming.connection import Address, WyomingConnection, connected, read_as, text_of

if TYPE_CHECKING:
    from voice.wyoming.discovery import Domain

MOST_TEXT: Final = 4_000
"""Most characters of one transcript; people pause before that."""

Finder = Callable[[], Awaitable[Address]]
"""Finds a server; for example `voice.wyoming.discovery.discover`."""


def server_of(address: str, domain: "Domain") -> Address | Finder:
    """Return the server at an address; what finds one in the network where that is empty."""
    from voice.wyoming.discovery import discover

    return Address.parse(address) if address else partial(discover, domain)


@dataclass(frozen=True)
class Deadlines:
    """How long a server may take.

    Attributes:
        connect_s: To be found and to take the connection.
        answer_s: From the end of the speech to its text, or from a text to its first sound.
        pause_s: Between two pieces of sound.
        retry_s: How long a server that failed is left alone; doubles up to ``retry_max_s``.
    """

    connect_s: float = 6
    answer_s: float = 15  # for a large faster-whisper
    pause_s: float = 5
    retry_s: float = 1
    retry_max_s: float = 60


class WyomingServer:
    """A server that is asked now and then, and left alone for a while after it failed.

    Args:
        where: The server, or what finds one.
    """

    def __init__(self, where: Address | Finder, *, deadlines: Deadlines | None = None) -> None:
        self._where = where
        self._found = where if isinstance(where, Address) else None
        self.deadlines = deadlines = deadlines or Deadlines()
        self._backoff = Backoff(deadlines.retry_s, deadlines.retry_max_s)
        self._failure = SpeechError("")
        self._until = 0.0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[WyomingConnection]:
        """Connect for one question.

        Raises:
            SpeechError: If the server does not answer, or failed a moment ago.
        """
        if time.monotonic() < self._until:
            raise self._failure
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.deadlines.connect_s):
                    connection = await stack.enter_async_context(connected(await self._address()))
                yield connection
        except SoundError:
            raise  # of the microphone whose sound was sent
        except TimeoutError:
            raise self._failed("does not answer in time") from None
        except OSError:
            raise self._failed("cannot be reached") from None
        except InvalidMessage as error:
            raise self._failed(f"gave {error.message}", error.hint) from None
        except SpeechError as error:
            raise self._failed(error.message, error.hint, named=True) from None
        self._backoff.reset()

    async def answer(self, connection: WyomingConnection) -> Event:
        """Return the next event.

        Raises:
            SpeechError: If the server reports an error or closes.
        """
        event = await connection.read()
        if event is None:
            raise SpeechError(f"the Wyoming server {self._found} closed the connection without an answer")
        if Error.is_type(event.type):
            reason = text_of(read_as(Error, event).text, most=MOST_TEXT)
            # It goes into a log and is shown.
            said = "".join(letter for letter in reason[:200] if letter.isprintable())
            raise SpeechError(f"the Wyoming server {self._found} says: {said}")
        return event

    async def _address(self) -> Address:
        if self._found is None:
            assert not isinstance(self._where, Address)
            self._found = await self._where()
        return self._found

    def _failed(self, reason: str, hint: str = "", *, named: bool = False) -> SpeechError:
        message = reason if named else f"the Wyoming server {self._found or 'of this network'} {reason}"
        self._failure = SpeechError(message, hint=hint or "Check that it runs, and its address in [voice].")
        self._until = time.monotonic() + self._backoff.next()
        if not isinstance(self._where, Address):
            self._found = None  # it may be another one next time
        return self._failure
