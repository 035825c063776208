"""Speech to text and text to speech by a Wyoming server: faster-whisper, Piper and others."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from wyoming.asr import Transcribe
from wyoming.asr import Transcript as Heard
from wyoming.audio import AudioChunk, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.tts import Synthesize, SynthesizeVoice

from contracts.errors import InvalidMessage, SoundError, SpeechError
from contracts.rates import Backoff
from voice.engines import Transcript
from voice.sound.audio import RATE, Sound
from voice.wyoming.connection import (
    Address,
    WyomingConnection,
    chunk_of,
    connected,
    read_as,
    sound_of,
    start_of,
    text_of,
)

_MOST_TEXT: Final = 4_000
"""Most characters of one transcript; people pause before that."""
_MOST_SOUND: Final = 64 * 1024 * 1024
"""Bytes of one answer: ten minutes. A server that never stops is cut off."""

Finder = Callable[[], Awaitable[Address]]
"""Finds a server; for example `voice.wyoming.discovery.discover`."""


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
    answer_s: float = 15
    pause_s: float = 5
    retry_s: float = 1
    retry_max_s: float = 60


class _Server:
    """A server that is asked now and then, and left alone for a while after it failed."""

    def __init__(self, where: Address | Finder, deadlines: Deadlines) -> None:
        self._where = where
        self._found = where if isinstance(where, Address) else None
        self.deadlines = deadlines
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
            reason = text_of(read_as(Error, event).text, most=_MOST_TEXT)
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


class WyomingSpeechToText:
    """Speech to text by a server; see `SpeechToText`.

    Args:
        where: The server, or what finds one.
    """

    def __init__(self, where: Address | Finder, *, deadlines: Deadlines | None = None) -> None:
        self._server = _Server(where, deadlines or Deadlines())

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        """See `SpeechToText`; the frames go out as they come."""
        async with self._server.connect() as connection:
            await connection.send(Transcribe(language=_primary(language)), start_of(RATE))
            async for frame in frames:
                await connection.send(chunk_of(Sound(frame, RATE)))
            await connection.send(AudioStop())
            async with asyncio.timeout(self._server.deadlines.answer_s):
                while not Heard.is_type((event := await self._server.answer(connection)).type):
                    pass  # pieces of the text, by servers that send those, too
            return Transcript(text_of(read_as(Heard, event).text, most=_MOST_TEXT), certain=True)


class WyomingTextToSpeech:
    """Text to speech by a server; see `TextToSpeech`.

    Args:
        where: The server, or what finds one.
    """

    def __init__(self, where: Address | Finder, *, deadlines: Deadlines | None = None) -> None:
        self._server = _Server(where, deadlines or Deadlines())

    async def say(self, text: str, *, language: str) -> AsyncGenerator[Sound, None]:
        """See `TextToSpeech`."""
        deadlines = self._server.deadlines
        async with self._server.connect() as connection:
            await connection.send(Synthesize(text=text, voice=SynthesizeVoice(language=language)))
            size, within_s = 0, deadlines.answer_s
            while True:
                async with asyncio.timeout(within_s):
                    event = await self._server.answer(connection)
                if AudioStop.is_type(event.type):
                    return
                if AudioChunk.is_type(event.type):
                    sound, within_s = sound_of(event), deadlines.pause_s
                    size += len(sound.samples)
                    if size > _MOST_SOUND:
                        raise InvalidMessage("more sound than anybody listens to")
                    yield sound


def _primary(language: str) -> str:
    """Return the language without region: what speech models are named by."""
    return language.partition("-")[0].lower()
