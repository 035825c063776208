"""A service manager's socket, as systemd has one: datagrams of ``NAME=value`` lines."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self


@dataclass
class Heard:
    """What a service has told its manager.

    Attributes:
        address: For ``NOTIFY_SOCKET``.
    """

    address: str
    _socket: socket.socket
    _all: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def listening(cls, address: str) -> Iterator[Self]:
        """Listen at a path, or at ``@name`` for an abstract socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.bind(f"\0{address[1:]}" if address.startswith("@") else address)
            server.setblocking(False)
            yield cls(address, server)

    def all(self) -> list[dict[str, str]]:
        """Every message so far."""
        while True:
            try:
                payload = self._socket.recv(65_536)
            except BlockingIOError:
                return self._all
            self._all.append(dict(line.split("=", 1) for line in payload.decode().splitlines()))

    def forget(self) -> None:
        """Forget what came so far."""
        self.all()
        self._all.clear()

    def said(self, name: str) -> list[str]:
        """Every value of one name, in order."""
        return [message[name] for message in self.all() if name in message]
