"""The embedded broker: its listeners, its files, and its life in this event loop."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from amqtt.plugins.manager import plugins_manager

from broker.embedded.authentication import Revocations
from broker.embedded.limits import BrokerLimits
from broker.embedded.peer import CHUNK, Peer, StreamPeer
from broker.embedded.retained import RetainedStore
from broker.embedded.strict_broker import StrictBroker
from broker.embedded.websocket import WebSocketPeer
from broker.logins import LoginCheck
from bus.ports import accept, listen
from contracts.addresses import BROKER_PORTS, bracketed, is_loopback, reachable
from contracts.errors import ConfigError
from identity.certificates import own_names
from identity.keys import PublicKey

__all__ = ["BrokerLimits", "EmbeddedBroker", "EmbeddedSettings", "Listener", "open_embedded"]

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
    """

    host: str = "127.0.0.1"
    port: int = BROKER_PORTS["mqtt"]
    transport: Literal["tcp", "websocket"] = "tcp"
    tls: ssl.SSLContext | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse to be open to others by accident.

        Raises:
            ConfigError: If other machines could connect without TLS, and that was not allowed explicitly.
        """
        if self.tls is None and not self.insecure and not is_loopback(self.host):
            raise ConfigError(
                f"listening on {self.host} without TLS would show every token to the network",
                hint="Use --lan, which makes certificates, or allow it with --insecure-lan.",
            )

    def url(self, port: int) -> str:
        """Return the address for clients on this machine, for the port that it has got."""
        scheme = _SCHEMES[self.transport][self.tls is not None]
        return f"{scheme}://{bracketed(reachable(self.host))}:{port}"

    def bind(self) -> socket.socket:
        """Bind the port, without listening yet.

        Raises:
            ConfigError: If it cannot be had.
        """
        return listen(self.host, self.port, purpose=_PURPOSES[self.transport], later=True)


@asynccontextmanager
async def serving(
    listener: Listener,
    sock: socket.socket,
    server: StrictBroker,
    *,
    packet_bytes: int,
    tasks: asyncio.TaskGroup,
) -> AsyncIterator[None]:
    """Accept clients as long as the context is open; those who came are served on.

    Args:
        packet_bytes: Length of the longest MQTT packet.
    """
    # A web page may connect only to names that are ours.
    names = {"localhost", listener.host, *(own_names()[0] if listener.transport != "tcp" else ())}

    def make_peer(client: socket.socket, address: tuple[str, int]) -> Peer:
        stream = StreamPeer(client, address, tls=listener.tls)
        if listener.transport == "tcp":
            return stream
        # Several packets may come in one message.
        return WebSocketPeer(stream, hosts=names, most=packet_bytes + CHUNK)

    sock.listen(socket.SOMAXCONN)
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
    server: StrictBroker,
    tasks: asyncio.TaskGroup,
) -> None:
    while True:
        client, address = await accept(sock)
        peer = make_peer(client, address)
        tasks.create_task(server.serve(peer), name=f"serve {peer.address}")
        # A crowd that comes at once must not keep those waiting who are there.
        await asyncio.sleep(0)


_log = logging.getLogger(__name__)

_AMQTT_TABLE: Final = "amqtt.broker.plugins"
"""Name under which amqtt keeps the plugins of the last broker, and so the broker, for ever."""


@dataclass(frozen=True)
class EmbeddedSettings:
    """How the embedded broker is to run.

    Attributes:
        data_dir: Where ``retained.db`` and ``revoked.json`` are kept, owner-only.
        hub_id: Issuer of the tokens that are taken.
        hub_key: The key that signs them.
        listeners: Where it listens; the first is the one that the hub itself uses.
    """

    data_dir: Path
    hub_id: str
    hub_key: PublicKey
    listeners: tuple[Listener, ...] = (Listener(),)
    limits: BrokerLimits = field(default_factory=BrokerLimits)


@dataclass(frozen=True)
class EmbeddedBroker:
    """A broker that is running.

    Attributes:
        ports: Where it listens, in the order of its listeners.
        urls: Where clients on this machine connect to, in the same order.
    """

    ports: tuple[int, ...]
    urls: tuple[str, ...]
    _broker: StrictBroker = field(repr=False)

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def clients(self) -> int:
        return len(self._broker.sessions)


@asynccontextmanager
async def open_embedded(
    settings: EmbeddedSettings, *, on_bound: Callable[[tuple[int, ...]], None] = lambda _: None
) -> AsyncIterator[EmbeddedBroker]:
    """Run the broker for as long as the context is open; clients can connect once it is entered.

    Args:
        on_bound: Called with the ports once they are taken, before any client can connect.

    Raises:
        ConfigError: If it may not or cannot listen there, or its files cannot be used.
    """
    for listener in settings.listeners:
        listener.check()
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        stack.enter_context(_quiet_libraries())
        sockets = [stack.enter_context(listener.bind()) for listener in settings.listeners]
        revocations = Revocations.load(settings.data_dir / "revoked.json")
        store = RetainedStore(settings.data_dir / "retained.db")
        await asyncio.to_thread(store.load)
        stack.callback(store.close)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        check = LoginCheck(settings.hub_id, settings.hub_key, revocations.covers)
        strict = StrictBroker(check, revocations, limits=settings.limits, retained=store, tasks=tasks)
        try:
            async with AsyncExitStack() as services:
                await services.enter_async_context(_run(strict, store, tasks))
                ports = tuple(sock.getsockname()[1] for sock in sockets)
                on_bound(ports)
                for listener, sock in zip(settings.listeners, sockets, strict=True):
                    most = settings.limits.packet_bytes
                    await services.enter_async_context(
                        serving(listener, sock, strict, packet_bytes=most, tasks=tasks)
                    )
                urls = tuple(each.url(port) for each, port in zip(settings.listeners, ports, strict=True))
                running = EmbeddedBroker(ports, urls, strict)
                _log.info("broker started at %s", ", ".join(urls))
                try:
                    yield running
                finally:
                    await strict.dismiss()
        except Exception as error:  # noqa: BLE001 - raised below as it is, not wrapped by the task group
            failure = error
        _log.info("broker stopped")
    if failure is not None:
        raise failure


@asynccontextmanager
async def _run(broker: StrictBroker, store: RetainedStore, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
    await broker.start()
    storing = tasks.create_task(store.run(), name="store retained messages")
    watching = tasks.create_task(broker.watch(), name="watch keepalive and expiry")
    try:
        yield
    finally:
        watching.cancel()
        await broker.shutdown()
        # Not cancelled: the wills of everybody have only just come.
        store.finish()
        await storing
        plugins_manager.pop(_AMQTT_TABLE, None)


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keep the libraries from logging below WARNING: amqtt logs tokens when left alone."""
    loggers = [logging.getLogger(name) for name in ("amqtt", _AMQTT_TABLE, "transitions")]
    before = [(each, each.level) for each in loggers]
    for each in loggers:
        each.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for each, level in before:
            each.setLevel(level)
