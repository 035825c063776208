"""Tables for people: as wide as the terminal, times relative to now."""

import json
import sys
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from deploy import limits
from deploy.logs.terminal import HEADING, coloured, visible

_GAP: Final = "  "
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


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
