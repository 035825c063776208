"""How far a download is, how fast it comes, and how long it will still take."""

from collections import deque
from typing import Final

from agent_core.models.ollama import PullStep
from agent_core.sentences.responses import bytes_text, duration_text

_WINDOW_S: Final = 5.0
"""A rate over less jumps about, one over more lags behind."""


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
        """Return a step in words.

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
        parts = [f"{step.status} {share}, {bytes_text(step.completed)} of {bytes_text(step.total)}"]
        rate = self._rate()
        if rate > 0 and step.completed < step.total:
            left = (step.total - step.completed) / rate
            parts += [f"{bytes_text(rate)}/s", f"{duration_text(max(1, round(left)))} left"]
        return ", ".join(parts)

    def _rate(self) -> float:
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return (last - first) / (ended - began) if ended > began else 0.0
