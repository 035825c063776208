"""The files of an agent: below its own directory, and within its quota."""

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, Self

from contracts.errors import Conflict, FileProblem, Forbidden
from contracts.phrases import Phrase
from contracts.text import storable
from contracts.wire import OrAbsent, Phrased, PhraseText
from hub_agent import limits
from hub_agent.agents.profile import DATA, AgentProfile
from identity.confined import open_below, parts_of

_ONE: Final = Lock()
"""Held by who writes: two that look at a quota at once would both find room."""


class ListedFile(Phrased):
    """A file of an agent; the last one has only a note, where there are too many."""

    path: OrAbsent[str] = None
    bytes: OrAbsent[int] = None
    note: OrAbsent[PhraseText] = None


@dataclass(frozen=True)
class AgentFiles:
    """The files of one agent.

    Attributes:
        root: A directory that is trusted: links on the way to it are followed.
        below: The way from there to the agent's directory, on which no link is followed.
        max_files: How many there may be, those included that were put there by others.
        max_bytes: How large all of them together may be.
    """

    root: Path
    below: tuple[str, ...]
    max_files: int
    max_bytes: int

    @classmethod
    def of(cls, home: Path, name: str, profile: AgentProfile) -> Self:
        """Return the files of an agent.

        Args:
            home: ``STRAWBERRY_HOME``.

        Raises:
            FileProblem: If its directory would hold Strawberry's own files.
        """
        quota, path = profile.quota, Path(profile.data_dir or f"{DATA}/{name}")
        if not path.is_absolute():
            return cls(home, path.parts, quota.files, quota.bytes)
        path, own = path.resolve(), home.resolve()
        if own.is_relative_to(path) or path.is_relative_to(own):
            raise FileProblem(
                "data_dir {path} would hold Strawberry's own files",
                path=path,
                data=DATA,
                home=home,
                hint="Name a folder in {data}/, or one outside of {home}.",
            )
        return cls(path, (), quota.files, quota.bytes)

    def make_directory(self) -> None:
        """Create the directory, so that a person can put files into it; a failure shows when it is used."""
        with suppress(Forbidden, OSError), open_below(self.root, self.below, create=True):
            pass

    def read(self, path: str, line: int) -> str:
        """Return the text of a file from a line on, as much as one answer holds.

        Raises:
            Forbidden: If it is not a plain file below the directory.
            OSError: If it cannot be read.
            ValueError: If it is not text, too large, or has no such line.
        """
        content = self.content(path)
        if b"\0" in content:
            raise ValueError(f"{path} is not a text file")
        lines = content.decode("utf-8", "replace").splitlines(keepends=True)
        if not 1 <= line <= max(1, len(lines)):
            raise ValueError(f"{path} has the lines 1 to {len(lines)}")
        return _page(lines, line - 1)

    def content(self, path: str) -> bytes:
        """Return all that is in a file.

        Raises:
            Forbidden: If it is not a plain file below the directory.
            OSError: If it cannot be read.
            ValueError: If it is too large.
        """
        *folders, name = parts_of(path)
        with (
            open_below(self.root, (*self.below, *folders)) as directory,
            os.fdopen(directory.open(name, os.O_RDONLY), "rb") as file,
        ):
            content = file.read(limits.MAX_READ_BYTES + 1)
        if len(content) > limits.MAX_READ_BYTES:
            raise ValueError(f"{path} is larger than {limits.MAX_READ_BYTES:,} bytes")
        return content

    def write(self, path: str, text: str, *, append: bool) -> int:
        """Write a file, or add to it; return how large it is now.

        Raises:
            Forbidden: If it cannot be a plain file below the directory, or the quota is used up.
            OSError: If it cannot be written.
        """
        return self._put(path, text.encode("utf-8", "replace"), at=None if append else 0)

    def store(self, path: str, content: bytes, *, at: int) -> int:
        """Write a piece of a file; return how large it is now.

        Args:
            at: Where the piece begins: 0 starts over, else it is where the file ends.

        Raises:
            Conflict: If the file ends elsewhere.
            Forbidden: If it cannot be a plain file below the directory, or the quota is used up.
            OSError: If it cannot be written.
        """
        if at + len(content) > limits.MAX_READ_BYTES:
            raise Forbidden(
                "a file may have {most:,} bytes", most=limits.MAX_READ_BYTES, hint="Write several files."
            )
        return self._put(path, content, at=at)

    def remove(self, path: str) -> None:
        """Remove a file.

        Raises:
            Forbidden: If it is not below the directory.
            OSError: If there is none.
        """
        *folders, name = parts_of(path)
        with _ONE, open_below(self.root, (*self.below, *folders)) as directory:
            if name not in directory.files():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            directory.remove(name)

    def _put(self, path: str, content: bytes, *, at: int | None) -> int:
        *folders, name = parts_of(path)
        with _ONE, open_below(self.root, (*self.below, *folders), create=True) as directory:
            present = directory.files().get(name)
            known = present.st_size if present is not None else 0
            if at not in (None, 0, known):
                raise Conflict(
                    "{path} has {known:,} bytes by now",
                    path=path,
                    known=known,
                    hint="Send it again from its beginning.",
                )
            kept = 0 if at == 0 else known
            self._check_quota(kept + len(content) - known, is_new=present is None)
            if kept:
                with os.fdopen(directory.open(name, os.O_RDONLY), "rb") as file:
                    content = file.read(self.max_bytes) + content
            directory.write(name, content)
            return len(content)

    def list(self, folder: str) -> list[ListedFile]:
        """Return path and size of the files in a folder and below it, some hundreds at most.

        Raises:
            Forbidden: If it is not a folder below the directory.
            OSError: If there is none.
        """
        parts = parts_of(folder) if folder not in ("", ".") else ()
        with open_below(self.root, (*self.below, *parts), create=not parts) as directory:
            found = sorted((path, size) for path, size in directory.walk() if not _is_hidden(path))
        listed = [
            ListedFile(path="/".join((*parts, path)), bytes=size)
            for path, size in found[: limits.FILES_LISTED]
        ]
        if (more := len(found) - limits.FILES_LISTED) > 0:
            note = Phrase("and {more} more; name a folder to see those in it", more=more)
            listed.append(ListedFile(note=note))
        return listed

    def _check_quota(self, growth: int, *, is_new: bool) -> None:
        with open_below(self.root, self.below) as directory:
            sizes = [size for _, size in directory.walk()]
        if is_new and len(sizes) >= self.max_files:
            raise Forbidden(
                "there are {files:,} files, and {most:,} are allowed",
                files=len(sizes),
                most=self.max_files,
                hint="Delete some first.",
            )
        if growth > 0 and sum(sizes) + growth > self.max_bytes:
            raise Forbidden(
                "all files together may have {most:,} bytes, and this would be more",
                most=self.max_bytes,
                hint="Delete some first.",
            )


def _is_hidden(path: str) -> bool:
    # A name that is no text, as old programs left them, can neither be sent nor asked for.
    return any(part.startswith(".") for part in path.split("/")) or storable(path) != path


def _page(lines: list[str], start: int) -> str:
    """Return as many lines as one answer holds, and how to read on."""
    size, end = 0, start
    while end < len(lines) and (end == start or size + len(lines[end]) <= limits.PAGE_CHARS):
        size, end = size + len(lines[end]), end + 1
    text = "".join(lines[start:end])
    if len(text) > limits.PAGE_CHARS:
        text = f"{text[: limits.PAGE_CHARS]} … (this line has {len(text):,} characters)\n"
    if end < len(lines):
        text += f"\n[Lines {start + 1} to {end} of {len(lines)}. Go on with line={end + 1}.]"
    return text
