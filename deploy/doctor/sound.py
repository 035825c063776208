"""Looks whether skills of this machine play or record, and whether they can."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from deploy.doctor.checks import Check

_CARDS: Final = Path("/proc/asound/cards")
_DEVICES: Final = Path("/dev/snd")
_USES_SOUND: Final = re.compile(
    r"\b(?:alsaaudio|aplay|arecord|espeak(?:-ng)?|miniaudio|mpg123|mpv|paplay|pyaudio|pyttsx3|pw-play|pw-record"
    r"|simpleaudio|sounddevice|soundcard|speech_recognition)\b",
    re.IGNORECASE,
)
"""Packages and programs that skills play and record with."""
_MOST_BYTES: Final = 1_000_000
"""A file of source is smaller; what is not is no skill."""


def check_sound(skills: Iterable[Path], *, cards: Path = _CARDS, devices: Path = _DEVICES) -> Iterator[Check]:
    """Look at the sound cards; it is a fault that there is none only where a skill needs one.

    Args:
        skills: Folders of skills.
        cards: Where the kernel lists its cards.
        devices: Where they can be opened.
    """
    if not sys.platform.startswith("linux"):
        return
    using = next(_using(skills), None)
    card = _first(cards)
    if using is None:
        yield Check(
            "sound", ok=True, detail=f"{card or 'no sound card'}; not needed: no skill here plays or records"
        )
    elif card is None:
        yield Check(
            "sound",
            ok=False,
            detail=f"there is no sound card, and {using} needs one",
            hint="'lsusb' shows whether it is plugged in; the one of a Raspberry Pi is switched on by "
            "'dtparam=audio=on' in /boot/firmware/config.txt, and a reboot.",
        )
    elif not _may_open(devices):
        yield Check(
            "sound",
            ok=False,
            detail=f"{card}: this user may not open it, and {using} needs it",
            hint="sudo usermod -aG audio $(id -un), then log in anew; a service starts anew, too.",
        )
    else:
        yield Check("sound", ok=True, detail=f"{card}, for {using}")


def _first(cards: Path) -> str | None:
    """Give the name of the first card."""
    try:
        # Two lines for each card, the first with its number (the kernel's own format).
        lines = [line for line in cards.read_text("utf-8", "replace").splitlines() if "]:" in line]
    except OSError:
        return None
    return lines[0].partition("]:")[2].strip() if lines else None


def _may_open(devices: Path) -> bool:
    """Whether this user may play on one of the cards."""
    return any(os.access(each, os.R_OK | os.W_OK) for each in devices.glob("control*"))


def _using(folders: Iterable[Path]) -> Iterator[str]:
    """Give the skills that play or record, by their files."""
    for folder in folders:
        for file in sorted(folder.glob("**/*.py")):
            # A folder or a package of others may lie beside the skills.
            if file.is_file() and file.stat().st_size <= _MOST_BYTES and _mentions_sound(file):
                yield str(file.relative_to(folder))


def _mentions_sound(file: Path) -> bool:
    try:
        return _USES_SOUND.search(file.read_text("utf-8", "replace")) is not None
    except OSError:
        return False
