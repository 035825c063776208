"""The latest lines of the log, in memory, for the people who run the hub."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final, Literal

from chat.tasks import happens
from contracts.wire import Part, Timestamp
from hub_server import limits

Level = Literal["debug", "info", "warning", "error"]
_LEVELS: Final[dict[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_NAMES: Final = {number: name for name, number in _LEVELS.items()}


class ShownLine(Part):
    """A line of the log; its ``id`` is one more than that of the line before."""

    id: int
    at: Timestamp
    level: Level
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
        self._kept: deque[ShownLine] = deque()
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
            level = _NAMES.get(record.levelno // 10 * 10, "error")
            self._kept.append(ShownLine(id=self._next, at=at, level=level, logger=record.name, text=text))
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

    def lines(self, *, after: int = 0, level: Level = "debug") -> list[ShownLine]:
        with self._guard:
            return [line for line in self._kept if line.id > after and _is_at_least(line, level)]

    async def follow(self, after: int, *, level: Level, idle_s: float) -> AsyncIterator[list[ShownLine]]:
        """Yield what comes after a line; an empty list after each time in which nothing came."""
        event = asyncio.Event()
        self._waiting[event] = asyncio.get_running_loop()
        try:
            while True:
                event.clear()
                found = self.lines(after=after)
                after = found[-1].id if found else after
                if wanted := [line for line in found if _is_at_least(line, level)]:
                    yield wanted
                    continue
                if not await happens(event, within_s=idle_s):
                    yield []
        finally:
            del self._waiting[event]


def _is_at_least(line: ShownLine, level: Level) -> bool:
    return _LEVELS[line.level] >= _LEVELS[level]
