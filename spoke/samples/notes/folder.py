"""Notes as files: the first line of each is its title."""

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from contracts.errors import Conflict, InvalidMessage, NotFound
from identity.confined import WINDOWS_DEVICES

_LONGEST_TITLE: Final = 200
_LONGEST_TEXT: Final = 100_000
_MOST_NOTES: Final = 10_000


@dataclass(frozen=True)
class NoteFile:
    """A note as it is stored."""

    path: Path
    title: str
    text: str
    changed_at: datetime


class NotesFolder:
    """The notes of one folder.

    A title never becomes a path: file names are made of its plain letters and digits, and a note is found
    by comparing titles.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def notes(self) -> list[NoteFile]:
        """Return all notes, the last changed first."""
        files = [path for path in self._path.glob("*.md") if path.is_file() and not path.is_symlink()]
        return sorted(map(_read, files), key=lambda note: note.changed_at, reverse=True)

    def find(self, title: str) -> NoteFile:
        """Return the note of a title.

        Raises:
            NotFound: There is none; the hint lists some that there are.
        """
        wanted = _folded(title)
        notes = self.notes()
        for note in notes:
            if _folded(note.title) == wanted:
                return note
        there = ", ".join(repr(note.title) for note in notes[:5])
        raise NotFound(
            "there is no note {title!r}",
            title=title,
            known=there,
            hint="There are: {known}." if there else "",
        )

    def add(self, title: str, text: str) -> NoteFile:
        """Store a new note.

        Raises:
            InvalidMessage: The title is empty or too long; Conflict where it is taken or there is no room.
        """
        title = _plain(title)
        if not title or len(title) > _LONGEST_TITLE:
            raise InvalidMessage("a title has 1 to {most} characters", most=_LONGEST_TITLE)
        notes = self.notes()
        if len(notes) >= _MOST_NOTES:
            raise Conflict("there are {most} notes already", most=_MOST_NOTES)
        if any(_folded(note.title) == _folded(title) for note in notes):
            raise Conflict("there is a note {title!r} already", title=title)
        return self._write(self._free_path(title), title, text)

    def append(self, title: str, text: str) -> NoteFile:
        """Add a line to a note.

        Raises:
            NotFound: There is no such note.
            InvalidMessage: There is no room.
        """
        note = self.find(title)
        return self._write(note.path, note.title, f"{note.text.rstrip()}\n{text}".lstrip())

    def _write(self, path: Path, title: str, text: str) -> NoteFile:
        if len(text) > _LONGEST_TEXT:
            raise InvalidMessage("a note has at most {most:,} characters", most=_LONGEST_TEXT)
        # Whole or not at all: a power cut must not leave half a note.
        draft = path.with_suffix(".new")
        draft.write_text(f"{title}\n\n{text.rstrip()}\n", encoding="utf-8")
        draft.replace(path)
        return _read(path)

    def _free_path(self, title: str) -> Path:
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
        stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60] or "note"
        if stem in WINDOWS_DEVICES:
            stem = f"{stem}-note"
        path, number = self._path / f"{stem}.md", 1
        while path.exists() or path.is_symlink():
            number += 1
            path = self._path / f"{stem}-{number}.md"
        return path


def _read(path: Path) -> NoteFile:
    title, _, text = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return NoteFile(path, _plain(title) or path.stem, text.strip(), changed_at)


def _plain(title: str) -> str:
    return " ".join(title.split()).lstrip("# ")


def _folded(title: str) -> str:
    return _plain(title).casefold()
