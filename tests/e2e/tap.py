"""A wire between clients and a broker that keeps what the clients send."""

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from typing import Self

_LOOK_S = 0.1


@dataclass
class Tap:
    """Listens on a port of its own, hands everything on and keeps it; a context manager.

    Attributes:
        behind: Port of the broker; None where nothing may answer.
        port: Where to listen; 0 takes any free one.
        sent: What clients sent, one entry a connection.
    """

    behind: int | None
    port: int = 0
    sent: list[bytearray] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._server = socket.create_server(("127.0.0.1", self.port))
        self.port = self._server.getsockname()[1]
        self._server.settimeout(_LOOK_S)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._server.close()

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def everything(self) -> bytes:
        """All that was sent so far."""
        return b"".join(bytes(each) for each in list(self.sent))

    def _accept(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = self._server.accept()
                kept = bytearray()
                self.sent.append(kept)
                thread = threading.Thread(target=self._serve, args=(client, kept))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket, kept: bytearray) -> None:
        with client, contextlib.ExitStack() as stack:
            broker = None
            if self.behind is not None:
                broker = stack.enter_context(socket.create_connection(("127.0.0.1", self.behind)))
                back = threading.Thread(target=self._hand_on, args=(broker, client, None))
                back.start()
                stack.callback(back.join)
            self._hand_on(client, broker, kept)

    def _hand_on(self, source: socket.socket, target: socket.socket | None, kept: bytearray | None) -> None:
        source.settimeout(_LOOK_S)
        with contextlib.suppress(OSError):
            while not self._ended.is_set():
                try:
                    data = source.recv(65_536)
                except TimeoutError:
                    continue
                if not data:
                    break
                if kept is not None:
                    kept += data
                if target is not None:
                    target.sendall(data)
        if target is not None:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)
