"""Text to speech by espeak-ng, a program of the system: small, quick, in a hundred languages."""

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from bus.processes import open_process
from contracts.errors import SpeechError
from voice.settings import VoiceSettings
from voice.sound.audio import Sound

_HEADER: Final = 44
"""Bytes of the WAV header that it begins with."""
_RATE_AT: Final = slice(24, 28)
_PIECE: Final = 8_192
_WORDS_PER_MINUTE: Final = "160"


def open_engine(settings: VoiceSettings) -> "Espeak":
    return Espeak(voice=settings.voice)


class Espeak:
    """Speaks with espeak-ng; see `voice.engines.TextToSpeech`.

    Args:
        voice: Name of a voice; None for that of the language.

    Raises:
        SpeechError: If it is not installed.
    """

    def __init__(self, *, voice: str | None = None) -> None:
        program = shutil.which("espeak-ng")
        if program is None:
            raise SpeechError("espeak-ng is not installed", hint="Install it: apt install espeak-ng")
        self._program = program
        self._voice = voice

    async def say(self, text: str, *, language: str) -> AsyncGenerator[Sound, None]:
        """See `voice.engines.TextToSpeech`."""
        voice = self._voice or language.lower()
        command = [self._program, "-v", voice, "-s", _WORDS_PER_MINUTE, "--stdin", "--stdout"]
        # Standard input, so that the text is in no list of processes.
        async with open_process(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(ConnectionError):
                process.stdin.write(text.encode())
                process.stdin.close()
            try:
                header = await process.stdout.readexactly(_HEADER)
            except asyncio.IncompleteReadError:
                raise SpeechError(
                    f"espeak-ng cannot speak {voice!r}", hint="`espeak-ng --voices` lists what it can."
                ) from None
            rate = int.from_bytes(header[_RATE_AT], "little")
            rest = b""
            while piece := await process.stdout.read(_PIECE):
                piece = rest + piece
                whole = len(piece) // 2 * 2
                rest = piece[whole:]
                yield Sound(piece[:whole], rate)
