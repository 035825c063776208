"""Ports for tests that have to name one before it is opened."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Give a port on which nobody listens, at any address of this machine.

    It lies below those that systems hand out by themselves (32768 and up on Linux), so that no connection
    of another test has taken it by the time it is used.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
