"""The latest lines of the log, in memory, for the people who run the hub."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

from chat.tasks import happens
from hub_server import limits


@dataclass(frozen=True)
class LogLine:
    """One record.

    Attributes:
        id: One more than that of the line before.
        level: As a number of ``logging``.
    """

    id: int
    at: datetime
    level: int
    logger: str
    text: str


class LogRing(logging.Handler):
    """Keeps the latest records; older ones go.

    Args:
        formatter: Takes secrets out.
    """

    def __init__(self, formatter: logging.Formatter, *, level: int = logging.INFO) -> None:
        super().__init__(level)
        self.setFormatter(formatter)
        self._kept: deque[LogLine] = deque()
        self._bytes = 0
        self._next = 1
        self._guard = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; called from any thread."""
        try:
            text = self.format(record)[: limits.MAX_LOG_LINE]
        except Exception:  # noqa: BLE001  as every handler: logging must not fail what logs
            self.handleError(record)
            return
        with self._guard:
            at = datetime.fromtimestamp(record.created, UTC)
            self._kept.append(LogLine(self._next, at, record.levelno, record.name, text))
            self._next += 1
            self._bytes += len(text)
            while len(self._kept) > limits.LOG_LINES_KEPT or self._bytes > limits.LOG_BYTES_KEPT:
                self._bytes -= len(self._kept.popleft().text)
            waiting = list(self._waiting.items())
        for event, loop in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    @property
    def latest(self) -> int:
        return self._next - 1

    def lines(self, *, after: int = 0, level: int = logging.NOTSET) -> list[LogLine]:
        with self._guard:
            return [line for line in self._kept if line.id > after and line.level >= level]

    async def follow(self, after: int, *, level: int, idle_s: float) -> AsyncIterator[list[LogLine]]:
        """Yield what comes after a line; an empty list after each time in which nothing came."""
        event = asyncio.Event()
        self._waiting[event] = asyncio.get_running_loop()
        try:
            while True:
                event.clear()
                found = self.lines(after=after)
                after = found[-1].id if found else after
                if wanted := [line for line in found if line.level >= level]:
                    yield wanted
                    continue
                if not await happens(event, within_s=idle_s):
                    yield []
        finally:
            del self._waiting[event]
