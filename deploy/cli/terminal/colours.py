"""Colours of a terminal, where there is one and the person wants them (https://no-color.org)."""

import os
from typing import Final, TextIO

GOOD: Final = "32"
BAD: Final = "1;31"
HEADING: Final = "1"


def has_colours(stream: TextIO) -> bool:
    """Return whether text that goes there may have colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def coloured(text: str, style: str, stream: TextIO) -> str:
    """Return a text as one of the styles above shows it there."""
    return f"\x1b[{style}m{text}\x1b[0m" if has_colours(stream) else text
