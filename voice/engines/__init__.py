"""Engines of speech, each one file behind a protocol.

The settings name a module of `wake_word`, `speech_to_text` or `text_to_speech`, with an address behind
``://`` if it takes one. It is imported when it is needed, and has a function that makes the engine,
``open_engine(settings)``, with ``address=""`` behind that if it takes one. That says what is missing where
its library is not installed.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from voice.sound.audio import Sound

if TYPE_CHECKING:
    from contracts.chat.vocabulary import Vocabulary

__all__ = ["Grammar", "SpeechToText", "TextToSpeech", "Transcript", "WakeWord"]


class Transcript(NamedTuple):
    """What was said.

    Attributes:
        text: Empty where nothing was understood.
        certain: False where the engine's grammar rejected what it heard: ask the next engine.
        instead: The same with a number that the engine cannot tell from the one in the text.
    """

    text: str
    certain: bool
    instead: str = ""


class WakeWord(Protocol):
    """Waits for one or more wake words."""

    def heard(self, frame: bytes) -> str | None:
        """Process the next frame; return the name of the wake word that it ends."""

    def reset(self) -> None:
        """Forget the sound so far, so that a wake word is not heard twice."""


class SpeechToText(Protocol):
    """Turns speech into text."""

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        """Return what was said in these frames, which end where the speech does.

        Args:
            language: BCP 47.

        Raises:
            SpeechError: If the engine gives no answer.
        """


@runtime_checkable
class Grammar(SpeechToText, Protocol):
    """Speech to text that recognizes only the texts it was given.

    What it transcribes may begin within a wake word.
    """

    async def learn(self, vocabulary: "Vocabulary") -> None:
        """Understand this and nothing else; nothing happens where it has not changed."""

    def of(self, texts: Sequence[str], *, safe: Collection[str] = ()) -> SpeechToText:
        """Return a speech to text that understands nothing but these texts.

        Args:
            safe: Those that do no harm where something else was said: they need not be as certain.
        """


class TextToSpeech(Protocol):
    """Turns text into sound."""

    def say(self, text: str, *, language: str) -> AsyncGenerator[Sound, None]:
        """Return the sound in pieces as they are made; closing it stops the engine.

        Args:
            language: BCP 47.

        Raises:
            SpeechError: If the engine gives no sound.
        """
