"""Epochs of a spoke, and the hub's time on a machine whose own clock may be wrong."""

import json
import logging
import time
from pathlib import Path
from typing import Final

from bus.rpc import EpochClock
from identity.files import write_private
from spoke import limits

_log = logging.getLogger(__name__)

_STATE_FILE: Final = "state.json"


class HubClock(EpochClock):
    """The hub's time, from the ``Date`` of its last HTTP answer, so that either clock may be set."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0.0
        self._present_ahead = 0.0

    def now(self) -> float:
        return super().now() + self._ahead

    def present(self) -> float:
        """Return the time for proofs: it follows a change of this machine's clock at once."""
        return time.time() + self._present_ahead

    def set_ahead(self, ahead_s: float | None) -> float:
        """Set how far the hub's clock is ahead of this machine's.

        Args:
            ahead_s: As measured from an answer; None where it had no date.

        Returns:
            The correction in seconds that this call applied; 0 for none.
        """
        if ahead_s is None:
            return 0.0
        self._present_ahead = ahead_s if abs(ahead_s) > limits.CLOCK_TOLERANCE_S else 0.0
        moved = self.present() - self.now()
        if abs(moved) <= limits.CLOCK_TOLERANCE_S:
            return 0.0
        self._ahead += moved
        return moved


def next_epoch(directory: Path) -> int:
    """Return a new epoch, above every earlier one even if the clock was set back.

    It is stored before it is used, so no two starts share one.
    """
    epoch = max(_last_epoch(directory / _STATE_FILE) + 1, time.time_ns() // 1_000_000)
    write_private(directory / _STATE_FILE, json.dumps({"epoch": epoch}).encode())
    return epoch


def _last_epoch(path: Path) -> int:
    try:
        return int(json.loads(path.read_bytes())["epoch"])
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError):
        _log.warning("%s cannot be read; the new epoch comes from the clock alone", path)
        return 0
