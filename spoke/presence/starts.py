"""The starts of a spoke: each has an epoch above all before it."""

import json
import logging
import time
from pathlib import Path
from typing import Final

from identity.files import write_private

_LOG = logging.getLogger(__name__)

_STATE_FILE: Final = "state.json"


def next_epoch(directory: Path) -> int:
    """Give this start's epoch, and store it first: no two starts ever have the same.

    The clock may be wrong in either direction; an epoch is above every stored one all the same.
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
        _LOG.warning("%s cannot be read; the new epoch comes from the clock alone", path)
        return 0
