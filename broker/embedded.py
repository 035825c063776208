"""The bus in this process: amqtt, made strict, for a home that runs no broker of its own."""

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from amqtt.plugins.manager import plugins_manager
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from broker.amqtt_broker import StrictBroker
from broker.amqtt_limits import Limits
from broker.amqtt_peers import TcpPeer, WebSocketPeer
from broker.amqtt_plugins import Gate
from broker.amqtt_retained import RetainedStore
from broker.amqtt_revocations import Revocations
from broker.keys import PublicKey
from broker.ports import listen
from contracts.errors import ConfigError

__all__ = ["EmbeddedBroker", "EmbeddedSettings", "Limits", "open_embedded"]

_log = logging.getLogger(__name__)

_AMQTT_TABLE: Final = "amqtt.broker.plugins"
"""Name under which amqtt keeps the plugins of the last broker, and so the broker, for ever."""

_WEBSOCKET_LOGGER: Final = "broker.embedded.websocket"


@dataclass(frozen=True)
class EmbeddedSettings:
    """How the embedded broker is to run.

    Attributes:
        data_dir: Where ``retained.db`` and ``revoked.json`` are kept, owner-only.
        hub_id: Issuer of the tokens that are taken.
        hub_key: The key that signs them.
        host: Address to listen on.
        port: 0 takes any free one.
        ws_port: Port for MQTT over WebSocket; None for none.
        ws_origins: Origins of web pages of other sites that may use the WebSocket.
        ws_hosts: Names under which this machine is reached, beside its addresses.
        certificate: Certificate chain (PEM), for TLS on both ports.
        private_key: Its key (PEM).
        insecure_lan: Whether to listen beyond this machine without TLS.
    """

    data_dir: Path
    hub_id: str
    hub_key: PublicKey
    host: str = "127.0.0.1"
    port: int = 1883
    ws_port: int | None = None
    ws_origins: tuple[str, ...] = ()
    ws_hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    private_key: Path | None = None
    insecure_lan: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class EmbeddedBroker:
    """A broker that is running.

    Attributes:
        host: Address it listens on.
        port: Port for MQTT.
        ws_port: Port for MQTT over WebSocket, if it has one.
        tls: Whether clients must use TLS.
    """

    host: str
    port: int
    ws_port: int | None
    tls: bool
    _broker: StrictBroker = field(repr=False)

    @property
    def clients(self) -> int:
        """How many clients are logged in."""
        return len(self._broker.sessions)

    @property
    def url(self) -> str:
        """Where clients on this machine connect to."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"


@asynccontextmanager
async def open_embedded(settings: EmbeddedSettings) -> AsyncIterator[EmbeddedBroker]:
    """Run the broker for as long as the context is open; clients can connect once it is entered.

    Raises:
        ConfigError: If it may not or cannot listen there, or its files cannot be used.
    """
    tls = _tls(settings)
    if tls is None and not settings.insecure_lan and not _is_loopback(settings.host):
        raise ConfigError(
            f"listening on {settings.host} without TLS would show every token to the network",
            hint="Give a certificate (strawberry certs), or say so with --insecure-lan.",
        )
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        stack.enter_context(_quiet_libraries())
        mqtt = stack.enter_context(listen(settings.host, settings.port, purpose="MQTT"))
        ws: socket.socket | None = None
        if settings.ws_port is not None:
            ws = stack.enter_context(listen(settings.host, settings.ws_port, purpose="MQTT over WebSocket"))
        revocations = Revocations.load(settings.data_dir / "revoked.json")
        store = RetainedStore(settings.data_dir / "retained.db")
        await asyncio.to_thread(store.load)
        stack.callback(store.close)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        gate = Gate(settings.hub_id, settings.hub_key, revocations)
        strict = StrictBroker(gate=gate, limits=settings.limits, retained=store, tasks=tasks)
        try:
            async with (
                _run(strict, store, tasks),
                _serve_tcp(strict, mqtt, tls, tasks),
                _serve_ws(strict, ws, tls, settings),
            ):
                running = EmbeddedBroker(
                    host=settings.host,
                    port=mqtt.getsockname()[1],
                    ws_port=ws.getsockname()[1] if ws else None,
                    tls=tls is not None,
                    _broker=strict,
                )
                _log.info("broker started at %s", running.url)
                try:
                    yield running
                finally:
                    # The listeners wait for their connections to end.
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
    """Keep the libraries from logging below WARNING: amqtt and websockets log tokens when left alone."""
    loggers = [logging.getLogger(name) for name in ("amqtt", _AMQTT_TABLE, "transitions", _WEBSOCKET_LOGGER)]
    before = [(each, each.level) for each in loggers]
    for each in loggers:
        each.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for each, level in before:
            each.setLevel(level)


@asynccontextmanager
async def _serve_tcp(
    broker: StrictBroker, sock: socket.socket, tls: ssl.SSLContext | None, tasks: asyncio.TaskGroup
) -> AsyncIterator[None]:
    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = TcpPeer(reader, writer)
        tasks.create_task(broker.serve(peer), name=f"serve {peer.address}")

    server = await asyncio.start_server(accepted, sock=sock, ssl=tls)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def _serve_ws(
    broker: StrictBroker, sock: socket.socket | None, tls: ssl.SSLContext | None, settings: EmbeddedSettings
) -> AsyncIterator[None]:
    if sock is None:
        yield
        return

    async def accepted(connection: ServerConnection) -> None:
        await broker.serve(WebSocketPeer(connection))

    async with serve(
        accepted,
        sock=sock,
        ssl=tls,
        subprotocols=[Subprotocol("mqtt")],
        process_request=_check_request(settings),
        compression=None,
        max_size=settings.limits.packet_bytes + 5,
        open_timeout=settings.limits.connect_timeout_s,
        logger=logging.getLogger(_WEBSOCKET_LOGGER),
    ):
        yield


def _check_request(
    settings: EmbeddedSettings,
) -> Callable[[ServerConnection, Request], Response | None]:
    """Let in programs and the pages of this very address, and no page of another site."""

    def check(connection: ServerConnection, request: Request) -> Response | None:
        host = request.headers.get("Host", "")
        origin = request.headers.get("Origin")
        name = urlsplit(f"//{host}").hostname or ""
        # A foreign site can only pretend to be us under a name (DNS rebinding), never under an address.
        if not (_is_address(name) or name in ("localhost", settings.host, *settings.ws_hosts)):
            return connection.respond(HTTPStatus.MISDIRECTED_REQUEST, "This name is not ours.\n")
        if origin is not None and urlsplit(origin).netloc != host and origin not in settings.ws_origins:
            return connection.respond(HTTPStatus.FORBIDDEN, "Pages of this site may not connect.\n")
        return None

    return check


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback if _is_address(host) else host == "localhost"


def _tls(settings: EmbeddedSettings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.private_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate {settings.certificate} cannot be used: {error}",
            hint="Make a new one with strawberry certs.",
        ) from None
    return context
