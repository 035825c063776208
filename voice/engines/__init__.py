"""Engines of speech, each one file behind a protocol; `voice.settings` and `voice.opening` have their names.

An engine imports its library only when it is made, and says what is missing where it is not installed.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple, Protocol

from voice.sound.audio import Sound

__all__ = ["SpeechToText", "TextToSpeech", "Transcript", "WakeWord"]


class Transcript(NamedTuple):
    """What was said.

    Attributes:
        text: Empty where nothing was understood.
        certain: False where the engine's grammar rejected what it heard: ask the next engine.
    """

    text: str
    certain: bool


class WakeWord(Protocol):
    """Waits for one or more wake words."""

    def heard(self, frame: bytes) -> str | None:
        """Process the next frame; return the name of the wake word that it ends."""
        ...

    def reset(self) -> None:
        """Forget the sound so far, so that a wake word is not heard twice."""
        ...


class SpeechToText(Protocol):
    """Turns speech into text."""

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        """Return what was said in these frames, which end where the speech does.

        Args:
            language: BCP 47.

        Raises:
            SpeechError: If the engine gives no answer.
        """
        ...


class TextToSpeech(Protocol):
    """Turns text into sound."""

    def say(self, text: str, *, language: str) -> AsyncGenerator[Sound, None]:
        """Return the sound in pieces as they are made; closing it stops the engine.

        Args:
            language: BCP 47.

        Raises:
            SpeechError: If the engine gives no sound.
        """
        ...
