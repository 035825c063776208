"""Files that people edit while the hub runs, such as ``SOUL.md``."""

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from contracts.errors import FileProblem

_log = logging.getLogger(__name__)
# A command that reports a problem itself has no handler; Python would print the warning beside it.
_log.addHandler(logging.NullHandler())

_T = TypeVar("_T")

MAX_BYTES: Final = 256 * 1024
"""Far more than a person writes by hand; it bounds what one read costs."""


class EditedFile(Generic[_T]):
    """A file whose last good content is in force.

    Whether it changed is looked at on each use, which costs one ``stat``; it is not watched in between.

    Args:
        parse: Makes the value of the text; raises `FileProblem` with the line of a mistake.
        absent: The value while there is no file, and while there was never a good one.
    """

    def __init__(self, path: Path, parse: Callable[[str], _T], *, absent: _T) -> None:
        self.path = path
        self._parse = parse
        self._absent = absent
        self._value = absent
        self._good = False
        self._problem: FileProblem | None = None
        self._seen: tuple[int, ...] | None = None

    @property
    def value(self) -> _T:
        """The value of the file as it is now, or as it last was without a mistake."""
        self._look()
        return self._value

    @property
    def problem(self) -> FileProblem | None:
        """Return what is wrong with the file, as ``path:line: message``; None where nothing is."""
        self._look()
        return self._problem

    def _look(self) -> None:
        """Read the file if it is another one than at the last look."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._seen, self._value, self._problem, self._good = None, self._absent, None, False
            return
        except OSError as error:
            self._note(FileProblem("cannot be read: {reason}", reason=error.strerror or error))
            return
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen == self._seen:
            return
        # The state from before the read: what is written meanwhile is another one at the next look.
        self._seen = seen
        try:
            self._value = self._parse(self._read(status))
            self._good, self._problem = True, None
        except FileProblem as problem:
            self._note(problem)
        except OSError as error:
            self._note(FileProblem("cannot be read: {reason}", reason=error.strerror or error))

    def _read(self, status: os.stat_result) -> str:
        if not stat.S_ISREG(status.st_mode):
            raise FileProblem("is not a file")
        with self.path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            line = content.count(b"\n") + 1
            raise FileProblem("is longer than {most} bytes", most=MAX_BYTES, line=line)
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise FileProblem("is not UTF-8 text", line=line, hint="Save it as UTF-8.") from None

    def _note(self, problem: FileProblem) -> None:
        """Keep a problem, and log it unless it is the one that is known."""
        line = f":{problem.line}" if problem.line is not None else ""
        located = FileProblem(
            "{path}{line_number}: {text}",
            path=self.path,
            line_number=line,
            text=problem.message,
            line=problem.line,
            hint=problem.hint,
        )
        if self._problem is None or self._problem.message != located.message:
            _log.warning(
                "%s%s", located.message, "; the last good content stays in force" if self._good else ""
            )
        self._problem = located
