"""How often something may happen."""

import time
from collections import OrderedDict
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds that never run backwards."""


class TokenBucket:
    """Allows bursts of a size, and a steady rate in the long run."""

    def __init__(self, *, burst: float, per_second: float, clock: Clock = time.monotonic) -> None:
        self._burst = burst
        self._per_second = per_second
        self._clock = clock
        self._level = burst
        self._at = clock()

    def take(self) -> bool:
        """Take one, if there is one left."""
        self._fill()
        if self._level < 1:
            return False
        self._level -= 1
        return True

    @property
    def empty(self) -> bool:
        """Whether there is none left at present."""
        self._fill()
        return self._level < 1

    def _fill(self) -> None:
        present = self._clock()
        self._level = min(self._burst, self._level + (present - self._at) * self._per_second)
        self._at = present


class SourceLimit:
    """Counts by who did it, and in all, and says when it is enough: failures, or what costs something.

    Args:
        per_minute: How many one source may have in a minute; all together ten times as many.
    """

    _MAX_SOURCES = 1_000

    def __init__(self, *, per_minute: int, clock: Clock = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._sources: OrderedDict[str, TokenBucket] = OrderedDict()
        # Who has many addresses must not have many times as much.
        self._all = self._bucket(10 * per_minute)

    def exceeded(self, source: str) -> bool:
        """Whether this source, or all together, have had too many to go on now."""
        own = self._sources.get(source)
        return self._all.empty or (own is not None and own.empty)

    def count(self, source: str) -> None:
        """Count one."""
        own = self._sources.setdefault(source, self._bucket(self._per_minute))
        self._sources.move_to_end(source)
        if len(self._sources) > self._MAX_SOURCES:
            self._sources.popitem(last=False)
        own.take()
        self._all.take()

    def _bucket(self, per_minute: int) -> TokenBucket:
        return TokenBucket(burst=per_minute, per_second=per_minute / 60, clock=self._clock)
