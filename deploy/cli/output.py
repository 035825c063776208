"""What a command prints: JSON for programs, tables and lines for people."""

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from deploy.logs.terminal import visible

_TICK_S: Final = 1.0
_CLEAR_LINE: Final = "\r\x1b[K"


@dataclass(frozen=True)
class Output:
    """Where a command's result goes.

    Attributes:
        as_json: Whether the result is printed as one JSON document.
    """

    as_json: bool

    def result(self, value: Any, *, text: str | None = None) -> None:
        """Print a result: as JSON, or as ``text`` (the value itself where none is given)."""
        if self.as_json:
            print(_document(value))
        elif text is not None:
            print(visible(text))
        elif value is not None:
            print(visible(value) if isinstance(value, str) else _document(value, indent=2))

    def rows(self, rows: Sequence[dict[str, Any]], columns: Sequence[str], *, empty: str) -> None:
        """Print a list of objects: as JSON, or as a table of these columns."""
        if self.as_json:
            print(_document(list(rows)))
        elif rows:
            print(table([[cell(row.get(column)) for column in columns] for row in rows], columns))
        else:
            print(empty)


def _document(value: Any, *, indent: int | None = None) -> str:
    return visible(json.dumps(value, ensure_ascii=False, indent=indent))


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a person at a terminal that something that takes over a second is under way."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        started = time.monotonic()
        while not done.wait(_TICK_S):
            print(f"\r  {what}, {time.monotonic() - started:.0f} s ", end="", file=sys.stderr, flush=True)
        print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)

    ticker = threading.Thread(target=show, name="show waiting", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def note(text: str) -> None:
    """Tell a person something that is not the result."""
    print(visible(text), file=sys.stderr, flush=True)


def cell(value: Any) -> str:
    """Show a value in a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(cell(each) for each in value)
    # A line end in a cell would make a row of its own.
    return visible(str(value)).replace("\n", "\\n")


def table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    """Lay out rows under their headings, each column as wide as its longest cell."""
    headed = [[column.upper() for column in columns], *rows]
    widths = [max(len(row[position]) for row in headed) for position in range(len(columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in headed
    )
