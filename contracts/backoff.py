"""Waits between the attempts of one task: longer after each failure, and spread at random."""

import random


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
        """Begin with the shortest wait again, after a success."""
        self._next_s = self._first_s


def jittered(seconds: float, *, share: float = 0.5) -> float:
    """Return a wait that is shortened at random by up to a share of it."""
    return seconds * random.uniform(1 - share, 1)  # noqa: S311 - no secret
