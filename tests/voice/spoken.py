"""Speech made by espeak-ng and flite, as a microphone would hear it: 16 kHz, mono, with some noise."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from voice.audio import FRAME_BYTES, RATE

ESPEAK = ("en-us", "en-gb", "en-us+f3", "en-gb+m7")
FLITE = ("kal", "slt", "rms", "awb")
VOICES = (*(f"espeak:{name}" for name in ESPEAK), *(f"flite:{name}" for name in FLITE))


def spoken(text: str, *, voice: str = "espeak:en-us", noise: float = 0.003, after_s: float = 0.5) -> bytes:
    """Return what a microphone hears of a text.

    Args:
        noise: Amplitude of white noise below it; 1 is the loudest there is.
        after_s: Silence before and after it.
    """
    program, _, name = voice.partition(":")
    with TemporaryDirectory() as folder:
        dry = Path(folder) / "dry.wav"
        if program == "espeak":
            command = ["espeak-ng", "-v", name, "-s", "150", "-w", str(dry), text]
        else:
            command = ["flite", "-voice", name, "-t", text, "-o", str(dry)]
        subprocess.run(command, check=True, capture_output=True)
        shape = ["-r", str(RATE), "-c", "1", "-b", "16", "-e", "signed", "-t", "raw"]
        padded = ["sox", "-G", str(dry), *shape, "-", "gain", "-n", "-6", "pad", f"{after_s}", f"{after_s}"]
        clean = subprocess.run(padded, check=True, capture_output=True).stdout
        hiss = ["sox", "-R", "-n", *shape, "-", "synth", str(len(clean) / 2 / RATE + 1), "whitenoise", "vol"]
        noisy = subprocess.run([*hiss, str(noise)], check=True, capture_output=True).stdout
    return _mixed(clean, noisy)


def frames_of(sound: bytes) -> list[bytes]:
    """Cut sound into frames; what is too short for one is left out."""
    return [sound[at : at + FRAME_BYTES] for at in range(0, len(sound) - FRAME_BYTES + 1, FRAME_BYTES)]


async def frames(sound: bytes) -> AsyncIterator[bytes]:
    """Yield sound as frames, as fast as they are taken."""
    for frame in frames_of(sound):
        yield frame


def _mixed(one: bytes, other: bytes) -> bytes:
    import numpy as np

    length = len(one) // 2
    total = np.frombuffer(one, "<i2")[:length].astype(np.int32) + np.frombuffer(other, "<i2")[:length]
    return total.clip(-32_768, 32_767).astype("<i2").tobytes()
