"""The numbers of captures, for plots."""

import math
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from contracts.answers.watchers import Line
from contracts.wire import Json, Part
from hub_live import limits
from hub_live.captures.files.formats import flatten
from hub_live.captures.files.reading import files_of, read_capture
from hub_live.topics.samples import Sample

_T = TypeVar("_T")


POINTS: Final = 600
"""Points of a line in a plot: as many as a screen has."""


class Numbers(Part):
    """The numbers of a capture.

    Attributes:
        lines: By ``topic field``; of lines with many points, the highs and lows.
        more: How many other lines there are.
        cut: Whether there are older files that were not read.
    """

    lines: dict[str, Line]
    more: int
    cut: bool


class Lines:
    """Numbers over time by name, in bounded memory: where there are too many, highs and lows stay."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self._beyond: set[str] = set()

    def put(self, name: str, at: float, value: Json) -> None:
        """Add a value; ignore one that is no number."""
        number = _number(value)
        if number is None:
            return
        line = self.lines.get(name)
        if line is None:
            if len(self.lines) >= limits.PLOT_LINES:
                if len(self._beyond) < limits.READ_SLICE:
                    self._beyond.add(name)
                return
            line = self.lines[name] = []
        line.append((at, number))
        if len(line) > 4 * POINTS:
            line[:] = _thinner(line)

    @property
    def more(self) -> int:
        return len(self._beyond)

    def drawn(self) -> dict[str, Line]:
        return {name: _thinner(line) if len(line) > 2 * POINTS else line for name, line in self.lines.items()}


def _thinner(line: Line) -> Line:
    """Return the lowest and the highest of each four points."""
    thin: Line = []
    for start in range(0, len(line), 4):
        part = line[start : start + 4]
        low, high = (choose(part, key=lambda point: point[1]) for choose in (min, max))
        thin += [low] if low is high else sorted((low, high))
    return thin


def plotted(path: Path, *, fields: tuple[str, ...] = (), cancelled: threading.Event | None = None) -> Numbers:
    """Read the newest numbers of a jsonl or csv capture; blocks.

    Args:
        fields: Paths in the payload, as `flatten` gives them; all numbers where none.

    Raises:
        NotFound: If there is no such file.
    """
    size, since = 0, 0.0
    for file in reversed(files_of(path)):
        status = file.stat()
        if size and size + status.st_size > limits.PLOT_BYTES:
            since = status.st_mtime + 1e-6
            break
        size += status.st_size
    lines = Lines()
    for name, at, value in rested(_fields(path, only=fields, since=since), cancelled):
        lines.put(name, at, value)
    return Numbers(lines=lines.drawn(), more=lines.more, cut=since > 0)


def rested(items: Iterable[_T], cancelled: threading.Event | None) -> Iterator[_T]:
    """Yield items in a thread with rests between slices, until cancelled."""
    for number, each in enumerate(items, start=1):
        if number % limits.READ_SLICE == 0:
            if cancelled is not None and cancelled.is_set():
                return
            time.sleep(limits.READ_REST_S)
        yield each


def _number(value: Json) -> float | None:
    """Return the number that a value is, or that a cell of a table holds."""
    if isinstance(value, str) and value in ("true", "false"):
        return float(value == "true")
    try:
        number = float(value) if isinstance(value, bool | int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _fields(path: Path, *, only: tuple[str, ...], since: float) -> Iterator[tuple[str, float, Json]]:
    for item in read_capture(path, since=since):
        if isinstance(item, Sample):
            for name, value in flatten(item.value).items():
                # The version of a message on the bus is no measurement.
                is_version = item.link == "bus" and name == "v"
                if not is_version and (not only or name in only):
                    yield f"{item.topic} {name}", item.at, value
