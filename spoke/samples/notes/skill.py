"""The skill: notes added, listed, read, searched, deleted."""

from dataclasses import dataclass
from datetime import datetime

from strawberry_skills import Skill, skill_method

from .folder import NoteFile, NotesFolder


@dataclass
class NoteSummary:
    """A note without its text."""

    title: str
    changed_at: datetime
    beginning: str


class NotesSkill(Skill):
    """Notes of the household: short texts with a title, one file each."""

    labels = {
        "de": {
            "NotesSkill": "Notizen",
            "add": "Neue Notiz",
            "append": "Anfügen",
            "list_notes": "Alle Notizen",
        },
        "en": {"add": "New note", "list_notes": "All notes"},
    }

    concurrency = 1

    @skill_method()
    def add(self, title: str, text: str = "") -> str:
        """Write a new note.

        Args:
            title: What it is about; no other note may have the same.
            text: What it says.

        Returns:
            The title.
        """
        title = self._folder.add(title, text).title
        self.emit("added", {"title": title})
        return title

    @skill_method(
        read_only=True,
        sentences={
            "en": ["(list|show) [me] my notes", "what notes are there"],
            "de": ["(zeige|zeig) [mir] meine Notizen", "welche Notizen gibt es"],
        },
        responses={"en": "Your notes: {result.title}.", "de": "Deine Notizen: {result.title}."},
    )
    def list_notes(self) -> list[NoteSummary]:
        """List all notes, the last changed first."""
        return [_summary(note) for note in self._folder.notes()]

    @skill_method(read_only=True)
    def read(self, title: str) -> str:
        """Return the text of a note.

        Args:
            title: Its title; case does not matter.
        """
        return self._folder.find(title).text

    @skill_method(read_only=True)
    def search(self, words: str) -> list[NoteSummary]:
        """List the notes that hold all of some words, in title or text.

        Args:
            words: Words or parts of words; case does not matter.
        """
        wanted = words.lower().split()
        found = []
        for note in self._folder.notes():
            content = f"{note.title}\n{note.text}".lower()
            if all(word in content for word in wanted):
                found.append(_summary(note))
        return found

    @skill_method()
    def append(self, title: str, text: str) -> str:
        """Add a line to a note and return its whole text.

        Args:
            title: Its title; case does not matter.
            text: What to add.
        """
        return self._folder.append(title, text).text

    @skill_method(destructive=True, confirm=True)
    def delete(self, title: str) -> str:
        """Delete a note for good.

        Args:
            title: Its title; case does not matter.
        """
        note = self._folder.find(title)
        note.path.unlink()
        return f"Deleted {note.title!r}."

    @property
    def _folder(self) -> NotesFolder:
        return NotesFolder(self.data_dir)


def _summary(note: NoteFile) -> NoteSummary:
    return NoteSummary(note.title, note.changed_at, note.text.strip().partition("\n")[0][:80])
