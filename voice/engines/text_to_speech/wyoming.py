"""Text to speech by a Wyoming server: Piper and others."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from wyoming.audio import AudioChunk, AudioStop
from wyoming.tts import Synthesize, SynthesizeVoice

from contracts.errors import InvalidMessage
from voice import limits
from voice.engines.wyoming import Deadlines, WyomingServer, server_of
from voice.settings import VoiceSettings
from voice.sound.audio import Sound
from voice.wyoming.connection import WyomingConnection, sound_of

_DEADLINES: Final = Deadlines(connect_s=3, answer_s=4, retry_s=30, retry_max_s=300)
"""Each second is one of silence before the answer, and another engine can speak at once."""


def open_engine(settings: VoiceSettings, address: str = "") -> "WyomingTextToSpeech":
    return WyomingTextToSpeech(server_of(address, "tts"), deadlines=_DEADLINES)


class WyomingTextToSpeech(WyomingServer):
    """Text to speech by a server; see `voice.engines.TextToSpeech`."""

    async def say(self, text: str, *, language: str) -> AsyncGenerator[Sound, None]:
        """See `voice.engines.TextToSpeech`."""
        async with self.connect() as connection:
            await connection.send(Synthesize(text=text, voice=SynthesizeVoice(language=language)))
            size, within_s = 0, self.deadlines.answer_s
            while True:
                async with asyncio.timeout(within_s):
                    sound = await self._next(connection)
                if sound is None:
                    return
                within_s = self.deadlines.pause_s
                size += len(sound.samples)
                if size > limits.MAX_SOUND_BYTES:
                    raise InvalidMessage("more sound than anybody listens to")
                yield sound

    async def _next(self, connection: WyomingConnection) -> Sound | None:
        """Return the next sound; None at the end. Whatever else a server sends prolongs no deadline."""
        while not AudioStop.is_type((event := await self.answer(connection)).type):
            if AudioChunk.is_type(event.type) and (sound := sound_of(event)).samples:
                return sound
        return None
