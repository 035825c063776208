"""The writer of one capture: batches of samples into files that are rolled. It runs in a thread."""

import errno
import math
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import zstandard

from contracts.errors import Forbidden
from hub_live import limits
from hub_live.captures.files.formats import FORMATS, FormatName, Missing
from hub_live.captures.files.series import Series, read_lines, repair
from hub_live.topics.samples import Sample

_CHUNK: Final = 64 * 1024
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT
_LEVEL: Final = 3
"""zstd's default: 300 MB/s and a tenth of the size for typical JSON lines; higher levels gain little."""


@dataclass(frozen=True)
class FileLimits:
    """When a new file begins, and how much room is left to others.

    Attributes:
        max_bytes: Size of a file, as it is on the disk.
        max_age_s: Time from its first message.
        free_bytes: What stays free on the disk.
    """

    max_bytes: int
    max_age_s: float | None = None
    free_bytes: int = 0


class Writer:
    """Writes one series of files, and goes on with its last file when it is opened.

    What `write` returns from is on the disk. After an `OSError` the first ``done`` items of its batch are,
    too, and the next `write` cuts off whatever was written of the others.

    Args:
        begun_at: When the last file was begun, where that is known.

    Attributes:
        begun_at: When the present file was begun, Unix seconds.
        done: How many items of the present or last batch are on the disk.
    """

    def __init__(self, series: Series, name: FormatName, limits: FileLimits, *, begun_at: float = 0) -> None:
        self.series = series
        self.begun_at = begun_at
        self.done = 0
        self._limits = limits
        self._format = FORMATS[name]()
        self._handle: int | None = None
        self._number = 0
        self._size = 0
        # Where what is on the disk ends; None where only the file itself tells.
        self._good: int | None = None
        self._rolled = False
        self._compressor: zstandard.ZstdCompressionObj | None = None

    def write(self, batch: Sequence[Sample | Missing]) -> bool:
        """Write a batch, and wait until the disk has it; return whether a new file was begun.

        Raises:
            Forbidden: If a link or a special file is in the way.
            OSError: If there is no room, or the file cannot be written.
        """
        try:
            return self._write(batch)
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        """Close the present file; writing again goes on with it."""
        if self._handle is None:
            return
        try:
            if self._compressor is not None:
                self._append(self._compressor.flush())
                self._compressor = None
            os.fsync(self._handle)
            self._good = self._size
        finally:
            self._abandon()

    def discard(self, *, keep: bool) -> None:
        """Close the present file; remove an empty first one, whose path is free again, unless it is kept."""
        self._abandon()
        if keep:
            return
        first = self.series.file(1)
        with suppress(Forbidden, OSError), self.series.directory() as directory:
            if (found := directory.files().get(first)) is not None and not found.st_size:
                directory.remove(first)

    def _write(self, batch: Sequence[Sample | Missing]) -> bool:
        self.done = 0
        if self._handle is not None and not os.fstat(self._handle).st_nlink:
            # A person has removed the file.
            self._abandon()
            self._good = None
        if self._handle is None:
            self._open()
        if shutil.disk_usage(self.series.root).free < self._limits.free_bytes:
            raise OSError(errno.ENOSPC, "less is free on the disk than is left to others")
        self._rolled = False
        pending: list[bytes] = []
        waiting = 0
        missing: list[bytes] = []
        zstd = self.series.zstd
        now, encode, most = time.time(), self._format.encode, self._limits.max_bytes
        max_age_s = self._limits.max_age_s or math.inf
        for index, item in enumerate(batch):
            if isinstance(item, Missing):
                line = item.line()
                if not self._format.is_exact:
                    missing.append(line)
                    continue
                before, after = line, None
            else:
                # What is compressed has its size only once it was put.
                size = self._size if zstd else self._size + waiting
                roll = size >= most or (size > 0 and now - self.begun_at >= max_age_s)
                before, after = encode(item, roll=roll)
                if roll and after is None and self._size + waiting >= limits.FILE_OVERRUN * most:
                    # No place to begin a file has come.
                    before, after = b"", before
            pending.append(before)
            waiting += len(before)
            if after is not None:
                self._put(pending)
                self._roll(index)
                pending, waiting = [after], len(after)
            elif waiting > _CHUNK:
                self._put(pending)
                pending, waiting = [], 0
        self._put(pending)
        if missing:
            self._write_gaps(missing)
        assert self._handle is not None
        os.fsync(self._handle)
        self._good, self.done = self._size, len(batch)
        return self._rolled

    def _open(self) -> None:
        """Go on with the last file, or begin the first one."""
        with self.series.directory(create=True) as directory:
            numbers = self.series.numbers(directory.files())
            self._number = max(numbers, default=1)
            self._handle = directory.open(self.series.file(self._number), _APPEND)
        if self._good is not None:
            os.ftruncate(self._handle, min(self._good, os.fstat(self._handle).st_size))
        self._format = type(self._format)()
        repair(self._handle, zstd=self.series.zstd, lines=self._format.is_series)
        self._size = self._good = os.fstat(self._handle).st_size
        if self._size:
            self._format.resume(self._head(self._handle))
        self.begun_at = self.begun_at if self._size and self.begun_at else time.time()

    def _head(self, handle: int) -> bytes:
        with os.fdopen(os.dup(handle), "rb") as file:
            file.seek(0)
            return next(read_lines(file, zstd=self.series.zstd), b"") if self._format.has_head else b""

    def _roll(self, done: int) -> None:
        if self._size:
            self.close()
            self.done = done
            with self.series.directory(create=True) as directory:
                self._handle = directory.open(self.series.file(self._number + 1), _APPEND | os.O_EXCL)
            self._number += 1
            self._size = self._good = 0
            self._rolled = True
        self.begun_at = time.time()

    def _put(self, pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        if data and self.series.zstd:
            if self._compressor is None:
                self._compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
            # A whole block: what is in it can be read although its frame goes on.
            data = self._compressor.compress(data)
            data += self._compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        self._append(data)

    def _append(self, data: bytes) -> None:
        assert self._handle is not None
        rest = memoryview(data)
        while rest:
            written = os.write(self._handle, rest)
            self._size += written
            rest = rest[written:]

    def _write_gaps(self, lines: list[bytes]) -> None:
        with self.series.directory(create=True) as directory:
            handle = directory.open(self.series.gaps_file, _APPEND)
        with os.fdopen(handle, "ab") as file:
            file.write(b"".join(lines))

    def _abandon(self) -> None:
        handle, self._handle, self._compressor = self._handle, None, None
        if handle is not None:
            os.close(handle)
