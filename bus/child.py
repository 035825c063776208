"""Become another program that ends when the process which started this one does (Linux).

Run as a script, without the rest of the project: between fork and exec of a
process with threads, as ours is, no Python may run.

Arguments: the process id of the parent, the signal at its end, how many files may be open (0 for the
default), then the program and its arguments.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal and for enough open files, and become the program."""
    parent, ends_by, open_files, *command = sys.argv[1:]
    if int(open_files):
        _allow(int(open_files))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(ends_by)) != 0:
        sys.exit(f"cannot be tied to the parent's life: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before that took effect.
    if os.getppid() != int(parent):
        sys.exit("the parent has gone")
    # As it was given: this Python adds a locale to its own where there is none (PEP 538).
    with open("/proc/self/environ", "rb") as given:  # noqa: PTH123 - pathlib takes longer than all of this
        environment = dict(each.split(b"=", 1) for each in given.read().split(b"\0") if b"=" in each)
    os.execvpe(command[0], command, environment)  # noqa: S606


def _allow(open_files: int) -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = open_files if most == resource.RLIM_INFINITY else min(open_files, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


if __name__ == "__main__":
    main()
