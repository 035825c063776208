"""Files below a directory, opened so that neither ``..`` nor a link nor a race leads out of it.

On POSIX every directory on the way is opened from the one before it without following links, so a link that
is put there meanwhile fails the call. Windows has no such calls: there each step is checked for links and
junctions before the file is opened, and again afterwards. A program that swaps a directory for a junction
between the two checks can have an empty file created elsewhere; a swap back before the second check is not
noticed.
"""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from contracts.errors import Forbidden
from contracts.phrases import Phrase
from contracts.text import shortened
from identity.limits import DEEPEST, LONGEST_NAME

_NOT_IN_NAMES: Final = frozenset('<>:"/\\|?*')
WINDOWS_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
)
"""Names that Windows keeps for devices, with any suffix."""
_HAS_DESCRIPTORS: Final = os.open in os.supports_dir_fd
_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
# A FIFO or a device is refused after it was opened; opening it must not wait.
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)
_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOEXEC
_LINK_ERRORS: Final = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""What the systems answer where a link or a file is in the way of a directory."""


def parts_of(path: str) -> tuple[str, ...]:
    """Split a relative path, written with ``/``, into names that mean the same on every system.

    Raises:
        Forbidden: If it is absolute or empty, or a name is ``..``, hidden, too long or not portable.
    """
    if PurePosixPath(path).is_absolute():
        raise Forbidden(f"{_short(path)!r} is an absolute path", hint="Use a path like garage/motion.jsonl.")
    parts = tuple(path.split("/"))
    if len(parts) > DEEPEST:
        raise Forbidden(f"{_short(path)!r} has more than {DEEPEST} levels")
    for part in parts:
        problem = _problem(part)
        if problem:
            raise Forbidden("{path!r} cannot be used: {problem}", path=_short(path), problem=problem)
    return parts


class Directory:
    """An open directory below a root; its files are named, never given by path. Made by `open_below`.

    Attributes:
        path: Where it was when it was opened; for messages.
    """

    def __init__(self, root: Path, path: Path, handle: int | None) -> None:
        self.path = path
        self._root = root
        self._handle = handle

    def open(self, name: str, flags: int, *, mode: int = 0o600) -> int:
        """Open a regular file that has one name only; return its descriptor.

        Raises:
            Forbidden: If it is a link, has a second name elsewhere, or is no regular file.
            OSError: As `os.open`; also where it is renamed or removed meanwhile.
        """
        target = self._target(name)
        if sys.platform == "win32":
            _refuse_links(self._root, self.path / name)
        try:
            handle = os.open(target, flags | _NOFOLLOW | _NONBLOCK | _CLOEXEC, mode, dir_fd=self._handle)
        except OSError as error:
            # ENXIO: a FIFO without a reader, or a socket.
            if error.errno in (*_LINK_ERRORS, errno.ENXIO, errno.EISDIR):
                raise Forbidden(f"{self.path / name} is a link or no regular file") from None
            raise
        try:
            if sys.platform == "win32":
                _refuse_links(self._root, self.path / name)
            found = os.fstat(handle)
            # By its name, too: one of two names that is removed between opening and looking leaves one.
            named = os.stat(target, dir_fd=self._handle, follow_symlinks=False)
            names = max(found.st_nlink, named.st_nlink)
            is_plain = stat.S_ISREG(found.st_mode) and names < 2 and os.path.samestat(found, named)
        except BaseException:
            os.close(handle)
            raise
        if not is_plain:
            os.close(handle)
            raise Forbidden(f"{self.path / name} is a link or no regular file")
        return handle

    def files(self) -> dict[str, os.stat_result]:
        """Return the regular files in it, by name."""
        found = {}
        for name in os.listdir(self.path if self._handle is None else self._handle):  # noqa: PTH208
            with suppress(FileNotFoundError):
                status = os.stat(self._target(name), dir_fd=self._handle, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[name] = status
        return found

    def folders(self) -> list[str]:
        """Return the names of the directories in it that a path may lead to; links are none."""
        found = []
        for name in os.listdir(self.path if self._handle is None else self._handle):  # noqa: PTH208
            with suppress(FileNotFoundError):
                status = os.stat(self._target(name), dir_fd=self._handle, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and not _problem(name):
                    found.append(name)
        return found

    def walk(self) -> Iterator[tuple[str, int]]:
        """Yield path and size of each file in it and below that `open` opens, as deep as a path may lead."""
        levels: Iterator[tuple[str, list[str], list[str], int | None]]
        if self._handle is None:
            levels = ((*each, None) for each in os.walk(self.path))
        else:
            levels = os.fwalk(".", dir_fd=self._handle)
        top = str(self.path) if self._handle is None else "."
        for place, folders, names, handle in levels:
            inside = PurePosixPath(os.path.relpath(place, top).replace(os.sep, "/"))
            if len(inside.parts) >= DEEPEST - 1:
                folders.clear()
            for name in names:
                with suppress(OSError):
                    target = os.path.join(place, name) if handle is None else name  # noqa: PTH118
                    found = os.stat(target, dir_fd=handle, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_nlink < 2:
                        yield str(inside / name), found.st_size

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all; one that is there must be one that `open` opens.

        Raises:
            Forbidden: If it is a link, has a second name elsewhere, or is no regular file.
            OSError: If it cannot be written.
        """
        with suppress(FileNotFoundError):
            os.close(self.open(name, os.O_RDONLY))
        # A hidden name, which no path can have. What is swapped in meanwhile is replaced, not followed.
        draft = f".{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC
        try:
            with os.fdopen(os.open(self._target(draft), flags, 0o600, dir_fd=self._handle), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            source, target = self._target(draft), self._target(name)
            os.replace(source, target, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except BaseException:
            self.remove(draft)
            raise

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._target(name), dir_fd=self._handle)

    def _target(self, name: str) -> str | Path:
        return self.path / name if self._handle is None else name


@contextmanager
def open_below(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[Directory]:
    """Open a directory below a root, which itself may be a link: its owner chose it.

    Args:
        parts: Names of the directories on the way, as `parts_of` gives them; none for the root.
        create: Whether to create what is missing, for the owner only.

    Raises:
        Forbidden: If a link or a file is in the way.
        OSError: If it is missing, or cannot be opened.
    """
    path = root.joinpath(*parts)
    if create:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _HAS_DESCRIPTORS:
        _refuse_links(root, path)
        if create:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield Directory(root, path, None)
        return
    handle = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            handle = _descend(handle, part, path, create=create)
        yield Directory(root, path, handle)
    finally:
        os.close(handle)


def _descend(handle: int, part: str, path: Path, *, create: bool) -> int:
    """Open a directory in an open one, which is closed on success."""
    if create:
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=handle)
    try:
        inner = os.open(part, _DIRECTORY | _NOFOLLOW, dir_fd=handle)
    except OSError as error:
        if error.errno in _LINK_ERRORS:
            raise Forbidden(f"{part!r} in {path} is a link or no directory") from None
        raise
    os.close(handle)
    return inner


def _refuse_links(root: Path, path: Path) -> None:
    """Refuse links and junctions between a root and a path, by looking; where nothing better exists."""
    step = root
    for part in path.relative_to(root).parts:
        step /= part
        try:
            found = os.lstat(step)
        except FileNotFoundError:
            return
        # 0x400 is FILE_ATTRIBUTE_REPARSE_POINT: links, junctions and mount points.
        if stat.S_ISLNK(found.st_mode) or getattr(found, "st_file_attributes", 0) & 0x400:
            raise Forbidden(f"{step} is a link")


def _problem(name: str) -> str:
    if name in ("", ".", ".."):
        template = "{name!r} is no name of a file"
    elif name.startswith("."):
        template = "{name!r} is hidden"
    elif len(name.encode()) > LONGEST_NAME:
        template = "{name!r} is longer than {most} bytes"
    elif not name.isprintable() or not _NOT_IN_NAMES.isdisjoint(name) or name[-1] in ". ":
        template = "{name!r} has characters that not every system takes in a name"
    elif name.partition(".")[0].rstrip().casefold() in WINDOWS_DEVICES:
        template = "{name!r} is a device on Windows"
    else:
        return ""
    return Phrase(template, name=_short(name), most=LONGEST_NAME)


def _short(text: str) -> str:
    return shortened(text, LONGEST_NAME)
