"""Landlock: files that the skills of a process cannot read, although they run as the user who owns them.

Linux can take rights away from a process for good, by a list of what stays allowed below which directories.
Only reading is restricted: what a skill may change is as before. So it protects from skills that look around,
and is no sandbox: a skill can still change files, and ask a service of the user to run a program.
"""

import ctypes
import logging
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
"""Numbers of the system calls; the same on every architecture."""
_VERSION: Final = 1
_LEAST_VERSION: Final = 2
"""Linux 5.19. Before that, no file could be moved to another directory any more."""
_PATH_BENEATH: Final = 1
_READ_FILE: Final = 1 << 2
_REFER: Final = 1 << 13
"""Moving and linking to another directory, which is refused wherever it is not allowed."""
_NO_NEW_PRIVS: Final = 38


def has_landlock() -> bool:
    """Return whether this system can keep skills from reading files."""
    if sys.platform != "linux":
        return False
    try:
        return _call(_CREATE_RULESET, None, 0, _VERSION) >= _LEAST_VERSION
    except OSError:
        return False


def hide(private: Path, *, but: Iterable[Path]) -> bool:
    """Keep this process, and every process that it starts, from reading the files below a directory.

    To be called before there are other threads, which would not be concerned. What is beside the directory
    and beside its parents at this moment stays readable; what is made directly in one of the parents later is
    readable for a new process only. ``sudo`` and the like do not work any more.

    Args:
        but: Files and directories that stay readable.

    Returns:
        Whether that was possible here.
    """
    if not has_landlock():
        return False
    private = private.resolve()
    readable = (path for path in map(Path.resolve, but) if not private.is_relative_to(path))
    try:
        # struct landlock_ruleset_attr, of which the first member is enough.
        handled = struct.pack("=Q", _READ_FILE | _REFER)
        ruleset = _call(_CREATE_RULESET, handled, len(handled), 0)
        try:
            for path in (*_beside(private), *readable):
                _allow(ruleset, path)
            if _libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")
            _call(_RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)
    except OSError as error:
        _log.warning("skills can read the files of the hub: %s", error)
        return False
    return True


def _beside(path: Path) -> Iterator[Path]:
    """Yield what is in the directories on the way to a path, and does not lead to it."""
    for directory in path.parents:
        try:
            yield from (each for each in directory.iterdir() if each != path)
        except PermissionError:
            _log.debug("%s cannot be listed", directory)
        path = directory


def _allow(ruleset: int, path: Path) -> None:
    try:
        # A link is no way to a place that is not allowed itself.
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = _READ_FILE | _REFER if stat.S_ISDIR(os.fstat(place).st_mode) else _READ_FILE
        # struct landlock_path_beneath_attr
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


@cache
def _libc() -> ctypes.CDLL:
    # Only where it is needed: Windows has none, and imports this module, too.
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    # Each as wide as a register: ctypes would pass a plain number as 32 bits.
    words = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    result = _libc().syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
