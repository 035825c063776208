"""Codes that people read from one screen and type on another."""

import hashlib
import secrets
from typing import Final

LETTERS: Final = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""31 letters and digits of which no two look alike."""
_GROUPS: Final = 4
_GROUP: Final = 4


def new_code() -> str:
    """Make a code of 79 bits, such as ``K7MP-2QXD-9RTV-HWYA``; the log redacts whatever looks like one."""
    groups = ("".join(secrets.choice(LETTERS) for _ in range(_GROUP)) for _ in range(_GROUPS))
    return "-".join(groups)


def digest_of(code: str) -> str:
    """Return the SHA-256 of a code however it was typed: in small letters, without dashes."""
    return hashlib.sha256("".join(filter(str.isalnum, code.upper())).encode()).hexdigest()
