"""What a command prints: JSON for programs; lines, and tables as wide as the terminal, for people."""

import json
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from deploy import limits
from deploy.logs.terminal import HEADING, coloured, visible

T = TypeVar("T")

_CLEAR_LINE: Final = "\r\x1b[K"
_GAP: Final = "  "
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


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
            print(_document(value), flush=True)
        elif text is not None:
            print(visible(text))
        elif value is not None:
            print(visible(value) if isinstance(value, str) else _document(value, indent=2))

    def rows(
        self,
        rows: Sequence[T],
        cells: Callable[[T], Mapping[str, object]],
        *,
        empty: str,
        answer: object = None,
    ) -> None:
        """Print a list of objects: as JSON, or as a table.

        Args:
            cells: Returns a row as a person reads it, by the headings of its columns.
            empty: What a person reads where there are none.
            answer: What is printed as JSON where that is more than the rows.
        """
        if self.as_json:
            self.result(answer or list(rows))
        elif rows:
            shown = [cells(row) for row in rows]
            texts = [[cell(value) for value in row.values()] for row in shown]
            print(table(texts, list(shown[0]), width=screen_width()))
        else:
            print(empty)


def columns(*names: str) -> Callable[[object], Mapping[str, object]]:
    return lambda row: {name: getattr(row, name) for name in names}


def screen_width() -> int | None:
    # None where the result goes to a program.
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _document(value: Any, *, indent: int | None = None) -> str:
    return visible(json.dumps(value, ensure_ascii=False, indent=indent, default=_json))


def _json(value: object) -> Any:
    """Return the JSON of a model, as the hub sends it."""
    # Here: an answer that came as JSON is printed without pydantic.
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Yield what shows a text in one line of a terminal, which is clear at the end; nothing elsewhere."""
    shown = ""

    def show(text: str) -> None:
        nonlocal shown
        if text != shown and sys.stderr.isatty():
            print(f"{_CLEAR_LINE}{visible(text)}", end="", file=sys.stderr, flush=True)
            shown = text

    try:
        yield show
    finally:
        show("")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a person at a terminal that something that takes over a second is under way."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        started = time.monotonic()
        with progress_line() as line:
            while not done.wait(limits.PROGRESS_TICK_S):
                line(f"  {what}, {time.monotonic() - started:.0f} s ")

    ticker = threading.Thread(target=show, name="show waiting", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def note(text: str) -> None:
    print(visible(text), file=sys.stderr, flush=True)


def table(rows: Sequence[Sequence[str]], columns: Sequence[str], *, width: int | None = None) -> str:
    """Lay out rows under their headings.

    Text is wrapped where a row is wider than ``width`` columns; names, ids and paths are never broken. What
    is too narrow even so has its rows one below the other.
    """
    headings = [column.replace("_", " ").upper() for column in columns]
    widths = [max(map(_width, column)) for column in zip(headings, *rows, strict=True)]
    if width is not None:
        fitted = _fit(widths, headings, rows, width - len(_GAP) * (len(widths) - 1))
        if fitted is None:
            return _stacked(rows, headings, width)
        widths = fitted
    lines = []
    for row in (headings, *rows):
        cells = [_wrap(text, size) for text, size in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            padded = (part + " " * (size - _width(part)) for part, size in zip(parts, widths, strict=True))
            text = _GAP.join(padded).rstrip()
            is_heading = row is headings and width is not None
            lines.append(coloured(text, HEADING, sys.stdout) if is_heading else text)
    return "\n".join(lines)


def cell(value: Any) -> str:
    """Return the text of a value in a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, list):
        return ", ".join(cell(each) for each in value)
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False)
    # A line end in a cell would make a row of its own.
    return visible(str(value)).replace("\n", "\\n")


def moment(at: datetime | str | None, *, now: datetime | None = None) -> str:
    """Return a time as people say it: ``2 min ago``, ``in 9 min``; local date and time beyond a day.

    Args:
        at: As text RFC 3339; None and what is no time are returned as they are.
        now: Default: this moment.
    """
    if isinstance(at, datetime):
        then = at
    else:
        try:
            then = datetime.fromisoformat(at or "")
        except ValueError:
            return at or ""
    passed = ((now or datetime.now(UTC)) - then).total_seconds()
    if abs(passed) >= _DAY:
        return f"{then.astimezone():%Y-%m-%d %H:%M}"
    if abs(passed) < _MINUTE:
        return "just now" if passed >= 0 else "in less than a minute"
    size, unit = (_HOUR, "h") if abs(passed) >= _HOUR else (_MINUTE, "min")
    # A code that is valid for ten minutes expires "in 10 min", not in 9, a moment after it was made.
    return f"{passed // size:.0f} {unit} ago" if passed > 0 else f"in {round(-passed / size)} {unit}"


def _fit(
    widths: list[int], headings: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> list[int] | None:
    """Return narrower columns that fit, or None where words would have to be broken."""
    least = [
        min(size, max([limits.NARROWEST_CELL, *(_width(word) for text in column for word in text.split())]))
        for size, column in zip(widths, zip(headings, *rows, strict=True), strict=True)
    ]
    if sum(least) > room:
        return None
    fitted = list(widths)
    while sum(fitted) > room:
        # What can be narrowed most is narrowed first: prose, not names.
        widest = max(range(len(fitted)), key=lambda place: fitted[place] - least[place])
        fitted[widest] -= 1
    return fitted


def _stacked(rows: Sequence[Sequence[str]], headings: Sequence[str], width: int) -> str:
    indent = max(map(len, headings))
    following = "\n" + " " * (indent + len(_GAP))
    return "\n\n".join(
        "\n".join(
            heading.ljust(indent) + _GAP + following.join(_wrap(text, width - indent - len(_GAP)))
            for heading, text in zip(headings, row, strict=True)
            if text
        )
        for row in rows
    )


def _wrap(text: str, width: int) -> list[str]:
    if _width(text) <= width:
        return [text]
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if _width(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line for line in lines if line]


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )
