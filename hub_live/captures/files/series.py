"""The files of one capture: ``motion.jsonl``, then ``motion.000002.jsonl``, and so on as they are rolled."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Final, Self

import zstandard

from agent_core.times import utc
from contracts.errors import Forbidden, NotFound
from contracts.wire import Part, Timestamp
from identity.confined import Directory, open_below, parts_of

_SUFFIX: Final = ".zst"
_CHUNK: Final = 64 * 1024


class CapturedFile(Part):
    """A file of a capture, and when it was changed last."""

    name: str
    bytes: int
    changed_at: Timestamp


@dataclass(frozen=True)
class Series:
    """Where the files of a capture are, and what they are called.

    Attributes:
        root: The allowed folder.
        parts: The path in it, without what rolling and compression add.
        zstd: Whether the files are compressed.
    """

    root: Path
    parts: tuple[str, ...]
    zstd: bool = False

    @classmethod
    def within(cls, roots: Iterable[Path], path: str, *, zstd: bool = False) -> Self:
        """Return the series of a path: relative to the first allowed folder, or absolute and in one of them.

        Raises:
            Forbidden: If it is anywhere else.
        """
        root, *others = roots
        zstd = zstd or path.endswith(_SUFFIX)
        inner = path.removesuffix(_SUFFIX)
        for each in (root, *others):
            if inner.startswith(f"{each.as_posix()}/"):
                return cls(each, parts_of(inner.removeprefix(f"{each.as_posix()}/")), zstd)
        if Path(inner).is_absolute():
            allowed = ", ".join(map(str, (root, *others)))
            raise Forbidden(
                "{path!r} is in no folder for captures",
                path=path[:200],
                allowed=allowed,
                hint="Allowed are: {allowed}. [captures] folders in strawberry.toml adds others.",
            )
        return cls(root, parts_of(inner), zstd)

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts[:-1], self.file(1))

    def file(self, number: int) -> str:
        """Return the name of a file, counted from 1."""
        stem, dot, suffix = self.parts[-1].rpartition(".")
        if not stem:
            stem, dot, suffix = self.parts[-1], "", ""
        counted = "" if number == 1 else f".{number:06}"
        return f"{stem}{counted}{dot}{suffix}{_SUFFIX if self.zstd else ''}"

    @property
    def gaps_file(self) -> str:
        # For formats that cannot hold gaps themselves.
        return f"{self.parts[-1]}.gaps.jsonl"

    def numbers(self, names: Iterable[str]) -> dict[int, str]:
        """Return which of these files are of this series, oldest first."""
        found = {}
        for name in names:
            match = self._pattern.fullmatch(name)
            if match is not None:
                found[int(match[1] or 1)] = name
        return dict(sorted(found.items()))

    def overlaps(self, other: "Series") -> bool:
        """Return whether a file of one could be taken for a file of the other, on any system."""
        one, two = replace(self, zstd=False), replace(other, zstd=False)
        folders = [(each.root, *(part.casefold() for part in each.parts[:-1])) for each in (one, two)]
        same = one.numbers([two.file(1)]) or two.numbers([one.file(1)])
        return folders[0] == folders[1] and bool(same)

    def found(self) -> dict[str, os.stat_result]:
        """Return what is in the directory, by name; nothing where it is not made yet, or away for now."""
        try:
            with self.directory() as directory:
                return directory.files()
        except (Forbidden, OSError):
            return {}

    def listed(self) -> list[CapturedFile]:
        """Return the files, oldest first; blocks."""
        found = self.found()
        names = [*self.numbers(found).values(), *([self.gaps_file] if self.gaps_file in found else [])]
        return [
            CapturedFile(name=name, bytes=int(found[name].st_size), changed_at=utc(found[name].st_mtime))
            for name in names
        ]

    def opened(self, name: str) -> tuple[IO[bytes], int]:
        """Open a file to read it; return it and its present size; blocks.

        Raises:
            NotFound: If it is none of these files.
        """
        if Path(name).name == name and (self.numbers([name]) or name == self.gaps_file):
            try:
                with self.directory() as directory:
                    # Not a descriptor, which would stay open where the client leaves before the first piece.
                    file = os.fdopen(directory.open(name, os.O_RDONLY), "rb")
                return file, os.fstat(file.fileno()).st_size
            except (Forbidden, OSError):
                pass
        raise NotFound("the capture has no file {name!r}", name=name[:200], hint="GET …/files lists them.")

    def device(self) -> int | None:
        """Return which disk the directory is on, or the root where it is not made; None without both."""
        for place in (self.path.parent, self.root):
            with suppress(OSError):
                return place.stat().st_dev
        return None

    def is_gone(self, device: int) -> bool:
        """Return whether there are no files of it, and not only no way to them.

        Args:
            device: The disk that they were on; without it, an empty directory may be in its place.
        """
        # Looked at before and after: a disk may come or go meanwhile.
        return self.device() == device and not self._may_be_there() and self.device() == device

    def _may_be_there(self) -> bool:
        try:
            with self.directory() as directory:
                return bool(self.numbers(directory.files()))
        except FileNotFoundError:
            return False
        except (Forbidden, OSError):
            return True

    def directory(self, *, create: bool = False) -> AbstractContextManager[Directory]:
        return open_below(self.root, self.parts[:-1], create=create)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        before, after = self.file(2).split(".000002", 1)
        return re.compile(rf"{re.escape(before)}(?:\.(\d{{6,9}}))?{re.escape(after)}", re.IGNORECASE)


def read_lines(file: IO[bytes], *, zstd: bool) -> Iterator[bytes]:
    """Read the lines of a file that may be written to meanwhile, or whose end was lost in a crash.

    Raises:
        zstandard.ZstdError: If it is damaged in the middle; the lines before that were returned.
    """
    if not zstd:
        yield from file
        return
    # A stream reader keeps back what it has of a frame that goes on.
    stream = zstandard.ZstdDecompressor().decompressobj(read_across_frames=True)
    rest = b""
    while chunk := file.read(_CHUNK):
        *lines, rest = (rest + stream.decompress(chunk)).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def repair(handle: int, *, zstd: bool, lines: bool) -> None:
    """Cut off what a crash left incomplete at the end of a file, so that it can be continued.

    A compressed file is cut after its last whole block, and its last frame is ended there.

    Args:
        handle: Opened to read and to append.
    """
    size = os.fstat(handle).st_size
    with os.fdopen(os.dup(handle), "rb") as file:
        if zstd:
            end, is_open = _last_block(file, size)
        else:
            end, is_open = (_last_line_end(file, size) if lines else size), False
    if end != size:
        os.ftruncate(handle, end)
    if is_open:
        os.write(handle, _LAST_BLOCK)


_LAST_BLOCK: Final = b"\x01\0\0"
"""An empty raw block with the flag of the last one of its frame (RFC 8878, section 3.1.1.2)."""


def _last_block(file: IO[bytes], size: int) -> tuple[int, bool]:
    """Return where the last whole block ends, and whether its frame goes on (RFC 8878, section 3.1.1)."""
    place = 0
    while place < size:
        whole, end = place, 0
        file.seek(place)
        head = file.read(18)
        try:
            place += zstandard.frame_header_size(head)
            checksum = 4 * zstandard.get_frame_parameters(head).has_checksum
        except zstandard.ZstdError:
            return whole, False
        last = False
        while not last:
            file.seek(place)
            header = int.from_bytes(file.read(3), "little")
            last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
            # A run-length block holds the one byte that it repeats.
            place += 3 + (1 if kind == _RUN_LENGTH else length)
            # Zeros are what a power cut leaves where nothing was written yet.
            if place > size or header == 0:
                return (end, True) if end else (whole, False)
            end = place
        place += checksum
    return size, False


_RUN_LENGTH: Final = 1


def _last_line_end(file: IO[bytes], size: int) -> int:
    place = size
    while place:
        begin = max(0, place - _CHUNK)
        file.seek(begin)
        found = file.read(place - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        place = begin
    return 0
