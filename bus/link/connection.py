"""One MQTT connection, from CONNECT until it ends.

A new one is made for every attempt, so nothing that paho keeps for a reconnect is ever sent by surprise.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from typing import Any, Literal, NamedTuple

from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, MQTT_ERR_SUCCESS, Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from bus.link.client import LeanClient
from bus.link.drivers import Driver
from bus.link.message import Message, packed_properties
from bus.link.tls_failure import connect_failure
from contracts.errors import Disconnected, Forbidden

Protocol = Literal[4, 5]

_log = logging.getLogger(__name__)

_UNSUPPORTED_VERSION = frozenset({1, 132})
_LOGIN_REFUSED = frozenset({2, 4, 5, 133, 134, 135, 138, 140})
"""Reason codes of MQTT 3.1.1 and 5 (client id, user name, password, right, ban, method)."""
_WITHOUT_A_REASON = 128
"""What paho says of any connection that ended without a DISCONNECT of the broker."""


class SubscriptionRefused(Forbidden):
    """The broker refuses filters.

    Args:
        filters: With the reason of each.
    """

    def __init__(self, filters: Mapping[str, str]) -> None:
        listed = ", ".join(f"{name!r} ({reason})" for name, reason in filters.items())
        super().__init__(
            f"the broker refuses the subscription to {listed}",
            hint="Check the rights of this login on the broker.",
        )
        self.filters = filters


class Verdict(Enum):
    """How the broker answered a CONNECT."""

    ACCEPTED = auto()
    LOGIN_REFUSED = auto()
    VERSION_REFUSED = auto()
    CLOSED = auto()
    """It hung up without a word, as some do at a version they do not know."""
    UNREACHABLE = auto()


class ConnectResult(NamedTuple):
    """A verdict, with the broker's reason for people, and what to do where that is known."""

    verdict: Verdict
    reason: str
    hint: str = ""


