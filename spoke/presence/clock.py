"""What time it is for the hub, on a machine whose own clock may be wrong or missing."""

from typing import Final

from bus.rpc import EpochClock

_DOUBT_S: Final = 2.0
"""Up to this a difference may come from HTTP's whole seconds and a slow answer, so it says nothing.
Calls are allowed 5 s of skew; the rest of that stays for the hub."""


class HubClock(EpochClock):
    """The hub's time, as its HTTP answers tell it.

    Only the first answer counts: a clock that could be moved later might let an expired call run.

    Attributes:
        measured: Whether an answer has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self.measured = False
        self._ahead = 0.0

    def now(self) -> float:
        """Seconds since 1970 by the hub's clock."""
        return super().now() + self._ahead

    def set_ahead(self, ahead_s: float | None) -> float:
        """Take in how far the hub's clock is ahead of this machine's.

        Args:
            ahead_s: What an answer told just now; None where it told nothing.

        Returns:
            By how many seconds the clock was moved.
        """
        if ahead_s is None or self.measured:
            return 0.0
        self.measured = True
        if abs(ahead_s) > _DOUBT_S:
            self._ahead = ahead_s
        return self._ahead
