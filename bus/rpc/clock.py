"""The hub's time on a spoke: a clock that never jumps while the spoke runs."""

import time
from collections.abc import Callable

SKEW_S = 5.0
"""How far the clocks of hub and spoke may differ without a call being refused as late."""


class EpochClock:
    """Seconds since 1970 by the hub's clock, monotonic within one start of the spoke.

    Args:
        offset_s: Hub's time minus this machine's, as the hub's HTTP ``Date`` gave it.
    """

    def __init__(
        self,
        offset_s: float = 0.0,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._zero = wall() + offset_s - monotonic()

    def now(self) -> float:
        """The hub's time."""
        return self._zero + self._monotonic()
