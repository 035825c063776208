"""Files in folders that the owner names: list, read, search, and write where that is allowed."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field

from contracts.errors import Conflict, Forbidden, InvalidMessage, NotFound, StrawberryError
from identity.confined import Directory, open_below, parts_of
from strawberry_skills import Skill, Unit, skill_method

_PAGE_BYTES: Final = 8_000
"""Of a file in one answer: about 2,000 tokens of a model."""
_MOST_LISTED: Final = 200
_MOST_FOUND: Final = 50
_SEARCHED_BYTES: Final = 256 * 1024
"""Of each file whose text is searched; names are searched in any case."""
_SEARCH_S: Final = 20.0
_LINE_CHARS: Final = 200

_reads = partial(skill_method, read_only=True, untrusted_output=True)

Name = Annotated[str, Field(pattern=r"^\w[\w -]{0,30}$")]
Bytes = Annotated[int, Unit("B")]


@dataclass
class Entry:
    """A file or a folder; a folder has no size, and its path ends with ``/``."""

    path: str
    size: Bytes | None
    changed_at: datetime | None


@dataclass
class FileText:
    """A part of a text file.

    Attributes:
        more: Bytes that follow; ask for them with a start.
    """

    path: str
    text: str
    more: int


@dataclass
class Found:
    """A file that has all words in its name or its text; the first line with one of them."""

    path: str
    line: str


class FilesSkill(Skill):
    """Files of this device, in the folders that its owner allows."""

    labels = {
        "de": {"FilesSkill": "Dateien", "list_files": "Auflisten", "write": "Schreiben", "start": "Ab Byte"}
        | {"replace": "Ersetzen", "folders": "Erlaubte Ordner", "may_write": "Schreiben erlauben"},
        "en": {"list_files": "List", "start": "From byte"},
    }

    class Settings(BaseModel):
        """Which folders there are, by the names that you call them."""

        folders: Annotated[
            dict[Name, Path], Field(min_length=1, max_length=50, description='{"music": "/srv/music"}')
        ]
        may_write: Annotated[bool, Field(description="Whether files may be created and replaced.")] = False

    @_reads(
        sentences={
            "en": ["(list|show) [me] (the|my) files in {path}"],
            "de": ["(zeige|zeig) [mir] (die|meine) Dateien in {path}"],
        },
        responses=dict.fromkeys(("en", "de"), "{result.path}."),
    )
    def list_files(self, path: str = "") -> list[Entry]:
        """List what is in a folder, folders first; without a path, the folders that are allowed.

        Args:
            path: Begins with the name of an allowed folder, for example music/albums.
        """
        if not path.strip("/"):
            return [Entry(f"{name}/", None, None) for name in self.settings.folders]
        path = path.strip("/")
        with self._opened(path) as directory:
            folders = [Entry(f"{path}/{name}/", None, None) for name in sorted(directory.folders())]
            files = [
                Entry(f"{path}/{name}", found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))
                for name, found in sorted(directory.files().items())
                if not name.startswith(".")
            ]
        return [*folders, *files][:_MOST_LISTED]

    @_reads()
    def read(self, path: str, start: Annotated[int, Field(ge=0)] = 0) -> FileText:
        """Return the text of a file.

        Args:
            path: As `list_files` gives it.
            start: From which byte on, for the rest of a long file.
        """
        with self._file(path, os.O_RDONLY) as handle:
            size = os.fstat(handle).st_size
            os.lseek(handle, start, os.SEEK_SET)
            content = os.read(handle, _PAGE_BYTES)
        if b"\0" in content:
            raise StrawberryError("{path} is no text file", path=path)
        return FileText(path, content.decode("utf-8", "replace"), max(0, size - start - len(content)))

    @_reads()
    def search(self, words: str, path: str = "") -> list[Found]:
        """List the files that have all of some words in their name or their text.

        Args:
            words: Words or parts of words; case does not matter.
            path: Only below this folder; by default in all that are allowed.
        """
        wanted, until = words.casefold().split(), time.monotonic() + _SEARCH_S
        if not wanted:
            raise InvalidMessage("words to search for are missing")
        found: list[Found] = []
        for place in [path.strip("/")] if path.strip("/") else self.settings.folders:
            with self._opened(place) as directory:
                for inner, _ in directory.walk():
                    self.check_cancelled()
                    if len(found) >= _MOST_FOUND or time.monotonic() > until:
                        return found
                    with suppress(StrawberryError, OSError):
                        found += self._matched(f"{place}/{inner}", wanted)
        return found

    @skill_method(destructive=True, confirm=True)
    def write(self, path: str, text: Annotated[str, Field(max_length=100_000)], replace: bool = False) -> str:
        """Write a text file, and return its path; one that is there stays, unless it is to be replaced.

        Args:
            path: Begins with the name of an allowed folder, for example documents/list.txt.
            text: What it says.
            replace: A file that is there is replaced, and what it said is lost.
        """
        if not self.settings.may_write:
            raise Forbidden("this device's files may only be read", hint="Its owner can set may_write.")
        if path.endswith("/"):
            raise StrawberryError("{path} names a folder", path=path, hint="End the path with a file's name.")
        flags = os.O_RDONLY if replace else os.O_WRONLY | os.O_CREAT | os.O_EXCL
        # Opened as a check, or to have it made, and then written whole or not at all.
        with self._file(path, flags), self._opened(path.strip("/").rpartition("/")[0]) as directory:
            directory.write(path.rpartition("/")[2], text.encode())
        return path

    def _matched(self, path: str, wanted: list[str]) -> Iterator[Found]:
        name = path.casefold()
        missing = [word for word in wanted if word not in name]
        if not missing:
            yield Found(path, "")
            return
        with self._file(path, os.O_RDONLY) as handle:
            content = os.read(handle, _SEARCHED_BYTES)
        if b"\0" in content:
            return
        text = content.decode("utf-8", "replace")
        folded = text.casefold()
        if all(word in folded for word in missing):
            line = next((each for each in text.splitlines() if missing[0] in each.casefold()), "")
            yield Found(path, line.strip()[:_LINE_CHARS])

    @contextmanager
    def _opened(self, path: str) -> Iterator[Directory]:
        name, _, inner = path.strip("/").partition("/")
        folders: dict[str, Path] = self.settings.folders
        if name not in folders:
            known = ", ".join(folders)
            raise NotFound(
                "{name!r} is no allowed folder", name=name, known=known, hint="There are: {known}."
            )
        try:
            with open_below(folders[name].expanduser(), parts_of(inner) if inner else ()) as directory:
                yield directory
        except FileNotFoundError:
            raise NotFound("there is no {path}", path=path) from None
        except FileExistsError:
            raise Conflict("{path} is there already", path=path) from None
        except OSError as error:
            raise StrawberryError("{path}: {reason}", path=path, reason=error.strerror) from None

    @contextmanager
    def _file(self, path: str, flags: int) -> Iterator[int]:
        folder, _, name = path.strip("/").rpartition("/")
        if not folder:
            raise NotFound("{path!r} names no file", path=path, hint="Begin with a folder: music/a.txt.")
        parts_of(name)
        with self._opened(folder) as directory:
            handle = directory.open(name, flags)
            try:
                yield handle
            finally:
                os.close(handle)
