"""Sound as it travels: what a microphone gives and a loudspeaker takes.

Sound that is heard is always 16 kHz, mono, signed 16-bit little endian, in frames of 20 ms. Sound that is
spoken has the rate of the engine that made it.
"""

import array
import math
import sys
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol, Self

from voice.installed import installed

RATE: Final = 16_000
"""Samples a second of all sound that is heard: what wake words, VAD and speech to text work with."""

FRAME_BYTES: Final = 640
"""Bytes of one frame."""

FRAME_S: Final = FRAME_BYTES / 2 / RATE

LOUDNESS_FRAMES: Final = round(1.0 / FRAME_S)
"""Frames of which the loudest says how loud a wake word was."""


class Sound(NamedTuple):
    """A piece of sound that can be played: mono, signed 16-bit little endian."""

    samples: bytes
    rate: int


class _Opened(Protocol):
    async def __aenter__(self) -> Self:
        """Open it; nothing where it needs no opening.

        Raises:
            SoundError: If it cannot be opened.
        """
        return self

    async def __aexit__(self, *_: object) -> None:
        return


class Microphone(_Opened, Protocol):
    """Gives frames while it is open; see `FRAME_BYTES`."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the frames as they are heard.

        Raises:
            SoundError: If the sound card goes; a source that has an end just ends.
        """


class Loudspeaker(_Opened, Protocol):
    """Plays one sound after the other while it is open."""

    async def play(self, sound: AsyncIterator[Sound]) -> None:
        """Play until the sound has been heard; when cancelled, fall silent at once.

        Raises:
            SoundError: If the sound card goes.
        """


def level(frame: bytes) -> float:
    """Return how loud a frame is, in decibels below full scale: -96 is silence, 0 the loudest."""
    samples = array.array("h", frame[: len(frame) // 2 * 2])
    if sys.byteorder == "big":
        samples.byteswap()
    power = sum(sample * sample for sample in samples) / max(1, len(samples))
    return max(-96.0, 10 * math.log10(power / 2**30)) if power else -96.0


def resampled(sound: Sound, rate: int) -> Sound:
    """Return a sound at another rate, by linear interpolation: good enough for speech.

    Raises:
        SpeechError: If numpy is not installed.
    """
    if sound.rate == rate:
        return sound
    np = installed("numpy")
    samples = np.frombuffer(sound.samples[: len(sound.samples) // 2 * 2], dtype="<i2")
    if not samples.size:
        return Sound(b"", rate)
    at = np.arange(samples.size * rate // sound.rate) * (sound.rate / rate)
    return Sound(np.interp(at, np.arange(samples.size), samples).astype("<i2").tobytes(), rate)
