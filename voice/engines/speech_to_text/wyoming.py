"""Speech to text by a Wyoming server: faster-whisper and others."""

import asyncio
from collections.abc import AsyncIterator

from wyoming.asr import Transcribe
from wyoming.asr import Transcript as Heard
from wyoming.audio import AudioStop

from voice.engines import Transcript
from voice.engines.wyoming import MOST_TEXT, Deadlines, Finder, WyomingServer, server_of
from voice.settings import VoiceSettings
from voice.sound.audio import RATE, Sound
from voice.wyoming.connection import Address, chunk_of, read_as, start_of, text_of


def open_engine(settings: VoiceSettings, address: str) -> "WyomingSpeechToText":
    """See `voice.engines`."""
    return WyomingSpeechToText(server_of(address, "asr"))


class WyomingSpeechToText:
    """Speech to text by a server; see `voice.engines.SpeechToText`.

    Args:
        where: The server, or what finds one.
    """

    def __init__(self, where: Address | Finder, *, deadlines: Deadlines | None = None) -> None:
        self._server = WyomingServer(where, deadlines)

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        """See `voice.engines.SpeechToText`; the frames go out as they come."""
        async with self._server.connect() as connection:
            await connection.send(Transcribe(language=language.partition("-")[0].lower()), start_of(RATE))
            async for frame in frames:
                await connection.send(chunk_of(Sound(frame, RATE)))
            await connection.send(AudioStop())
            async with asyncio.timeout(self._server.deadlines.answer_s):
                while not Heard.is_type((event := await self._server.answer(connection)).type):
                    pass  # pieces of the text, by servers that send those, too
            return Transcript(text_of(read_as(Heard, event).text, most=MOST_TEXT), certain=True)
