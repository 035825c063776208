"""Limits and back-off: token buckets, places that are taken, failures by source, waits between attempts."""

import math
import random
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

    def take(self, amount: float = 1.0, *, keep: float = 0.0) -> bool:
        """Use an amount if that much is left beyond what is to be kept; otherwise use nothing."""
        if not self.has(amount + keep):
            return False
        self._level -= amount
        return True

    def has(self, amount: float) -> bool:
        """Return whether that much is left at present."""
        self._fill()
        return self._level >= amount

    def charge(self, amount: float) -> None:
        """Deduct an amount that was used already, below zero as well: it has to fill up again first."""
        self._fill()
        self._level -= amount

    @property
    def empty(self) -> bool:
        return not self.has(1)

    def reserve(self, amount: float = 1.0) -> float:
        """Deduct an amount in advance; return the seconds until it may be used, 0 if it was there."""
        self._fill()
        self._level -= amount
        return max(0.0, -self._level / self._per_second)

    def _fill(self) -> None:
        present = self._clock()
        self._level = min(self._burst, self._level + (present - self._at) * self._per_second)
        self._at = present


class TokenBuckets:
    """One bucket for each key; the least recently used is forgotten when there are too many.

    Args:
        most: Keys that are remembered.
    """

    def __init__(
        self, *, burst: float, per_second: float, most: int = 1_000, clock: Clock = time.monotonic
    ) -> None:
        self._burst = burst
        self._per_second = per_second
        self._most = most
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, key: str, amount: float = 1.0) -> bool:
        """Deduct an amount from the bucket of a key; return False and leave it if it holds less."""
        return self.of(key).take(amount)

    def of(self, key: str) -> TokenBucket:
        """Return the bucket of a key."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = TokenBucket(burst=self._burst, per_second=self._per_second, clock=self._clock)
            self._buckets[key] = bucket
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return bucket

    def is_empty(self, key: str) -> bool:
        """Return whether nothing is left for a key at present."""
        bucket = self._buckets.get(key)
        return bucket is not None and bucket.empty


class Slots:
    """Places that are taken and given back: so many for each key, and so many in all.

    Args:
        each: Places of one key.
        total: Places of all keys together; by default any number.
        reserved: The last of those, which only people may take.
    """

    def __init__(self, *, each: int, total: float = math.inf, reserved: int = 0) -> None:
        self._each = each
        self._left = total
        self._reserved = reserved
        self._taken: dict[str, int] = {}

    def take(self, key: str, *, person: bool = False) -> bool:
        """Occupy a place, if one is free for this key; return whether one was."""
        taken, kept = self._taken.get(key, 0), 0 if person else self._reserved
        if taken >= self._each or self._left - kept < 1:
            return False
        self._taken[key] = taken + 1
        self._left -= 1
        return True

    def give_back(self, key: str) -> None:
        """Free a place that was taken."""
        self._left += 1
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]


def complaint_limit(clock: Clock = time.monotonic) -> TokenBuckets:
    # For each sender: enough to see what is wrong, and no full disk.
    return TokenBuckets(burst=20, per_second=0.1, clock=clock)


class SourceLimit:
    """Counts failures, or what costs something, by source and in all, and says when it is enough.

    Args:
        per_minute: How many one source may have in a minute; all together ten times as many.
    """

    def __init__(self, *, per_minute: int, clock: Clock = time.monotonic) -> None:
        self._sources = TokenBuckets(burst=per_minute, per_second=per_minute / 60, clock=clock)
        # A source with many addresses must not have many times as much.
        self._all = TokenBucket(burst=10 * per_minute, per_second=per_minute / 6, clock=clock)

    def exceeded(self, source: str) -> bool:
        return self._all.empty or self._sources.is_empty(source)

    def count(self, source: str) -> None:
        """Count one."""
        self._sources.take(source)
        self._all.take()


class Backoff:
    """Gives the seconds to wait after each failure: doubled each time, up to a bound.

    Args:
        first_s: Wait after the first failure, in seconds.
        most_s: Longest wait.
        jitter: Share of each wait that is random, so that devices that failed together do not try again
            together: at 0.5 the wait is between half of its length and the whole.
    """

    def __init__(self, first_s: float, most_s: float, *, jitter: float = 0.5) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._jitter = jitter
        self._next_s = first_s

    def next(self) -> float:
        """Return the seconds to wait after one more failure."""
        wait, self._next_s = self._next_s, min(2 * self._next_s, self._most_s)
        return jittered(min(wait, self._most_s), share=self._jitter)

    def reset(self) -> None:
        self._next_s = self._first_s


def jittered(seconds: float, *, share: float = 0.5) -> float:
    return seconds * random.uniform(1 - share, 1)  # noqa: S311 - no secret
