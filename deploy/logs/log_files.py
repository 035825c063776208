"""A log that a process keeps in files of its own, where nothing else keeps what it writes; and reading it."""

import io
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from identity.files import make_private_directory

_LARGEST: Final = 1_000_000
"""Bytes of one file."""
_OLDER: Final = 2
_LOOK_S: Final = 0.5


class LogFile(RotatingFileHandler):
    """Writes into a file that only its owner may read; ``FILE.1`` and ``FILE.2`` are those before it.

    Args:
        path: Its directory is made where it is missing.
        largest: Bytes after which the next file begins.
    """

    def __init__(self, path: Path, *, largest: int = _LARGEST) -> None:
        if not path.parent.exists():
            make_private_directory(path.parent)
        super().__init__(path, maxBytes=largest, backupCount=_OLDER, encoding="utf-8")

    def doRollover(self) -> None:  # noqa: N802  the name that logging calls
        """Begin the next file."""
        try:
            super().doRollover()
        except PermissionError:
            # Windows does not rename a file while somebody reads it: then it is done with a later line.
            self.stream = self._open()

    def _open(self) -> io.TextIOWrapper:
        opened = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return io.TextIOWrapper(
            os.fdopen(opened, "ab"), encoding="utf-8", errors="backslashreplace", newline="\n"
        )


@dataclass
class LogTail:
    """What is new in the files that a `LogFile` writes, also where it goes on to the next one meanwhile.

    Attributes:
        path: The newest file; it need not be there yet.
    """

    path: Path
    _read: int | None = None
    _offset: int = 0

    def new_lines(self) -> list[str]:
        """Give the lines that were written since the last call, oldest first; at first all that are kept."""
        lines: list[str] = []
        # Closed at once: see LogFile about Windows.
        with ExitStack() as stack:
            for number, file in reversed(self._unread(stack)):
                start = self._offset if number == self._read else 0
                file.seek(start)
                # A line that is being written is for the next call.
                content = file.read()
                whole = content[: content.rfind(b"\n") + 1]
                self._read, self._offset = number, start + len(whole)
                lines += whole.decode("utf-8", "replace").split("\n")[:-1]
        return lines

    def _unread(self, stack: ExitStack) -> list[tuple[int, io.BufferedReader]]:
        """Open the files from the newest to the one that was read last."""
        found: dict[int, io.BufferedReader] = {}
        # A file that is renamed meanwhile is met twice, and none is missed.
        for path in (self.path, *(Path(f"{self.path}.{number}") for number in range(1, _OLDER + 1))):
            try:
                file = stack.enter_context(path.open("rb"))
            except (FileNotFoundError, PermissionError):
                continue
            told = os.fstat(file.fileno())
            found.setdefault(told.st_ino, file)
            if told.st_ino == self._read and told.st_size >= self._offset:
                return list(found.items())
        self._read, self._offset = None, 0
        return list(found.items())


def spoke_log(path: Path) -> Path:
    """Give the log of the spoke that is started by the process with this log."""
    return path.with_stem(f"{path.stem}-spoke")


def read_logs(paths: list[Path], *, lines: int, follow: bool) -> Iterator[tuple[Path, str]]:
    """Give the last lines of logs, each with the log that it is of; and then what is written, without end.

    Args:
        lines: How many of each log.
        follow: Whether to go on.
    """
    tails = [LogTail(path) for path in paths]
    for tail in tails:
        kept = tail.new_lines()
        for line in kept[max(0, len(kept) - lines) :]:
            yield tail.path, line
    while follow:
        time.sleep(_LOOK_S)
        for tail in tails:
            for line in tail.new_lines():
                yield tail.path, line
