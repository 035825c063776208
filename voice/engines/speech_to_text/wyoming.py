"""Speech to text by a Wyoming server: faster-whisper and others."""

import asyncio
from collections.abc import AsyncIterator

from wyoming.asr import Transcribe
from wyoming.asr import Transcript as Heard
from wyoming.audio import AudioStop

from voice.engines import Transcript
from voice.engines.wyoming import MOST_TEXT, WyomingServer, server_of
from voice.settings import VoiceSettings
from voice.sound.audio import RATE, Sound
from voice.wyoming.connection import chunk_of, read_as, start_of, text_of


def open_engine(settings: VoiceSettings, address: str = "") -> "WyomingSpeechToText":
    return WyomingSpeechToText(server_of(address, "asr"))


class WyomingSpeechToText(WyomingServer):
    """Speech to text by a server; see `voice.engines.SpeechToText`."""

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        """See `voice.engines.SpeechToText`; the frames go out as they come."""
        async with self.connect() as connection:
            await connection.send(Transcribe(language=language.partition("-")[0].lower()), start_of(RATE))
            async for frame in frames:
                await connection.send(chunk_of(Sound(frame, RATE)))
            await connection.send(AudioStop())
            async with asyncio.timeout(self.deadlines.answer_s):
                while not Heard.is_type((event := await self.answer(connection)).type):
                    pass  # pieces of the text, by servers that send those, too
            return Transcript(text_of(read_as(Heard, event).text, most=MOST_TEXT), certain=True)
