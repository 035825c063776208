"""``SOUL.md``: what the owner tells the assistant about itself and the home."""

import re
import unicodedata
from pathlib import Path
from typing import Final

from agent_core.files.edited_file import EditedFile
from contracts.errors import FileProblem

SOUL_FILE: Final = "SOUL.md"
MAX_SOUL: Final = 4_000
"""Characters. It is in every prompt, and a small model loses sight of the rest beside a longer one."""

TEMPLATE: Final = f"""\
<!--
What the assistant of this home is like. It reads this file with every message; a change counts at once.
At most {MAX_SOUL:,} characters, in your own words. Comments like this one are not read.
What it must never do belongs into [household] rules in strawberry.toml; what it shall remember, say to it.
-->
You are the assistant of our home. You are friendly and brief.

## What matters to us
1. Nobody is woken between 22:00 and 7:00.
2. Save energy where nobody misses it.
"""

_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_OPEN: Final = "<!--"


def open_soul(directory: Path) -> EditedFile[str]:
    return EditedFile(directory / SOUL_FILE, parse_soul, absent="")


def parse_soul(text: str) -> str:
    """Return what a model reads of the file: all but the comments.

    Raises:
        FileProblem: If it is too long, a comment does not end, or it holds what no editor writes.
    """
    for place, line in enumerate(text.splitlines(), 1):
        if any(unicodedata.category(each) == "Cc" and each != "\t" for each in line):
            raise FileProblem("holds a control character", line=place, hint="Write it as plain text.")
    # Each comment leaves its line ends, so that lines keep their numbers.
    kept = _COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), text)
    if _OPEN in kept:
        raise FileProblem(
            "the comment does not end", line=_line(kept, kept.index(_OPEN)), hint="Close it with -->."
        )
    soul = kept.strip()
    if len(soul) > MAX_SOUL:
        begin = len(kept) - len(kept.lstrip())
        raise FileProblem(
            "is longer than {most:,} characters from here on",
            most=MAX_SOUL,
            line=_line(kept, begin + MAX_SOUL),
        )
    return re.sub(r"\n{3,}", "\n\n", soul)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
