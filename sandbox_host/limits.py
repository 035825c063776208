"""What one run may use, the clock that it runs against, and the limits of the processes of sandboxes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

_KB = 1024
_MB = 1024 * _KB


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run may use.

    Attributes:
        output_bytes: What it may print; the rest is cut, and the result is marked.
        value_bytes: JSON of its last expression; a larger one is given as a cut text only.
        argument_bytes: JSON of one call's arguments.
        answer_bytes: JSON of one call's result.
        calls: How many calls it may make.
        calls_in_flight: How many of them are worked on at the same time; others wait.
        calls_per_second: How many are begun each second, after a first burst of as many.
        pending_bytes: Size of all calls that wait, and of all answers not yet taken.
        code_bytes: The program itself.
        memory_bytes: Resident memory of the whole process, the interpreter's own 200 MB included.
    """

    output_bytes: int = 64 * _KB
    value_bytes: int = 64 * _KB
    argument_bytes: int = 256 * _KB
    answer_bytes: int = _MB
    calls: int = 20_000
    calls_in_flight: int = 64
    calls_per_second: int = 5_000
    pending_bytes: int = 32 * _MB
    code_bytes: int = 256 * _KB
    memory_bytes: int = 768 * _MB


class Deadline:
    """A limit of time whose clock can stand still while a person is asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._left = seconds
        self._pauses = 0
        self._scope: asyncio.Timeout | None = None

    @asynccontextmanager
    async def enforced(self) -> AsyncIterator[None]:
        """Run a block against the clock.

        Raises:
            TimeoutError: No time is left; the block was cancelled.
        """
        async with asyncio.timeout(None) as self._scope:
            try:
                self._resume()
                yield
            finally:
                self._pause()
                self._scope = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for the block; several pauses may overlap, and one may begin before the clock."""
        self._pauses += 1
        self._pause()
        try:
            yield
        finally:
            self._pauses -= 1
            self._resume()

    def _pause(self) -> None:
        scope = self._scope
        if scope is not None and not scope.expired() and (when := scope.when()) is not None:
            self._left = when - asyncio.get_running_loop().time()
            scope.reschedule(None)

    def _resume(self) -> None:
        scope = self._scope
        if scope is not None and not scope.expired() and not self._pauses:
            scope.reschedule(asyncio.get_running_loop().time() + self._left)


# The process of a sandbox: runs, calls and messages.

MOST_REFUSALS: Final = 1000
"""How many calls past the limit are answered; a program that goes on is flooding."""
RUN_SECONDS: Final = 60.0
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
MAX_STRAYS: Final = 16
"""Lines of a run that is over which are let pass: a call that was under way when it ended."""
MAX_REPORT_BYTES: Final = 256 * 1024
"""The guest cuts text and traceback at 16,000 characters; as escaped JSON that is less than this."""
MEMORY_CHECK_SECONDS: Final = 0.1
STDERR_LINES_KEPT: Final = 40
MAX_PATH: Final = 200

# The pool and the installation.

CONVERSATIONS_REMEMBERED: Final = 10_000
"""Conversations that are known to have had variables; one takes some 500 bytes."""
POOL_RETRY_SECONDS: Final = 5.0
SPARE_DELAY_SECONDS: Final = 0.25
"""Starting a process keeps a small machine busy: the run that took the last spare goes first."""
DOWNLOAD_SECONDS: Final = 600
BUILD_SECONDS: Final = 300
