"""Pronunciation of words that the dictionary lacks, in the sounds of its English model."""

import logging
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Collection
from typing import Final

from voice import limits

_log = logging.getLogger(__name__)


_TABLE: Final = """
    ɑ=AA a=AA ɒ=AA æ=AE ʌ=AH ə=AH ɐ=AH ɜ=AH ɜː=ER ɚ=ER ɔ=AO aʊ=AW aɪ=AY ɔɪ=OY ɛ=EH e=EH eɪ=EY eː=EY ɪ=IH ᵻ=IH
    i=IY oʊ=OW əʊ=OW o=OW ʊ=UH u=UW b=B tʃ=CH d=D ð=DH f=F ɡ=G g=G h=HH dʒ=JH k=K l=L ɫ=L m=M n=N ŋ=NG p=P r=R
    ɹ=R ʁ=R ɾ=R s=S ʃ=SH t=T θ=TH v=V w=W j=Y z=Z ʒ=ZH ts=T+S
    ɔø=OY ɔʏ=OY y=IH ʏ=IH yː=UW ø=ER œ=ER ç=SH x=HH pf=F ʔ= ː=
"""
"""Sounds of the International Phonetic Alphabet, as espeak-ng writes it; in the last line those that English
does not have, with the nearest."""

_SOUNDS: Final = {
    " ": "",
    **{ipa: sounds.replace("+", " ") for ipa, _, sounds in (each.partition("=") for each in _TABLE.split())},
}

_SOUND: Final = re.compile("|".join(sorted(map(re.escape, _SOUNDS), key=len, reverse=True)) + "|.")


def pronounced(words: Collection[str], *, language: str) -> dict[str, str]:
    """Return the pronunciation of words by espeak-ng; those that cannot be said are left out.

    Args:
        words: Each of letters alone.
    """
    asked = [word for word in words if len(word) <= limits.MAX_WORD]
    program = shutil.which("espeak-ng")
    if program is None or not asked:
        return {}
    # It reads standard input, a word a line: names of a home stand in no list of processes.
    command = [program, "-q", "--ipa", "-v", "en-us" if language == "en" else language]
    try:
        done = subprocess.run(
            command,
            input="\n".join(asked).encode(),
            capture_output=True,
            timeout=limits.PRONUNCIATION_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("espeak-ng does not say how words are pronounced: %s", type(error).__name__)
        return {}
    lines = done.stdout.decode(errors="replace").splitlines()
    if len(lines) != len(asked):
        _log.warning("espeak-ng says how %d of %d words are pronounced", len(lines), len(asked))
        return {}
    said = {word: in_sounds(line, language=language) for word, line in zip(asked, lines, strict=True)}
    return {word: sounds for word, sounds in said.items() if sounds}


def in_sounds(ipa: str, *, language: str) -> str:
    """Return what is written in IPA in the sounds of the model; empty where one is not known."""
    sounds = []
    for each in _SOUND.findall("".join(each for each in ipa if not _is_mark(each))):
        if each not in _SOUNDS:
            return ""
        # An English tap is that of "water".
        sounds.append("D" if each == "ɾ" and language.startswith("en") else _SOUNDS[each])
    return " ".join(filter(None, sounds))


def _is_mark(letter: str) -> bool:
    # A mark says how a sound is stressed or voiced, and not which one it is.
    return letter in "ˈˌ" or unicodedata.category(letter) in ("Mn", "Cf")
