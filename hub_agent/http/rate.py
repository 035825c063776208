"""How often each user may ask."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from hub_agent.http.errors import TooManyRequests

_MOST_USERS: Final = 10_000


class RateLimit:
    """A bucket of tokens for each user: bursts are served, a steady flood is not.

    Args:
        per_minute: Requests a minute in the long run.
        burst: Requests that may come at once.
    """

    def __init__(self, *, per_minute: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, user: str) -> None:
        """Count one request of a user.

        Raises:
            TooManyRequests: If there were too many.
        """
        now = self._clock()
        tokens, before = self._buckets.pop(user, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - before) * self._per_second)
        allowed = tokens >= 1
        self._buckets[user] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > _MOST_USERS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = (1 - tokens) / self._per_second
            raise TooManyRequests("too many messages in a short time", retry_after_s=wait)
