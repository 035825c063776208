"""Files that only their owner may read."""

import os
import tempfile
from pathlib import Path


def make_private_directory(path: Path) -> Path:
    """Create a directory, with its parents, that only the owner may enter; give it back."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "posix":
        path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only the owner may read, whole or not at all.

    The content is on the disk before the old file is replaced, so that a crash leaves one of the two.
    """
    make_private_directory(path.parent)
    # mkstemp makes the file 0600 before a byte is in it.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
