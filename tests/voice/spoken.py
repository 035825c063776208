"""Speech made by espeak-ng and flite, as a microphone would hear it: 16 kHz, mono, with some noise."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from voice.sound.audio import FRAME_BYTES, RATE

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "build" / "speech"
"""What was made once: an hour of speech takes minutes."""

PROGRAMS: Final = ("espeak-ng", "flite", "sox")
HINT: Final = "speech cannot be made: apt-get install espeak-ng flite sox"

ESPEAK: Final = ("en-us", "en-gb", "en-us+f3", "en-gb+m7")
FLITE: Final = ("kal", "slt", "rms", "awb")
VOICES: Final = (*(f"espeak:{name}" for name in ESPEAK), *(f"flite:{name}" for name in FLITE))

NOISES: Final = (0.003, 0.01, 0.03)
"""Amplitudes of white noise below speech whose peaks are at half of full scale: a quiet room, a fan, a fan
beside the microphone."""


def can_speak() -> bool:
    """Return whether the programs are installed."""
    return all(map(shutil.which, PROGRAMS))


def spoken(
    text: str, *, voice: str = "espeak:en-us", noise: float = NOISES[0], after_s: float = 0.5
) -> bytes:
    """Return what a microphone hears of a text.

    Args:
        noise: Amplitude of white noise below it; 1 is the loudest there is.
        after_s: Silence before and after it.
    """
    named = hashlib.sha256(f"{voice} {after_s} {text}".encode()).hexdigest()[:24]
    kept = KEPT / f"{named}.raw"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=KEPT) as folder:
            said = Path(folder) / "said.raw"
            said.write_bytes(_made(text, voice, Path(folder), after_s))
            said.replace(kept)  # whole, or not at all: another worker may make the same
    return noisy(kept.read_bytes(), noise)


def noisy(sound: bytes, noise: float) -> bytes:
    """Return sound with white noise, the same each time."""
    import numpy as np

    samples = np.frombuffer(sound, "<i2").astype(np.float64)
    hiss = np.random.default_rng(7).uniform(-noise, noise, len(samples)) * 32_767
    mixed: bytes = (samples + hiss).clip(-32_768, 32_767).astype("<i2").tobytes()
    return mixed


def other_speech(seconds: float) -> Iterator[bytes]:
    """Yield so many seconds of speech that is meant for nobody: the documents, read by every voice."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    text = " ".join(page.read_text("utf-8") for page in pages)
    plain = " ".join(
        re.sub(r"[^A-Za-z0-9.,;:' ]+", " ", re.sub(r"```.*?```", " ", text, flags=re.DOTALL)).split()
    )
    # The voices that take long to make say less.
    shares = {voice: 0.24 if voice.startswith("espeak") else 0.01 for voice in VOICES}
    at = 0
    for voice, share in shares.items():
        each = share * seconds
        letters = int(each * 20)  # nobody reads as fast
        yield spoken(plain[at : at + letters], voice=voice)[: int(each * RATE) * 2]
        at += letters


def frames_of(sound: bytes) -> list[bytes]:
    """Cut sound into frames; what is too short for one is left out."""
    return [sound[at : at + FRAME_BYTES] for at in range(0, len(sound) - FRAME_BYTES + 1, FRAME_BYTES)]


async def frames(sound: bytes) -> AsyncIterator[bytes]:
    """Yield sound as frames, as fast as they are taken."""
    for frame in frames_of(sound):
        yield frame


def _made(text: str, voice: str, folder: Path, after_s: float) -> bytes:
    program, _, name = voice.partition(":")
    dry, read = folder / "dry.wav", folder / "text"
    read.write_text(text, "utf-8")
    if program == "espeak":
        command = ["espeak-ng", "-v", name, "-s", "150", "-w", str(dry), "-f", str(read)]
    else:
        command = ["flite", "-voice", name, str(read), str(dry)]
    subprocess.run(command, check=True, capture_output=True)
    shape = ["-r", str(RATE), "-c", "1", "-b", "16", "-e", "signed", "-t", "raw"]
    padded = ["sox", "-G", str(dry), *shape, "-", "gain", "-n", "-6", "pad", f"{after_s}", f"{after_s}"]
    return subprocess.run(padded, check=True, capture_output=True).stdout
