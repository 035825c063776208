"""Homes with an embedded broker, and clients of all kinds."""

import asyncio
import contextlib
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from broker.embedded.opening import BrokerLimits, EmbeddedBroker, EmbeddedSettings, Listener, open_embedded
from bus.link.client import stop_loop
from bus.link.drivers import without_delay
from contracts.claims import PrincipalKind, Scope
from identity import tokens
from identity.keys import KeyPair

HUB = "home-1"
QUICK_S = 60.0
"""Longer than anything here takes on a busy machine."""


@dataclass(frozen=True)
class Message:
    topic: str
    payload: bytes
    retain: bool
    qos: int


class Client:
    """A program of somebody else's: paho in its own thread, with its events handed to the test."""

    def __init__(self, name: str, token: str | None, *, client_id: str | None = None, **options: Any) -> None:
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.left = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[int] = self._loop.create_future()
        self._answers: dict[int, asyncio.Future[list[int]]] = {}
        self._lock = threading.Lock()
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name if client_id is None else client_id,
            reconnect_on_failure=False,
            **options,
        )
        # paho hides the socket under a WebSocket.
        self.paho.on_socket_open = lambda c, u, sock: without_delay(c, u, getattr(sock, "_socket", sock))
        if token is not None:
            self.paho.username_pw_set(name, token)
        self.paho.on_connect = lambda _c, _u, _f, reason, _p: self._tell(self._set, reason.value)
        self.paho.on_disconnect = lambda *_: self._tell(self.left.set)
        self.paho.on_message = lambda _c, _u, m: self._tell(
            self.inbox.put_nowait, Message(m.topic, bytes(m.payload), m.retain, m.qos)
        )
        self.paho.on_subscribe = lambda _c, _u, mid, codes, _p: self._tell(
            self._answer, mid, [code.value for code in codes]
        )
        self.paho.on_publish = lambda _c, _u, mid, *_: self._tell(self._answer, mid, [])

    async def connect(self, port: int, *, keepalive: int = 60) -> int:
        """Connect and give the CONNACK's code."""
        await asyncio.to_thread(self.paho.connect, "127.0.0.1", port, keepalive)
        self.paho.loop_start()
        return await asyncio.wait_for(self._connected, QUICK_S)

    async def subscribe(self, filter_: str, qos: int = 1) -> int:
        """Subscribe and give the SUBACK's code."""
        _, mid = self.paho.subscribe(filter_, qos)
        assert mid is not None
        return (await self._wait(mid))[0]

    async def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Publish; with QoS 1, wait until the broker has it."""
        info = self.paho.publish(topic, payload, qos, retain)
        assert info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS
        await self._wait(info.mid)

    async def next(self) -> Message:
        """Wait for the next message."""
        return await asyncio.wait_for(self.inbox.get(), QUICK_S)

    async def until(self, topic: str, payload: bytes | None = None) -> list[Message]:
        """Collect messages up to one on this topic, with this payload if one is given."""
        messages = [await self.next()]
        while messages[-1].topic != topic or (payload is not None and messages[-1].payload != payload):
            messages.append(await self.next())
        return messages

    async def gone(self) -> None:
        """Wait until the broker has disconnected it."""
        await asyncio.wait_for(self.left.wait(), QUICK_S)

    async def stop(self) -> None:
        self.paho.disconnect()
        await asyncio.to_thread(stop_loop, self.paho)

    async def _wait(self, mid: int) -> list[int]:
        return await asyncio.wait_for(self._answers.setdefault(mid, self._loop.create_future()), QUICK_S)

    def _answer(self, mid: int, codes: list[int]) -> None:
        future = self._answers.setdefault(mid, self._loop.create_future())
        if not future.done():
            future.set_result(codes)

    def _set(self, code: int) -> None:
        if not self._connected.done():
            self._connected.set_result(code)

    def _tell(self, function: Any, *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed at the end of a test
            self._loop.call_soon_threadsafe(function, *arguments)


@dataclass
class Socket:
    """A client that speaks bytes, right or wrong."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self, length: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(length), QUICK_S)

    async def ended(self, within_s: float = QUICK_S) -> bool:
        """Whether the broker closes the connection; what it sends before is dropped."""
        try:
            async with asyncio.timeout(within_s):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(data)) + data


def packet(kind: int, body: bytes, flags: int = 0) -> bytes:
    length, header = len(body), bytearray((kind << 4 | flags,))
    while length >= 0x80:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(header) + bytes((length,)) + body


