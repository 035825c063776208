"""The starts of a spoke: one at a time, each with an epoch above all before it."""

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from broker.files import make_private_directory, write_private
from contracts.errors import ConfigError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOG = logging.getLogger(__name__)

_STATE_FILE: Final = "state.json"
_LOCK_FILE: Final = "lock"


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


@contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Hold the directory for one process; two spokes of one identity would push each other off the bus.

    Raises:
        ConfigError: If another process holds it.
    """
    path = make_private_directory(directory) / _LOCK_FILE
    # Opened to append: the process number in it is the holder's until the lock is ours.
    opened = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(opened, "a+") as file:
        if not _lock(file):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise ConfigError(
                f"a spoke runs with {directory} already (process {holder})",
                hint="Stop it, or set another STRAWBERRY_HOME for a second device.",
            )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        # The operating system lets go of it with the file, also when the process is killed.
        yield


def _lock(file: IO[str]) -> bool:
    try:
        if sys.platform == "win32":
            # Far behind the text, which others may read: Windows locks keep readers out.
            file.seek(1 << 20)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
