"""Become another program that ends when the process which started this one does (Linux).

Run as a script, without the rest of the project: between fork and exec of a
process with threads, as ours is, no Python may run.

Arguments: the process id of the parent, then the program and its arguments.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1

OPEN_FILES = 8192
"""For three listeners with all the connections they may have. Many a system gives 1,024 to who does not ask.
A much higher number costs memory: libwebsockets keeps a table of as many entries."""


def main() -> None:
    """Ask for the signal and for enough connections, and become the program."""
    parent, *command = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        sys.exit(f"cannot be tied to the parent's life: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before that was said.
    if os.getppid() != int(parent):
        sys.exit("the parent has gone")
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
