"""Files that only their owner may read, and directories that only one process may use."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from contracts.errors import ConfigError
from identity import limits

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOCK_FILE: Final = "lock"


def make_private_directory(path: Path) -> Path:
    """Create a directory, with its parents, that only the owner may enter; give it back."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "posix":
        path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes, *, instead_of: bytes | None = None) -> bool:
    """Write a file that only the owner may read, whole or not at all.

    The content is on the disk before the old file is replaced, so that a crash leaves one of the two.

    Args:
        instead_of: What the file must still hold at the moment of the replacement, for a file that others
            change, too; empty where there must be none.

    Returns:
        False if the file holds something else by now; nothing was written then.
    """
    make_private_directory(path.parent)
    # mkstemp makes the file 0600 before a byte is in it.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if instead_of is not None and (path.read_bytes() if path.exists() else b"") != instead_of:
            Path(temporary).unlink()
            return False
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


@contextmanager
def only_one(directory: Path, *, what: str, hint: str) -> Iterator[None]:
    """Hold a directory for this process until the block is left or the process ends, however it ends.

    Args:
        directory: Made where it is missing.
        what: Who uses it, for the error, for example ``a spoke``.
        hint: What to do where another process holds it.

    Raises:
        ConfigError: If another process holds it; names the process.
    """
    path = make_private_directory(directory) / _LOCK_FILE
    # Opened to append: the process number in it is the holder's until the lock is ours.
    opened = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(opened, "a+") as file:
        if not _lock(file) and not _lock_later(file):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise ConfigError(f"{what} already runs with {directory} (process {holder})", hint=hint)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        # The operating system lets go of it with the file, also when the process is killed.
        yield


def is_held(directory: Path, *, by: int | None = None) -> bool:
    """Return whether a process holds a directory by `only_one`; this one counts, too.

    Args:
        by: The process id that it must have; None for any.
    """
    try:
        with (directory / _LOCK_FILE).open("r+") as file:
            # Let go of at once; who asks for it in that moment waits a little.
            if _lock(file, shared=True):
                return False
            return by is None or file.read().strip() == str(by)
    except OSError:
        return False


def _lock_later(file: IO[str]) -> bool:
    """Try again while others only look: `is_held` has it for a moment, longer on a busy machine."""
    deadline = time.monotonic() + limits.FILE_HELD_S
    time.sleep(limits.FILE_LOOK_S)
    while not _lock(file):
        if time.monotonic() > deadline or not _is_only_looked_at(file):
            return False
        time.sleep(limits.FILE_LOOK_S)
    return True


def _is_only_looked_at(file: IO[str]) -> bool:
    if sys.platform != "win32":
        if not _lock(file, shared=True):
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _lock(file: IO[str], *, shared: bool = False) -> bool:
    """Lock a file; ``shared`` where it only looks, so that two that look at once do not see each other."""
    try:
        if sys.platform == "win32":
            # Far behind the text, which others may read: Windows locks keep readers out.
            file.seek(1 << 20)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
