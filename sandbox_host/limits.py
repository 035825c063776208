"""What one run may use, and the clock that it runs against."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_KB = 1024
_MB = 1024 * _KB


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run may use.

    Attributes:
        seconds: Time, where the caller brings no ``Deadline`` of its own.
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

    seconds: float = 60.0
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
    """A limit of time whose clock can stand still while a person is asked.

    The clock starts with the first ``start``; a run does that for the deadline it is given.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._left = seconds
        self._since: float | None = None
        self._started = False
        self._pauses = 0
        self._changed = asyncio.Event()

    @property
    def left(self) -> float:
        """Seconds that remain; never below zero."""
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return max(0.0, self._left - running)

    def start(self) -> None:
        """Start the clock; does nothing if it was started before."""
        if not self._started:
            self._started = True
            self._resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for the block; several pauses may overlap."""
        self._pauses += 1
        self._left, self._since = self.left, None
        self._changed.set()
        try:
            yield
        finally:
            self._pauses -= 1
            self._resume()

    async def expired(self) -> None:
        """Wait until no time is left."""
        while self._since is None or self.left > 0:
            self._changed.clear()
            wait = None if self._since is None else self.left
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _resume(self) -> None:
        if self._started and self._pauses == 0:
            self._since = time.monotonic()
            self._changed.set()
