"""The four ways into the embedded broker, for scenes that must go the same on each of them."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from broker.embedded.opening import BrokerLimits, Listener
from identity.certificates import Authority, client_context
from tests.broker.embedded_world import QUICK_S, Client, House, Socket, connect_packet, embedded_house

Way = Literal["tcp", "tls", "ws", "wss"]
WAYS: tuple[Way, ...] = ("tcp", "tls", "ws", "wss")


@dataclass
class Wire:
    """A client that speaks bytes, right or wrong, over any of the four."""

    stream: Socket | None = None
    web: ClientConnection | None = None
    _left: bytes = field(default=b"", repr=False)

    async def send(self, data: bytes) -> None:
        if self.stream is not None:
            self.stream.send(data)
            with suppress(OSError):
                await self.stream.writer.drain()
        if self.web is not None:
            with suppress(ConnectionClosed):
                await self.web.send(data)

    async def receive(self, length: int) -> bytes:
        if self.stream is not None:
            return await self.stream.receive(length)
        assert self.web is not None
        async with asyncio.timeout(QUICK_S):
            while len(self._left) < length:
                message = await self.web.recv()
                assert isinstance(message, bytes)
                self._left += message
        data, self._left = self._left[:length], self._left[length:]
        return data

    async def ended(self, within_s: float = QUICK_S) -> bool:
        """Whether the broker closes the connection; what it sends before is dropped."""
        if self.stream is not None:
            return await self.stream.ended(within_s)
        assert self.web is not None
        try:
            async with asyncio.timeout(within_s):
                while True:
                    await self.web.recv()
        except TimeoutError:
            return False
        except ConnectionClosed:
            return True

    async def close(self) -> None:
        if self.stream is not None:
            await self.stream.close()
        if self.web is not None:
            self.web.transport.abort()
            await self.web.wait_closed()

    def stop_reading(self) -> None:
        """Take nothing more from the broker."""
        transport: Any = self.stream.writer.transport if self.stream else self.web.transport
        transport.pause_reading()


@dataclass
class Place:
    """A house with one way in.

    Attributes:
        trust: What a client of it checks its certificate against; None without TLS.
    """

    house: House
    way: Way
    authority: Authority
    context: ssl.SSLContext | None
    trust: ssl.SSLContext | None
    wires: list[Wire] = field(default_factory=list)

    async def open(self) -> Wire:
        """Open a connection on which MQTT can be spoken."""
        if self.way in ("tcp", "tls"):
            pair = await asyncio.open_connection("127.0.0.1", self.house.port, ssl=self.trust)
            wire = Wire(stream=Socket(*pair))
        else:
            mqtt = [Subprotocol("mqtt")]
            web = await connect(
                self.house.url, ssl=self.trust, subprotocols=mqtt, max_size=None, open_timeout=QUICK_S
            )
            wire = Wire(web=web)
        self.wires.append(wire)
        return wire

    async def log_in(self, name: str, *, keepalive: int = 60, will: tuple[str, bytes] | None = None) -> Wire:
        wire = await self.open()
        await wire.send(connect_packet(name, self.house.token(name), keepalive=keepalive, will=will))
        assert await wire.receive(4) == b"\x20\x02\x00\x00"
        return wire

    async def client(self, name: str, kind: Literal["device", "hub"] = "device", **options: Any) -> Client:
        """A program of somebody else's: paho, over this way."""
        transport = "websockets" if self.way in ("ws", "wss") else "tcp"
        client = Client(name, self.house.token(name, kind), transport=transport, **options)
        if self.trust is not None:
            client.paho.tls_set_context(self.trust)
        self.house.clients.append(client)
        assert await client.connect(self.house.port) == 0
        return client

    async def raw(self) -> Socket:
        """Open nothing but TCP."""
        return await self.house.open()


@asynccontextmanager
async def open_place(
    directory: Path, way: Way, *, limits: BrokerLimits | None = None
) -> AsyncIterator[Place]:
    authority = Authority.load_or_create(directory / "certs")
    secure = way in ("tls", "wss")
    context = None
    if secure:
        context = authority.issue(["localhost"], ["127.0.0.1"], directory=directory / "certs").context()
    transport: Literal["tcp", "websocket"] = "tcp" if way in ("tcp", "tls") else "websocket"
    listener = Listener(port=0, transport=transport, tls=context)
    async with embedded_house(directory / "broker", limits=limits, listeners=(listener,)) as house:
        trust = client_context(authority.pem) if secure else None
        place = Place(house, way, authority, context, trust)
        try:
            yield place
        finally:
            for wire in place.wires:
                await wire.close()
