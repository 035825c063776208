"""An answer on the terminal, piece by piece as it comes."""

import sys
from typing import Protocol

from deploy.cli.terminal.output import note
from deploy.logs.terminal import visible


class Screen(Protocol):
    """Shows one answer.

    Attributes:
        is_empty: Whether nothing of the answer was shown yet.
    """

    is_empty: bool

    def write(self, text: str) -> None:
        """Show the next piece of the answer."""
        ...

    def interrupt(self) -> None:
        """End the line, so that something else can be written in between."""
        ...


class PlainScreen:
    """Writes the answer as it is, to a file, a program or a simple terminal."""

    def __init__(self) -> None:
        self.is_empty = True
        self._in_line = False

    def write(self, text: str) -> None:
        """Write the next piece."""
        print(visible(text), end="", flush=True)
        self.is_empty = False
        self._in_line = not text.endswith("\n")

    def interrupt(self) -> None:
        """End the line, where what comes next is read on the same screen."""
        if self._in_line and sys.stdout.isatty():
            print(flush=True)
        self._in_line = False


def aside(screen: Screen, text: str) -> None:
    """Show what happens on the way to the answer, beside it on standard error."""
    screen.interrupt()
    note(f"  · {text}")
