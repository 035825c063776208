"""A wire carried by hand, for kernels that have no ``netem``: frame by frame between two TAP devices."""

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from itertools import count
from typing import Final, Self

_SET_INTERFACE: Final = 0x400454CA
_TAP: Final = 0x0002
_NO_PACKET_INFO: Final = 0x1000
"""``TUNSETIFF``, ``IFF_TAP`` and ``IFF_NO_PI`` of Linux' <linux/if_tun.h>."""
_LARGEST_FRAME: Final = 65_536
_LOOK_S: Final = 0.1


def make_tap(name: str) -> int:
    """Make an interface in this thread's namespace; its frames come out of the descriptor given back."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TAP | _NO_PACKET_INFO))
    return descriptor


class HandWire:
    """Carries frames between two TAP devices, in a thread; a context manager.

    Attributes:
        delay_s: How long a frame is under way; up to a quarter more by chance.
        loss: The share of the frames that get lost.
    """

    def __init__(self, one: int, two: int) -> None:
        self.delay_s = 0.0
        self.loss = 0.0
        self._other = {one: two, two: one}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for descriptor in self._other:
            os.close(descriptor)

    def _carry(self) -> None:
        under_way: list[tuple[float, int, int, bytes]] = []
        order = count()
        while not self._stopped.is_set():
            wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else _LOOK_S
            for descriptor in select.select(list(self._other), [], [], min(wait, _LOOK_S))[0]:
                frame = _read(descriptor)
                if frame and random.random() >= self.loss:
                    due = time.monotonic() + self.delay_s * random.uniform(1.0, 1.25)
                    heapq.heappush(under_way, (due, next(order), self._other[descriptor], frame))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, descriptor, frame = heapq.heappop(under_way)
                _write(descriptor, frame)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _LARGEST_FRAME)
    except OSError:
        # The interface is down.
        return b""


def _write(descriptor: int, frame: bytes) -> None:
    try:
        os.write(descriptor, frame)
    except OSError:
        # It is down, or its queue is full: then the frame is lost, as on any wire.
        return
