"""How the values of options are read."""

import argparse
import sys
from pathlib import Path


def port(text: str) -> int:
    """Read a port; 0 means any free one."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return number


def positive(text: str) -> int:
    """Read a whole number above 0."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def token_in(name: str) -> str:
    """Return the token in a file: it is never an argument itself, which other users could read."""
    if name == "-":
        # One line: what follows may be the messages of a conversation.
        token = sys.stdin.readline().strip()
    else:
        try:
            token = Path(name).read_text().strip()
        except UnicodeDecodeError:
            token = ""
        except OSError as error:
            raise argparse.ArgumentTypeError(f"cannot read {name}: {error.strerror}") from None
    if not token:
        raise argparse.ArgumentTypeError(f"there is no token in {'standard input' if name == '-' else name}")
    return token
