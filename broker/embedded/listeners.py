"""Where the embedded broker listens, and with what protocol."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from broker.embedded.peer import CHUNK, Peer, StreamPeer
from broker.embedded.websocket import WebSocketPeer
from bus.ports import accept, listen
from contracts.addresses import BROKER_PORTS, is_loopback
from contracts.errors import ConfigError
from identity.certificates import own_names

_SCHEMES: Final = {"tcp": ("mqtt", "mqtts"), "websocket": ("ws", "wss")}
_PURPOSES: Final = {"tcp": "MQTT", "websocket": "MQTT over WebSocket"}


@dataclass(frozen=True)
class Listener:
    """One address to listen on.

    Attributes:
        host: An address; ``::`` is every one of the machine, ``0.0.0.0`` every one of IPv4.
        port: 0 takes any free one.
        transport: ``websocket`` is MQTT over WebSocket, with the subprotocol ``mqtt`` and any path.
        tls: The server's side of TLS; None speaks without. A certificate that is loaded into it later
            counts from then on.
        insecure: Whether other machines may come without TLS; everybody on the network can then read tokens.
        names: Names of this machine that it does not know itself, for WebSockets: a web page may connect
            only to names that are ours.
    """

    host: str = "127.0.0.1"
    port: int = BROKER_PORTS["mqtt"]
    transport: Literal["tcp", "websocket"] = "tcp"
    tls: ssl.SSLContext | None = None
    insecure: bool = False
    names: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse to be open to others by accident.

        Raises:
            ConfigError: If other machines could come, TLS is missing, and nobody said that this is meant.
        """
        if self.tls is None and not self.insecure and not is_loopback(self.host):
            raise ConfigError(
                f"listening on {self.host} without TLS would show every token to the network",
                hint="Use --lan, which makes certificates, or allow it with --insecure-lan.",
            )

    def url(self, port: int) -> str:
        """Give the address for clients on this machine, for the port that it has got."""
        host = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104 - compared
        scheme = _SCHEMES[self.transport][self.tls is not None]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def bind(self) -> socket.socket:
        """Take the port.

        Raises:
            ConfigError: If it cannot be had.
        """
        return listen(self.host, self.port, purpose=_PURPOSES[self.transport])


class Server(Protocol):
    """What serves the clients that come."""

    async def serve(self, peer: Peer) -> None:
        """Serve one of them from its first byte to its last."""


@asynccontextmanager
async def serving(
    listener: Listener, sock: socket.socket, server: Server, *, packet_bytes: int, tasks: asyncio.TaskGroup
) -> AsyncIterator[None]:
    """Accept clients as long as the context is open; those who came are served on.

    Args:
        packet_bytes: Length of the longest MQTT packet.
    """
    names = {"localhost", listener.host, *own_names()[0], *(name.lower() for name in listener.names)}

    def make_peer(client: socket.socket, address: tuple[str, int]) -> Peer:
        stream = StreamPeer(client, address, tls=listener.tls)
        if listener.transport == "tcp":
            return stream
        # Several packets may come in one message.
        return WebSocketPeer(stream, hosts=names, most=packet_bytes + CHUNK)

    accepting = tasks.create_task(_accept(sock, make_peer, server, tasks), name=f"accept at {listener.host}")
    try:
        yield
    finally:
        accepting.cancel()
        with suppress(asyncio.CancelledError):
            await accepting


async def _accept(
    sock: socket.socket,
    make_peer: Callable[[socket.socket, tuple[str, int]], Peer],
    server: Server,
    tasks: asyncio.TaskGroup,
) -> None:
    while True:
        client, address = await accept(sock)
        peer = make_peer(client, address)
        tasks.create_task(server.serve(peer), name=f"serve {peer.address}")
