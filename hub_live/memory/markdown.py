"""The format of ``MEMORY.md``: an entry a line, by category, which stays as people wrote it.

::

    # Memory

    ## Chores

    - The bins go out on Tuesday. <!-- at=2026-11-22T14:03:22.000Z from=ann conversation=0193ab -->
    a line by hand is an entry, too

    # Private: ann

    ## Presents

    - Bob wants a kite. <!-- at=2026-11-22T14:05:00.000Z from=ann conversation=0193ab untrusted -->

The comment behind an entry says when, from whom, through which device and in which conversation it was
written, and ``untrusted`` where text of strangers had been read before. What stands below
``# Private: USER`` is for that user alone.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from contracts.errors import FileProblem
from contracts.wire import rfc3339
from hub_live import limits

GENERAL: Final = "General"
"""The category of what stands above the first heading."""

_HEADING: Final = re.compile(r"(#{1,6})\s+(.*?)[\s#]*$")
_PRIVATE: Final = re.compile(r"private:\s*(\S+)$", re.IGNORECASE)
_BULLET: Final = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?=\S)")
_MARKED: Final = re.compile(r"(.*)<!--(.*?)-->\s*$")
_ID_CHARS: Final = 8


@dataclass(frozen=True)
class MemoryEntry:
    """Something that is remembered.

    Attributes:
        id: Made of the content, so that a line by hand has one, too; another one after an edit.
        private: Id of the user who alone sees it; None for the household.
        at: When it was written; None where a person wrote it into the file.
        by: Id of the user in whose turn it was written; None likewise.
        device: Id of the device through which the user asked for it, where it was through one.
        untrusted: Whether text of strangers had been read in that turn.
        lines: Numbers of its first line and of the first one behind it, from 0.
    """

    category: str
    text: str
    private: str | None = None
    at: datetime | None = None
    by: str | None = None
    device: str | None = None
    conversation: str | None = None
    untrusted: bool = False
    lines: tuple[int, int] = (0, 0)

    @property
    def id(self) -> str:
        content = f"{self.private or ''}\n{self.category.casefold()}\n{self.text}"
        return hashlib.sha256(content.encode()).hexdigest()[:_ID_CHARS]


def parse(text: str) -> tuple[MemoryEntry, ...]:
    """Return the entries in their order.

    Raises:
        FileProblem: If a comment does not end, or there are too many entries; nothing else is a mistake.
    """
    entries = _read(text)[0]
    if len(entries) > limits.MOST_FILE_ENTRIES:
        line = entries[limits.MOST_FILE_ENTRIES].lines[0] + 1
        raise FileProblem(
            "has more than {most} entries",
            most=limits.MOST_FILE_ENTRIES,
            line=line,
            hint="Delete what is out of date.",
        )
    return tuple(entries)


def with_entry(text: str, entry: MemoryEntry) -> str:
    """Return the text with one entry more, at the end of its category; every other line stays as it is."""
    lines, places = _lines(text), _read(text)[1]
    at = places.get((entry.private, entry.category.casefold()))
    new = [f"- {entry.text} <!-- {_marks(entry)} -->"]
    if at is None:
        new = ["", f"## {entry.category}", "", *new]
        own = [line for (private, _), line in places.items() if private == entry.private]
        at = max(own, default=len(lines))
        if not own and (places or entry.private is not None):
            title = "Memory" if entry.private is None else f"Private: {entry.private}"
            new = ["", f"# {title}", *new]
    end = "\r" if lines and lines[0].endswith("\r") else ""
    return _joined([*lines[:at], *(f"{line}{end}" for line in new), *lines[at:]])


def with_change(text: str, old: MemoryEntry, new: MemoryEntry) -> str:
    """Return the text with an entry in place of another; in another category it goes to the end of that."""
    if (old.private, old.category.casefold()) != (new.private, new.category.casefold()):
        return with_entry(without_entries(text, {old.id}), new)
    lines = _lines(text)
    for entry in reversed(parse(text)):
        if entry.id == old.id:
            end = "\r" if lines[entry.lines[0]].endswith("\r") else ""
            lines[slice(*entry.lines)] = [f"- {new.text} <!-- {_marks(new)} -->{end}"]
    return _joined(lines)


def without_entries(text: str, ids: Collection[str]) -> str:
    """Return the text without the lines of these entries."""
    gone = {number for entry in parse(text) if entry.id in ids for number in range(*entry.lines)}
    return _joined([line for number, line in enumerate(_lines(text)) if number not in gone])


_Places = dict[tuple[str | None, str], int]
"""The line before which a new entry goes, by user and category."""


def _read(text: str) -> tuple[list[MemoryEntry], _Places]:
    entries: list[MemoryEntry] = []
    places: _Places = {}
    private, category, in_comment, continues, comment = None, GENERAL, False, False, 0
    for number, line in enumerate(_lines(text.removeprefix("\ufeff"))):
        if in_comment or line.lstrip().startswith("<!--"):
            comment = comment if in_comment else number
            in_comment, continues = "-->" not in line, False
            if not in_comment and (private, category.casefold()) in places:
                places[private, category.casefold()] = number + 1
        elif heading := _HEADING.match(line):
            level, name = heading.groups()
            if level == "#":
                named = _PRIVATE.match(name)
                private, category = (named[1].casefold() if named else None), GENERAL
            else:
                category = name or GENERAL
            places.setdefault((private, category.casefold()), number + 1)
            continues = False
        elif not any(map(str.isalnum, line)):
            continues = False
        else:
            if continues and line[0].isspace() and not _BULLET.match(line):
                entries[-1] = _longer(entries[-1], line)
            else:
                entries.append(_entry(line, number, category, private))
            places[private, category.casefold()] = number + 1
            continues = True
    if in_comment:
        raise FileProblem("the comment does not end", line=comment + 1, hint="Close it with -->.")
    return entries, places


def _entry(line: str, number: int, category: str, private: str | None) -> MemoryEntry:
    marked = _MARKED.match(line)
    text, marks = (marked[1], marked[2].split()) if marked else (line, [])
    values = dict(mark.split("=", 1) for mark in marks if "=" in mark)
    return MemoryEntry(
        category=category,
        text=_BULLET.sub("", text, count=1).strip(),
        private=private,
        at=_moment(values.get("at", "")),
        by=values.get("from") or None,
        device=values.get("device") or None,
        conversation=values.get("conversation") or None,
        untrusted="untrusted" in marks,
        lines=(number, number + 1),
    )


def _longer(entry: MemoryEntry, line: str) -> MemoryEntry:
    return replace(entry, text=f"{entry.text} {line.strip()}", lines=(entry.lines[0], entry.lines[1] + 1))


def _marks(entry: MemoryEntry) -> str:
    values = {
        "at": rfc3339(entry.at) if entry.at is not None else "",
        "from": entry.by,
        "device": entry.device,
        "conversation": entry.conversation,
    }
    marks = [f"{name}={value}" for name, value in values.items() if value]
    return " ".join([*marks, "untrusted"] if entry.untrusted else marks)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _lines(text: str) -> list[str]:
    # Not splitlines, which also parts at characters that stand within a line of an editor.
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
