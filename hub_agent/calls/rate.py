"""How often each user may ask."""

import time
from typing import Final

from contracts.errors import TooManyRequests
from contracts.rates import Clock, TokenBuckets

_MOST_USERS: Final = 10_000


class RateLimit:
    """Bursts of a user are served, a steady flood is not.

    Args:
        per_minute: Requests a minute in the long run.
        burst: Requests that may come at once.
    """

    def __init__(self, *, per_minute: float, burst: int, clock: Clock = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._users = TokenBuckets(burst=burst, per_second=self._per_second, most=_MOST_USERS, clock=clock)

    def spend(self, user: str) -> None:
        """Count one request of a user.

        Raises:
            TooManyRequests: If there were too many.
        """
        if not self._users.take(user):
            wait_s = max(1, round(1 / self._per_second))
            raise TooManyRequests(
                "too many messages in a short time", hint=f"Try again in {wait_s} s.", retry_after_s=wait_s
            )