def connect_packet(
    name: str,
    token: str | None,
    *,
    client_id: str | None = None,
    keepalive: int = 60,
    will: tuple[str, bytes] | None = None,
    level: int = 4,
) -> bytes:
    flags = 0x02 | (0xC0 if token is not None else 0) | (0x04 if will else 0)
    body = text("MQTT") + bytes((level, flags)) + struct.pack("!H", keepalive)
    if level == 5:
        body += b"\0"
    body += text(name if client_id is None else client_id)
    if will:
        body += text(will[0]) + text(will[1])
    if token is not None:
        body += text(name) + text(token)
    return packet(1, body)


def publish_packet(topic: str, payload: bytes, *, packet_id: int | None = None) -> bytes:
    if packet_id is None:
        return packet(3, text(topic) + payload)
    return packet(3, text(topic) + struct.pack("!H", packet_id) + payload, flags=2)


def subscribe_packet(filter_: str, packet_id: int = 1) -> bytes:
    return packet(8, struct.pack("!H", packet_id) + text(filter_) + b"\x01", flags=2)


@dataclass
class House:
    """A broker with everything needed to log in to it."""

    port: int
    key: KeyPair
    broker: EmbeddedBroker
    clients: list[Client] = field(default_factory=list)
    sockets: list[Socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Of the first listener."""
        return self.broker.url

    def token(
        self,
        name: str,
        kind: PrincipalKind = "device",
        *,
        scopes: tuple[Scope, ...] = (),
        lifetime_s: int = 600,
    ) -> str:
        claims = tokens.make_claims(
            hub_id=HUB,
            subject=name,
            kind=kind,
            owner="anna",
            scopes=scopes,
            lifetime_s=lifetime_s,
            audience="mqtt",
        )
        return tokens.issue(self.key, claims)

    async def client(
        self, name: str, kind: PrincipalKind = "device", *, scopes: tuple[Scope, ...] = (), **options: Any
    ) -> Client:
        """Log a client in, with a token of its own."""
        client = Client(name, self.token(name, kind, scopes=scopes), **options)
        self.clients.append(client)
        assert await client.connect(self.port) == 0
        return client

    async def open(self) -> Socket:
        """Open a bare socket."""
        bare = await Socket.open(self.port)
        self.sockets.append(bare)
        return bare

    async def socket(self, name: str, kind: PrincipalKind = "device", **connect: Any) -> Socket:
        """Log in with a bare socket."""
        bare = await self.open()
        bare.send(connect_packet(name, self.token(name, kind), **connect))
        assert await bare.receive(4) == b"\x20\x02\x00\x00"
        return bare

    async def open_and_log_in(self, name: str) -> int | None:
        """Try to log in with a bare socket; the CONNACK's code, None where there is none."""
        bare = await self.open()
        bare.send(connect_packet(name, self.token(name)))
        try:
            return (await bare.receive(4))[3]
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def stop(self) -> None:
        for client in self.clients:
            await client.stop()
        for bare in self.sockets:
            await bare.close()


@asynccontextmanager
async def embedded_house(
    data_dir: Path,
    *,
    key: KeyPair | None = None,
    limits: BrokerLimits | None = None,
    listeners: tuple[Listener, ...] = (Listener(port=0),),
) -> AsyncIterator[House]:
    key = key or KeyPair.generate()
    options = EmbeddedSettings(
        data_dir=data_dir,
        hub_id=HUB,
        hub_key=key.public,
        listeners=listeners,
        limits=limits or BrokerLimits(),
    )
    async with open_embedded(options) as broker:
        house = House(broker.port, key, broker)
        try:
            yield house
        finally:
            await house.stop()


async def code_for(house: House, name: str, token: str, client_id: str | None = None) -> int:
    """The CONNACK's code for a login."""
    socket = await house.open()
    socket.send(connect_packet(name, token, client_id=client_id))
    code = (await socket.receive(4))[3]
    await socket.close()
    return code


async def expect_retained(hub: Client, expected: dict[str, bytes]) -> None:
    """Subscribe to all devices and check that exactly these messages are retained."""
    await hub.subscribe("devices/#")
    await hub.publish("hub/end/status", b"")
    got = [await hub.next() for _ in expected]
    assert {message.topic: message.payload for message in got} == expected
    assert all(message.retain for message in got)
    await hub.subscribe("hub/#")
    await hub.publish("hub/end/status", b"end")
    assert (await hub.until("hub/end/status", b"end"))[0].payload == b"end"
