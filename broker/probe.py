"""A login tried as any other program would: once, with nothing of ours between it and the broker."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode
from pydantic import SecretStr

from bus.link.client import stop_loop
from bus.link.drivers import without_delay
from bus.link.message import Message
from bus.link.tls_failure import connect_failure
from contracts.addresses import broker_endpoint
from contracts.errors import Disconnected
from contracts.phrases import Phrase
from identity.certificates import client_context

__all__ = ["Probe", "ProbeLogin", "Received", "open_probe"]


_UNKNOWN_VERSION: Final = frozenset({1, 132})
"""Reason codes of MQTT 3.1.1 and 5. Some brokers hang up instead."""


class Received(NamedTuple):
    """A message that was delivered."""

    topic: str
    payload: bytes
    retained: bool
    qos: int


_SCHEMES: Final = ("mqtt", "mqtts", "ws", "wss")


@dataclass(frozen=True)
class ProbeLogin:
    """Where to log in, and as whom.

    Attributes:
        url: With the scheme ``mqtt``, ``mqtts``, ``ws`` or ``wss``.
        ca: PEM of the authorities that the encrypted ones trust; None trusts those of the system.
        will: The Last Will, with QoS 1.
        protocol: 5, or 4 for MQTT 3.1.1; None tries 5 and, where that is not understood, 4.
        timeout_s: How long the broker may take for each answer.
    """

    url: str
    client_id: str
    username: str | None = None
    password: SecretStr | None = None
    ca: str | None = None
    will: Message | None = None
    protocol: Literal[4, 5] | None = None
    timeout_s: float = 5.0


@asynccontextmanager
async def open_probe(login: ProbeLogin) -> "AsyncIterator[Probe]":
    """Log in once, and log out at the end. That the login was refused is an answer, not an error.

    Raises:
        Disconnected: If the broker cannot be reached, or does not answer.
        ConfigError: If the URL is none of a broker.
    """
    probe = Probe(login if login.protocol else replace(login, protocol=5))
    await probe.connect()
    if login.protocol is None and probe.is_not_understood:
        await probe.close()
        probe = Probe(replace(login, protocol=4))
        await probe.connect()
    try:
        yield probe
    finally:
        await probe.close()


class Probe:
    """One connection with a client in a thread of its own. Made by `open_probe`.

    Attributes:
        inbox: What is delivered.
        gone: Set when the connection has ended.
        refusal: Why the broker refused the login, None where it did not.
        is_not_understood: Whether it was for the version of MQTT.
    """

    def __init__(self, login: ProbeLogin) -> None:
        self.inbox: asyncio.Queue[Received] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.refusal: str | None = None
        self.is_not_understood = False
        self._login = login
        self._loop = asyncio.get_running_loop()
        self._answered = asyncio.Event()
        self._answers: dict[int, asyncio.Future[bool]] = {}
        self._client = self._make_client()

    @property
    def accepted(self) -> bool:
        return self._answered.is_set() and self.refusal is None

    async def connect(self) -> None:
        """Log in.

        Raises:
            Disconnected: If the broker cannot be reached, or does not answer.
            ConfigError: If the URL is none of a broker.
        """
        scheme, host, port = broker_endpoint(self._login.url, schemes=_SCHEMES)
        try:
            if scheme in ("mqtts", "wss"):
                tls = client_context(self._login.ca)
                self._client.tls_set_context(tls)
                # paho leaves its socket open where the broker is not trusted: that is found out before.
                await asyncio.to_thread(_shake_hands, tls, host, port, self._login.timeout_s)
            await asyncio.to_thread(self._client.connect, host, port, 30)
        except OSError as error:
            reason, hint = connect_failure(error, host, tls=scheme in ("mqtts", "wss"))
            raise Disconnected(
                "no connection to {url}: {reason}",
                url=self._login.url,
                reason=Phrase(reason),
                hint=hint or "Check the address, and that the broker runs.",
            ) from None
        self._client.loop_start()
        try:
            async with asyncio.timeout(self._login.timeout_s):
                await self._answered.wait()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise Disconnected("{url} does not answer the login", url=self._login.url) from None
            raise

    async def close(self) -> None:
        """Log out."""
        self._client.disconnect()
        await asyncio.to_thread(stop_loop, self._client)

    async def subscribe(self, filter_: str, *, qos: int = 1) -> bool:
        """Subscribe; whether the broker granted it."""
        code, mid = self._client.subscribe(filter_, qos)
        return code == MQTTErrorCode.MQTT_ERR_SUCCESS and mid is not None and await self._answer(mid)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Publish with QoS 1; whether the broker took it.

        A broker that speaks 3.1.1 cannot say no: it acknowledges and drops, or hangs up.
        """
        info = self._client.publish(topic, payload, 1, retain)
        return info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS and await self._answer(info.mid)

    async def next(self) -> Received:
        """Wait for the next message.

        Raises:
            TimeoutError: If none comes.
        """
        async with asyncio.timeout(self._login.timeout_s):
            return await self.inbox.get()

    async def _answer(self, mid: int) -> bool:
        if self.gone.is_set() and mid not in self._answers:
            return False
        answer = self._answers.setdefault(mid, self._loop.create_future())
        try:
            async with asyncio.timeout(self._login.timeout_s):
                return await answer
        except TimeoutError:
            return False
        finally:
            self._answers.pop(mid, None)

    def _make_client(self) -> Client:
        login = self._login
        web = login.url.startswith(("ws:", "wss:"))
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=login.client_id,
            protocol=MQTTProtocolVersion(login.protocol or 5),
            transport="websockets" if web else "tcp",
            reconnect_on_failure=False,
        )
        if login.username is not None:
            password = login.password.get_secret_value() if login.password else None
            client.username_pw_set(login.username, password)
        if login.will is not None:
            client.will_set(login.will.topic, login.will.payload, 1, login.will.retain)
        if not web:
            client.on_socket_open = without_delay
        client.on_connect = lambda _c, _u, _f, reason, _p: self._tell(self._judge, reason)
        client.on_disconnect = lambda *_: self._tell(self._end)
        client.on_message = lambda _c, _u, message: self._tell(self._arrived, message)
        client.on_subscribe = lambda _c, _u, mid, reasons, _p: self._tell(self._acknowledge, mid, reasons[0])
        client.on_publish = lambda _c, _u, mid, reason, _p: self._tell(self._acknowledge, mid, reason)
        return client

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        # The loop may have been closed by the time that the thread says its last word.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _judge(self, reason: ReasonCode) -> None:
        self.refusal = reason.getName() if reason.is_failure else None
        self.is_not_understood = reason.value in _UNKNOWN_VERSION
        self._answered.set()

    def _end(self) -> None:
        if not self._answered.is_set():
            self.refusal = "it hung up"
            self.is_not_understood = True
            self._answered.set()
        self.gone.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(False)

    def _arrived(self, message: MQTTMessage) -> None:
        self.inbox.put_nowait(Received(message.topic, bytes(message.payload), message.retain, message.qos))

    def _acknowledge(self, mid: int, reason: ReasonCode) -> None:
        # The answer may come before anybody waits for it.
        answer = self._answers.setdefault(mid, self._loop.create_future())
        if not answer.done():
            answer.set_result(not reason.is_failure)


def _shake_hands(tls: ssl.SSLContext, host: str, port: int, timeout_s: float) -> None:
    with socket.create_connection((host, port), timeout_s) as plain:
        tls.wrap_socket(plain, server_hostname=host).close()
