"""How long a message waits for the hub: one time for everything until it is clear who answers."""

import asyncio
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Patience:
    """When the four steps of asking the hub are over, each as a time of the running loop's clock.

    Each step has a quarter of the whole, and what the steps before it have left of theirs. So a hub that
    falls silent, at whatever step, costs the whole at most. A message goes out only while there is time for
    its first chunk, and one without a first chunk can still be taken back: whatever was spent before, the
    hub has a fair time to say that it does nothing, and a doubt remains only where it does not use it.

    Attributes:
        told: Telling the hub what was said here while it was away.
        found: Hearing that it is there.
        begun: The first chunk of its answer.
        settled: Hearing that it does not run the message.
    """

    told: float
    found: float
    begun: float
    settled: float

    @classmethod
    def from_now(cls, whole_s: float) -> Self:
        """Begin to wait.

        Args:
            whole_s: Seconds for all steps together.
        """
        now, quarter = asyncio.get_running_loop().time(), whole_s / 4
        return cls(now + quarter, now + 2 * quarter, now + 3 * quarter, now + whole_s)
