"""Become another program that ends when the process which started this one does (Linux).

Run as a script by `broker.mosquitto.process`, without the rest of the project: between fork and exec of a
process with threads, as ours is, no Python may run.

Arguments: the process id of the parent, then the program and its arguments.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, and become the program."""
    parent, *command = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        sys.exit(f"cannot be tied to the parent's life: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before that was said.
    if os.getppid() != int(parent):
        sys.exit("the parent has gone")
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
