"""Text to speech by a Wyoming server: Piper and others."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from wyoming.audio import AudioChunk, AudioStop
from wyoming.tts import Synthesize, SynthesizeVoice

from contracts.errors import InvalidMessage
from voice.engines.wyoming import WyomingServer, server_of
from voice.settings import VoiceSettings
from voice.sound.audio import Sound
from voice.wyoming.connection import sound_of

_MOST_SOUND: Final = 64 * 1024 * 1024
"""Bytes of one answer: ten minutes. A server that never stops is cut off."""


def open_engine(settings: VoiceSettings, address: str = "") -> "WyomingTextToSpeech":
    """See `voice.engines`."""
    return WyomingTextToSpeech(server_of(address, "tts"))


class WyomingTextToSpeech(WyomingServer):
    """Text to speech by a server; see `voice.engines.TextToSpeech`."""

    async def say(self, text: str, *, language: str) -> AsyncGenerator[Sound, None]:
        """See `voice.engines.TextToSpeech`."""
        deadlines = self.deadlines
        async with self.connect() as connection:
            await connection.send(Synthesize(text=text, voice=SynthesizeVoice(language=language)))
            size, within_s = 0, deadlines.answer_s
            while True:
                async with asyncio.timeout(within_s):
                    event = await self.answer(connection)
                if AudioStop.is_type(event.type):
                    return
                if AudioChunk.is_type(event.type):
                    sound, within_s = sound_of(event), deadlines.pause_s
                    size += len(sound.samples)
                    if size > _MOST_SOUND:
                        raise InvalidMessage("more sound than anybody listens to")
                    yield sound
