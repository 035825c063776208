"""How far a download is, how fast it comes, and how long it will still take."""

from collections import deque
from typing import Final

from agent_core.models.ollama import PullStep

_WINDOW_S: Final = 5.0
"""A rate over less jumps about, one over more lags behind."""

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Follows the steps of one pull, file by file.

    Attributes:
        bytes_total: Bytes of all files that were seen so far.
    """

    def __init__(self) -> None:
        self._digest = ""
        self._samples: deque[tuple[float, int]] = deque()
        self._totals: dict[str, int] = {}

    @property
    def bytes_total(self) -> int:
        """Bytes of all files that were seen so far."""
        return sum(self._totals.values())

    def text(self, step: PullStep, now: float) -> str:
        """Take a step and put it into words.

        Args:
            now: Seconds of a clock that never goes back.
        """
        if not step.total:
            return step.status
        if step.digest != self._digest:
            self._digest = step.digest
            self._samples.clear()
        self._totals[step.digest] = step.total
        # What was there before this pull is in the first sample, so that it makes no rate.
        self._samples.append((now, step.completed))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()
        share = f"{100 * step.completed // step.total:3d} %"
        parts = [f"{step.status} {share}, {size_text(step.completed)} of {size_text(step.total)}"]
        rate = self._rate()
        if rate > 0 and step.completed < step.total:
            left = (step.total - step.completed) / rate
            parts += [f"{size_text(rate)}/s", f"{duration_text(left)} left"]
        return ", ".join(parts)

    def _rate(self) -> float:
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return (last - first) / (ended - began) if ended > began else 0.0


def size_text(size: float) -> str:
    """Write a number of bytes as people say it; a kB is 1,000, as where models are offered."""
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


def duration_text(seconds: float) -> str:
    """Write a time as people say it."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