class ConnectRequest(NamedTuple):
    """Everything a CONNECT carries, and where it goes; without TLS where there is no context.

    Attributes:
        timeout_s: For the answer to CONNECT.
        acknowledge_s: For SUBACK, UNSUBACK, or a PUBACK that is waited for; after it the connection
            counts as broken. A broker that was frozen for so long goes on with it, but perhaps without
            the subscription.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    client_id: str
    username: str | None
    password: str | None
    keepalive: int
    will: Message | None
    timeout_s: float
    acknowledge_s: float = 10.0


@dataclass(eq=False)
class Connection:
    """A paho client for one connection.

    Attributes:
        limit: How many publications may wait for their acknowledgement.
        on_message: Called in the event loop for each message that arrives.

    Attributes:
        identifies: Whether the broker takes identifiers for subscriptions.
    """

    login: ConnectRequest
    driver: Driver
    _: KW_ONLY
    protocol: Protocol
    limit: int
    on_message: Callable[[Message], None]

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[str] = loop.create_future()
        self.identifies = False
        self._loop = loop
        self._answer: asyncio.Future[ConnectResult] = loop.create_future()
        self._acknowledged: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self._confirmed: dict[int, asyncio.Future[None]] = {}
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._client = self._make_client()

    async def open(self) -> ConnectResult:
        """Connect and log in; whatever the answer, `close` must follow."""
        try:
            # Name look-up and the TCP handshake block, so they do it elsewhere.
            await asyncio.to_thread(self._client.reconnect)
        except OSError as error:
            reason, hint = connect_failure(error, self.login.host, tls=self.login.tls is not None)
            return ConnectResult(Verdict.UNREACHABLE, reason, hint)
        self.driver.started()
        try:
            async with asyncio.timeout(self.login.timeout_s):
                return await self._answer
        except TimeoutError:
            return ConnectResult(Verdict.UNREACHABLE, "the broker did not answer the login")

    async def drive(self) -> str:
        """Keep the connection alive until it ends; give the reason."""
        await self.driver.drive(self.closed)
        return self.closed.result()

    def leave(self) -> None:
        # `drive` then returns.
        if not self.closed.done():
            self._client.disconnect()

    async def close(self, *, politely: bool) -> None:
        """End it. Politely means that the broker drops the Last Will."""
        if politely and not self.closed.done():
            self._client.disconnect()
        self._end("closed")
        await self.driver.stop()
        # Whatever is left of the socket; nothing is sent any more.
        self._client.give_up()

    def has_room(self) -> bool:
        return self._in_flight < self.limit

    async def room(self) -> None:
        """Wait until another publication may go out."""
        while not self.has_room() and not self.closed.done():
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise

    def publish(self, message: Message) -> int:
        """Hand a message to the socket; give its packet id.

        Raises:
            Disconnected: If the connection has ended.
        """
        if self.closed.done():
            raise Disconnected(f"the broker closed the connection: {self.closed.result()}")
        topic, payload, qos, retain = message[:4]
        if qos:
            packed = packed_properties(message) if self.protocol == 5 else b""
            mid = self._client.publish_acknowledged(topic, payload, retain=retain, properties=packed)
        else:
            info = self._client.publish(topic, payload, 0, retain)
            mid = info.mid if info.rc == MQTT_ERR_SUCCESS else None
        if mid is None:
            raise Disconnected("nothing was sent: the connection to the broker is gone")
        self._in_flight += 1
        return mid

    async def confirm(self, mid: int) -> None:
        """Wait until the broker has taken a QoS 1 publication."""
        if self.closed.done():
            raise Disconnected("the connection to the broker was lost before it acknowledged")
        done: asyncio.Future[None] = self._loop.create_future()
        self._confirmed[mid] = done
        try:
            async with asyncio.timeout(self.login.acknowledge_s):
                await done
        except TimeoutError:
            raise self._broken("the broker did not acknowledge a message in time") from None
        finally:
            self._confirmed.pop(mid, None)

    async def subscribe(self, filters: list[tuple[str, int]], *, identifier: int | None = None) -> None:
        """Subscribe, and wait for the broker's word.

        Args:
            identifier: What the messages of these filters carry; only where ``identifies``.

        Raises:
            SubscriptionRefused: If it refuses some of them.
            Disconnected: If the connection ends, or no answer comes.
        """
        properties = None
        if identifier is not None:
            properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            properties.SubscriptionIdentifier = identifier
        code, mid = self._client.subscribe(filters, properties=properties)
        answers = zip(filters, await self._acknowledgement(code, mid), strict=False)
        refused = {name: reason.getName() for (name, _), reason in answers if reason.is_failure}
        if refused:
            raise SubscriptionRefused(refused)

    async def unsubscribe(self, filter_: str) -> None:
        """Unsubscribe, and wait for the broker's word."""
        code, mid = self._client.unsubscribe(filter_)
        await self._acknowledgement(code, mid)

    async def _acknowledgement(self, code: int, mid: int | None) -> list[ReasonCode]:
        if code != MQTT_ERR_SUCCESS or mid is None:
            raise Disconnected("the connection to the broker is gone")
        waiting: asyncio.Future[list[ReasonCode]] = self._loop.create_future()
        self._acknowledged[mid] = waiting
        try:
            async with asyncio.timeout(self.login.acknowledge_s):
                return await waiting
        except TimeoutError:
            raise self._broken("the broker did not answer a subscription in time") from None
        finally:
            self._acknowledged.pop(mid, None)

    def _broken(self, reason: str) -> Disconnected:
        """End a connection of which it is not known what the broker received."""
        # With a word, or paho's thread waits on for the acknowledgement.
        self.leave()
        self._end(reason)
        return Disconnected(reason)

    def _make_client(self) -> LeanClient:
        login = self.login
        client = LeanClient(
            self._arrived,
            CallbackAPIVersion.VERSION2,
            client_id=login.client_id,
            clean_session=True if self.protocol == 4 else None,
            protocol=MQTTProtocolVersion(self.protocol),
            reconnect_on_failure=False,
        )
        client.username_pw_set(login.username, login.password)
        # We bound what is in flight ourselves, by waiting; paho would queue without a bound.
        client.max_inflight_messages_set(0)
        client.connect_timeout = login.timeout_s
        if login.tls is not None:
            client.tls_set_context(login.tls)
        if login.will is not None:
            client.will_set(login.will.topic, login.will.payload, login.will.qos, login.will.retain)
        # Only MQTT 5 takes the flag here; in 3.1.1 `clean_session` above is the same.
        clean_start = True if self.protocol == 5 else MQTT_CLEAN_START_FIRST_ONLY
        client.connect_async(login.host, login.port, login.keepalive, clean_start=clean_start)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._published
        client.on_subscribe = self._subscribed
        client.on_unsubscribe = self._subscribed
        self.driver.attach(client)
        return client

    # What follows is called by paho, in the loop or in its thread.

    def _connected(
        self, _client: Client, _data: Any, _flags: Any, reason: ReasonCode, given: Properties | None
    ) -> None:
        self.driver.post(
            self._judge,
            reason,
            getattr(given, "ReceiveMaximum", None),
            # A broker that says nothing has them (MQTT 5.0, section 3.2.2.3.12).
            bool(getattr(given, "SubscriptionIdentifierAvailable", True)),
        )

    def _disconnected(
        self, _client: Client, _data: Any, _flags: Any, reason: ReasonCode, _given: Any
    ) -> None:
        silent = reason.value == _WITHOUT_A_REASON
        self.driver.post(self._end, "the broker gave no reason" if silent else reason.getName())

    def _arrived(self, message: Message) -> None:
        self.driver.post(self.on_message, message)

    def _published(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _given: Any) -> None:
        self.driver.post(self._sent, mid, reason)

    def _subscribed(
        self, _client: Client, _data: Any, mid: int, reasons: list[ReasonCode], _given: Any
    ) -> None:
        self.driver.post(self._acknowledge, mid, reasons)

    # What follows runs in the loop.

    def _judge(self, reason: ReasonCode, receive_maximum: int | None, identifies: bool) -> None:
        if self._answer.done():
            return
        self.identifies = self.protocol == 5 and identifies
        verdict = Verdict.ACCEPTED
        if reason.is_failure:
            verdict = Verdict.UNREACHABLE
            if reason.value in _UNSUPPORTED_VERSION:
                verdict = Verdict.VERSION_REFUSED
            elif reason.value in _LOGIN_REFUSED:
                verdict = Verdict.LOGIN_REFUSED
        if receive_maximum:
            self.limit = min(self.limit, receive_maximum)
            self._client.receive_maximum = receive_maximum
        self._answer.set_result(ConnectResult(verdict, reason.getName()))

    def _end(self, reason: str) -> None:
        if not self._answer.done():
            self._answer.set_result(ConnectResult(Verdict.CLOSED, "the broker hung up"))
        if not self.closed.done():
            self.closed.set_result(reason)
        gone = Disconnected("the connection to the broker was lost before it acknowledged")
        pending: list[asyncio.Future[Any]] = [*self._acknowledged.values(), *self._confirmed.values()]
        for future in pending:
            if not future.done():
                future.set_exception(gone)
        while self._waiting:
            self._wake()

    def _sent(self, mid: int, reason: ReasonCode) -> None:
        self._in_flight -= 1
        if reason.is_failure:
            _log.warning("the broker did not take a message: %s", reason.getName())
        confirmed = self._confirmed.get(mid) if self._confirmed else None
        if confirmed is not None and not confirmed.done():
            if reason.is_failure:
                confirmed.set_exception(Forbidden(f"the broker did not take a message: {reason.getName()}"))
            else:
                confirmed.set_result(None)
        if self._waiting:
            self._wake()

    def _acknowledge(self, mid: int, reasons: list[ReasonCode]) -> None:
        waiting = self._acknowledged.get(mid)
        if waiting is not None and not waiting.done():
            waiting.set_result(reasons)

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
