"""What moves the bytes of a paho client: the event loop itself, or a thread of paho's own.

The loop is the faster of the two by far, because nothing is handed between threads. Loops without
``add_reader`` (Windows' proactor, which subprocesses need there) get the thread.
"""

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Protocol

from paho.mqtt.client import Client

from bus.limits import READ_SLICE_S
from bus.link.client import LeanClient, stop_loop

DriverName = Literal["auto", "loop", "thread"]

_MISC_INTERVAL_S = 1.0
"""How often paho checks its keepalive, which counts in seconds."""

_HANDED_OVER = 4096
"""Messages between paho's thread and the loop; when they are too many the thread stops reading, and
with it, by TCP, the broker stops sending."""

_HOLD_S = 0.01
"""How long an acknowledgement may wait for a message that it can leave with: longer than a call takes, so
that each of a row of calls takes the acknowledgement of the one before along. Nothing waits for it meanwhile
but the broker's count of messages in flight (20 in Mosquitto)."""

_MOST_HELD = 8
"""Acknowledgements that wait at once; well below that count, and none where a broker allows one message."""


class Driver(Protocol):
    """Runs one paho client for the length of one connection."""

    def attach(self, client: LeanClient) -> None:
        """Attach to the client before it connects."""

    def started(self) -> None:
        """Begin to work: the client's socket is connected, and CONNECT is waiting to be sent."""

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the event loop, from whichever thread paho calls back in."""

    async def drive(self, closed: asyncio.Future[str]) -> None:
        """Keep the connection alive until it is closed."""

    async def stop(self) -> None:
        """Release the socket."""


def make_driver(name: DriverName) -> Driver:
    """Choose the driver for the running loop."""
    loop = asyncio.get_running_loop()
    has_reader = type(loop).add_reader is not asyncio.AbstractEventLoop.add_reader
    if name == "thread" or (name == "auto" and not has_reader):
        return ThreadDriver(loop)
    return LoopDriver(loop)


def without_delay(_client: Client, _userdata: Any, sock: Any) -> None:
    # With Nagle's algorithm, a QoS 1 round trip costs 44 to 88 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class LoopDriver:
    """paho reads and writes when the event loop says that it can."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._client: LeanClient | None = None
        self._socket: Any = None
        self._writing = False
        self._reads_on = False
        self._held = 0
        self._hold_timer: asyncio.TimerHandle | None = None

    def attach(self, client: LeanClient) -> None:
        """Attach to the client before it connects."""
        self._client = client
        client.on_held = self._hold
        client.on_socket_open = without_delay
        client.on_socket_close = self._closed
        client.on_socket_register_write = self._wants_to_write
        client.on_socket_unregister_write = self._has_written

    def started(self) -> None:
        """Watch the socket, and send what waits."""
        assert self._client is not None
        self._socket = self._client.socket()
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._read)
            self._write()

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        # paho calls back in the loop already.
        function(*arguments)

    async def drive(self, closed: asyncio.Future[str]) -> None:
        """Keep the connection alive until it is closed."""
        assert self._client is not None
        while not closed.done():
            await asyncio.wait([closed], timeout=_MISC_INTERVAL_S)
            self._client.loop_misc()

    async def stop(self) -> None:
        """Release the socket."""
        if self._client is not None and self._client.socket() is not None:
            self._client.loop_write()
        self._forget()

    def _read(self) -> None:
        # With one call under way for what is held, each other one would read as much again.
        if not self._reads_on:
            self._read_on()

    def _read_on(self) -> None:
        self._reads_on = False
        client = self._client
        if self._socket is None or client is None:
            return
        until = time.monotonic() + READ_SLICE_S
        client.loop_read(1)
        while client.holds_bytes and time.monotonic() < until:
            client.loop_read(1)
        if client.holds_bytes:
            # The socket need not be readable any more for what is left.
            self._reads_on = True
            self._loop.call_soon(self._read_on)

    def _wants_to_write(self, _client: Client, _userdata: object, _sock: object) -> None:
        # Before `started` this runs in a helper thread.
        if self._socket is None or self._client is None:
            return
        # As Nagle's algorithm does: a message that is the only one under way leaves at once, and what follows
        # before it is acknowledged leaves as one piece. Nearly always the socket takes it all, so trying in
        # the next turn of the loop is cheaper than two system calls to watch the socket.
        if self._client.is_first_under_way:
            self._write()
        else:
            self._loop.call_soon(self._write)

    def _hold(self) -> None:
        """Send an acknowledgement with the next message, or shortly."""
        self._held += 1
        assert self._client is not None
        if self._held == max(1, min(_MOST_HELD, self._client.receive_maximum // 2)):
            self._loop.call_soon(self._write)
        elif self._held == 1:
            self._hold_timer = self._loop.call_later(_HOLD_S, self._write)

    def _write(self) -> None:
        client = self._client
        if self._socket is None or client is None or not client.want_write():
            return
        self._held = 0
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        client.loop_write()
        if self._socket is not None and client.want_write() and not self._writing:
            self._writing = True
            self._loop.add_writer(self._socket, self._write)

    def _has_written(self, _client: Client, _userdata: object, sock: object) -> None:
        if self._writing and self._socket is not None:
            self._writing = False
            self._loop.remove_writer(self._socket)

    def _closed(self, _client: Client, _userdata: object, _sock: object) -> None:
        self._forget()

    def _forget(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None and sock.fileno() >= 0:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
        self._writing = False


class ThreadDriver:
    """paho runs in its own thread; what it tells is handed over to the loop in batches."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._client: LeanClient | None = None
        self._queue: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._room = threading.Semaphore(_HANDED_OVER)
        self._woken = False
        self._stopped = threading.Event()

    def attach(self, client: LeanClient) -> None:
        """Attach to the client before it connects."""
        self._client = client
        client.on_socket_open = without_delay

    def started(self) -> None:
        """Start paho's thread."""
        assert self._client is not None
        self._client.loop_start()

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Hand a call over to the loop; waits while too many are waiting already."""
        self._room.acquire()
        if self._stopped.is_set():
            self._room.release()
            return
        self._queue.append((function, arguments))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._empty)

    async def drive(self, closed: asyncio.Future[str]) -> None:
        # The thread does the rest.
        await asyncio.wait([closed])

    async def stop(self) -> None:
        """End the thread."""
        assert self._client is not None
        self._stopped.set()
        self._room.release()
        await asyncio.to_thread(stop_loop, self._client)

    def _empty(self) -> None:
        # Cleared first: what is appended from here on wakes the loop once more, and nothing is lost.
        self._woken = False
        while self._queue:
            function, arguments = self._queue.popleft()
            self._room.release()
            function(*arguments)
