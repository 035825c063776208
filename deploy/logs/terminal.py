"""What may be written to a terminal: text, and nothing that it would obey; colours where they are wanted."""

import os
import sys
from typing import Final, TextIO

_KEPT: Final = "\n\t"
_CONTROLS: Final = (*range(0x20), *range(0x7F, 0xA0))
_DIRECTIONS: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""What turns the order of letters around, so that a text reads as another one (Unicode, bidirectional)."""

_SHOWN: Final = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_DIRECTIONS) if chr(code) not in _KEPT}


def visible(text: str) -> str:
    r"""Show what would move a cursor, colour, hide or reorder text as what it is, for example ``\u001b``.

    Names, documentation, answers and errors come from devices, models and hubs that may be anybody's. Line
    ends and tabs stay, and JSON stays the same JSON.
    """
    return text.replace("\r\n", "\n").translate(_SHOWN)


def discard_output() -> None:
    """Write standard output nowhere from now on, because its reader is gone.

    What is left in its buffer would otherwise fail the interpreter's last flush, and make that the exit code.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


GOOD: Final = "32"
BAD: Final = "1;31"
HEADING: Final = "1"


def has_colours(stream: TextIO) -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def coloured(text: str, style: str, stream: TextIO) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if has_colours(stream) else text
