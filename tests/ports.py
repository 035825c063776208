"""Ports for tests that have to name one before it is opened."""

import os
import random
import socket
from contextlib import suppress
from typing import Final

_WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

_given: Final[set[int]] = set()


def free_port() -> int:
    """Give a port on which nobody listens, at any address of this machine.

    It lies below those that systems hand out by themselves (32768 and up on Linux), so that no connection
    of another test has taken it by the time it is used. Nor is any given twice, as two names of one test
    for the same port would be. Workers that run at the same time have different ones.
    """
    while True:
        port = random.randrange(10_000 + _WORKER, 32_000, _WORKERS)
        if port in _given:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            _given.add(port)
            return port
