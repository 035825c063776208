"""The link to a broker: one that stays, over connections that come and go.

Policy for what cannot be handled at once:

- **out, while offline:** nothing is queued; `Disconnected` at once. What must get there is sent again
  by those who know whether it still matters (calls, presence).
- **out, while connected:** at most ``max_in_flight`` publications wait for their acknowledgement;
  beyond that `Link.publish` waits and `Link.publish_nowait` refuses.
- **in:** handlers are plain functions, called in the event loop in the order of arrival. While one
  runs nothing is read, so TCP holds the broker back.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from broker.connection import Answer, Connection, Login, Protocol, Verdict
from broker.drivers import DriverName, make_driver
from broker.message import Message
from contracts.errors import (
    ConfigError,
    Disconnected,
    Forbidden,
    LinkError,
    LoginRefused,
    StrawberryError,
)

__all__ = ["Link", "LinkSettings", "Message", "open_link"]

_logger = logging.getLogger(__name__)

_VERSIONS = {4: "3.1.1", 5: "5"}

Handler = Callable[[Message], None]
Password = SecretStr | Callable[[], SecretStr]


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Where the broker is and how to log in.

    Attributes:
        url: ``mqtt://host:port``; the port is 1883 if none is given.
        password: A callable is asked before each attempt, so that a renewed token counts.
        topic_prefix: In front of every topic on this broker, as ``strawberry/``; may be empty.
        keepalive: Seconds; the broker publishes the Last Will after one and a half of them.
        max_in_flight: Publications that may wait for the broker's acknowledgement.
        backoff_s: Wait before the second attempt; doubles up to ``backoff_max_s``, and half of it
            is left to chance, so that many spokes do not come back in the same moment.
        refused_s: Wait after the login was refused: it seldom heals by itself.
        driver: ``auto``, unless a test wants one.
    """

    url: str
    client_id: str
    username: str | None = None
    password: Password | None = None
    topic_prefix: str = ""
    keepalive: int = 15
    max_in_flight: int = 256
    connect_timeout_s: float = 5.0
    backoff_s: float = 0.25
    backoff_max_s: float = 15.0
    refused_s: float = 30.0
    driver: DriverName = "auto"


@dataclass(slots=True, eq=False)
class _Subscription:
    filter: str
    handler: Handler
    qos: int
    levels: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.levels = self.filter.split("/")

    def matches(self, levels: list[str]) -> bool:
        own = self.levels
        for index, level in enumerate(own):
            if level == "#":
                return index > 0 or not levels[0].startswith("$")
            if index >= len(levels) or (level != levels[index] and level != "+"):
                return False
        return len(own) == len(levels)


def open_link(
    settings: LinkSettings, *, will: Callable[[], Message | None] | None = None, wait_s: float = 5.0
) -> "Link":
    """Make a link, to be entered with ``async with``.

    Args:
        will: Makes the Last Will, anew before each connection.
        wait_s: How long entering waits for the first connection. A link that has none by then is
            entered all the same, and goes on trying.

    Raises:
        ConfigError: If the URL is not one of a broker.
    """
    return Link(settings, will=will, wait_s=wait_s)


class Link:
    """A connection to a broker that comes back by itself. Made by `open_link`.

    Attributes:
        last_error: Why there is no connection, or None.
    """

    def __init__(
        self, settings: LinkSettings, *, will: Callable[[], Message | None] | None, wait_s: float
    ) -> None:
        self.last_error: LinkError | None = None
        self._settings = settings
        self._host, self._port = _address(settings.url)
        self._will = will
        self._wait_s = wait_s
        self._protocol: Protocol | None = None
        self._connection: Connection | None = None
        self._subscriptions: list[_Subscription] = []
        self._connected: list[Callable[[], Awaitable[None]]] = []
        self._disconnected: list[Callable[[], None]] = []
        self._first = asyncio.Event()
        self._hurry = asyncio.Event()
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._tasks = asyncio.TaskGroup()
        self._runner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._runner = self._tasks.create_task(self._run(), name=f"link {self._settings.client_id}")
        try:
            async with asyncio.timeout(self._wait_s):
                await self._first.wait()
        except TimeoutError:
            reason = self.last_error or f"{self._settings.url} does not answer"
            _logger.warning("going on without the broker, which is tried again: %s", reason)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self._runner.cancel()
        # The body's own exception is not handed to the group, which would wrap it in another.
        await self._tasks.__aexit__(None, None, None)

    @property
    def connected(self) -> bool:
        """Whether something that is published now would be sent."""
        return self._connection is not None and not self._connection.closed.done()

    @property
    def protocol(self) -> Protocol | None:
        """The MQTT version that the broker speaks: 5, or 4 for 3.1.1; None before it said so."""
        return self._protocol

    async def wait_connected(self) -> None:
        """Wait for the first connection."""
        await self._first.wait()

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        expiry_s: int | None = None,
        response_topic: str | None = None,
        correlation: bytes | None = None,
        confirmed: bool = False,
    ) -> None:
        """Publish; waits while too many are in flight.

        Args:
            expiry_s: With the two that follow, sent where the broker speaks MQTT 5.
            confirmed: Wait until the broker has taken it. That says nothing about a receiver.

        Raises:
            Disconnected: At once while there is no connection, and when it is lost before a
                confirmation that was asked for.
        """
        connection = self._live()
        if not connection.has_room():
            await connection.room()
        mid = connection.publish(
            self._outgoing(Message(topic, payload, qos, retain, expiry_s, response_topic, correlation))
        )
        if confirmed and qos:
            await connection.confirm(mid)

    def publish_nowait(self, message: Message) -> None:
        """Publish from a plain function.

        Raises:
            Disconnected: While there is no connection, or when too many are in flight.
        """
        connection = self._live()
        if not connection.has_room():
            raise Disconnected("too many messages wait for the broker's acknowledgement")
        connection.publish(self._outgoing(message))

    async def subscribe(
        self, filter_: str, handler: Handler, *, qos: int = 1
    ) -> Callable[[], Awaitable[None]]:
        """Have a plain function called for each message that matches; also after every reconnect.

        While there is no connection the subscription waits for one.

        Returns:
            A function to unsubscribe with.

        Raises:
            Forbidden: If the broker refuses it.
        """
        subscription = _Subscription(filter_, handler, qos)
        known = any(other.filter == filter_ and other.qos >= qos for other in self._subscriptions)
        self._subscriptions.append(subscription)
        connection = self._connection
        if connection is not None and not known:
            try:
                await connection.subscribe([(self._settings.topic_prefix + filter_, qos)])
            except Disconnected:
                _logger.debug("the subscription to %s waits for the next connection", filter_)
            except Forbidden:
                self._subscriptions.remove(subscription)
                raise

        async def unsubscribe() -> None:
            if subscription not in self._subscriptions:
                return
            self._subscriptions.remove(subscription)
            connection = self._connection
            if connection is None or any(other.filter == filter_ for other in self._subscriptions):
                return
            try:
                await connection.unsubscribe(self._settings.topic_prefix + filter_)
            except Disconnected:
                _logger.debug("the connection that held the subscription to %s is gone", filter_)

        return unsubscribe

    def reconnect(self) -> None:
        """Leave the present connection in good order, so that its Last Will is dropped, and make another.

        Where there is none, the next attempt is made at once.
        """
        self._hurry.set()
        if self._connection is not None:
            self._connection.leave()

    def use(self, settings: LinkSettings) -> None:
        """Go by other settings from now on, with a new connection.

        Raises:
            ConfigError: If the URL is not one of a broker.
        """
        self._host, self._port = _address(settings.url)
        self._settings = settings
        self.reconnect()

    def pause(self) -> None:
        """Leave the present connection in good order, and make none until `resume`."""
        self._wanted.clear()
        self.reconnect()

    def resume(self) -> None:
        """Connect again, at once."""
        self._hurry.set()
        self._wanted.set()

    def on_connected(self, callback: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Have a coroutine function run after each connect, once all is subscribed again.

        Returns:
            A function that takes the callback off again.
        """
        self._connected.append(callback)
        return lambda: self._connected.remove(callback)

    def on_disconnected(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have a plain function called each time the connection is lost; gives its undoing."""
        self._disconnected.append(callback)
        return lambda: self._disconnected.remove(callback)

    def _live(self) -> Connection:
        connection = self._connection
        if connection is None:
            reason = self.last_error.message if self.last_error else "not connected yet"
            raise Disconnected(f"no connection to the broker: {reason}", hint="It is tried again by itself.")
        return connection

    def _outgoing(self, message: Message) -> Message:
        prefix = self._settings.topic_prefix
        if not prefix:
            return message
        response = message.response_topic
        return message._replace(
            topic=prefix + message.topic, response_topic=prefix + response if response else None
        )

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wanted.wait()
            self._hurry.clear()
            answer = await self._connect()
            if answer.verdict is Verdict.ACCEPTED:
                failures = 0
            elif answer.verdict is Verdict.LOGIN_REFUSED:
                await self._rest(self._settings.refused_s)
                continue
            delay = min(self._settings.backoff_s * 2**failures, self._settings.backoff_max_s)
            failures = min(failures + 1, 16)
            await self._rest(delay)

    async def _rest(self, seconds: float) -> None:
        """Wait before the next attempt, unless somebody is in a hurry."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_jittered(seconds)):
                await self._hurry.wait()

    async def _connect(self) -> Answer:
        """Connect, with the other MQTT version where one is not understood, and stay while it lasts."""
        answer = Answer(Verdict.CLOSED, "")
        versions: tuple[Protocol, ...] = (5, 4) if self._protocol in (None, 5) else (4, 5)
        for version in versions:
            answer = await self._attempt(version)
            # A refused login is an answer in a version that was understood: it stays refused.
            if answer.verdict not in (Verdict.VERSION_REFUSED, Verdict.CLOSED):
                break
        return answer

    async def _attempt(self, version: Protocol) -> Answer:
        try:
            login = self._login()
        except StrawberryError as error:
            answer = Answer(Verdict.UNREACHABLE, error.message)
            self._failed(answer)
            return answer
        connection = Connection(
            login,
            make_driver(self._settings.driver),
            protocol=version,
            limit=self._settings.max_in_flight,
            on_message=self._arrived,
        )
        try:
            answer = await connection.open()
            if answer.verdict is not Verdict.ACCEPTED:
                self._failed(answer)
                return answer
            self._protocol = version
            await self._stay(connection)
            return answer
        except asyncio.CancelledError:
            self._lost(connection)
            await connection.close(politely=True)
            raise
        finally:
            self._lost(connection)
            await connection.close(politely=False)

    async def _stay(self, connection: Connection) -> None:
        async with asyncio.TaskGroup() as tasks:
            ready = tasks.create_task(self._get_ready(connection), name="link: subscribe again")
            reason = await connection.drive()
            ready.cancel()
        self.last_error = Disconnected(f"the connection to {self._settings.url} was lost: {reason}")
        _logger.warning("%s", self.last_error)

    async def _get_ready(self, connection: Connection) -> None:
        # Both steps may fail by a connection that ends meanwhile; the next one does them again.
        try:
            await self._subscribe_all(connection)
        except Disconnected as error:
            _logger.warning("could not subscribe: %s", error)
            return
        if self._hurry.is_set():
            # Meanwhile it was paused, or shall go by other settings.
            connection.leave()
            return
        self._connection = connection
        self.last_error = None
        self._first.set()
        _logger.info(
            "connected to %s with MQTT %s", self._settings.url, "5" if self._protocol == 5 else "3.1.1"
        )
        for callback in list(self._connected):
            try:
                await callback()
            except StrawberryError as error:
                _logger.warning("after connecting: %s", error)
            except Exception:
                _logger.exception("a callback failed after connecting")

    async def _subscribe_all(self, connection: Connection) -> None:
        wanted: dict[str, int] = {}
        for subscription in self._subscriptions:
            name = self._settings.topic_prefix + subscription.filter
            wanted[name] = max(wanted.get(name, 0), subscription.qos)
        if not wanted:
            return
        try:
            await connection.subscribe(list(wanted.items()))
        except Forbidden as error:
            _logger.error("%s", error)

    def _lost(self, connection: Connection) -> None:
        if self._connection is not connection:
            return
        self._connection = None
        for callback in list(self._disconnected):
            try:
                callback()
            except Exception:
                _logger.exception("a callback failed after the connection was lost")

    def _failed(self, answer: Answer) -> None:
        url, before = self._settings.url, str(self.last_error)
        if answer.verdict is Verdict.LOGIN_REFUSED:
            self.last_error = LoginRefused(
                f"{url} refuses the login of {self._settings.client_id}: {answer.reason}",
                hint="Check the token or the password.",
            )
        else:
            self.last_error = Disconnected(
                f"no connection to {url}: {answer.reason}", hint="Check that the broker runs."
            )
        # A version that is not understood is how the right one is found, and what was said already is
        # as true at each further try; neither is worth a person's eye.
        known = str(self.last_error) == before
        quiet = known or answer.verdict in (Verdict.VERSION_REFUSED, Verdict.CLOSED)
        _logger.log(logging.DEBUG if quiet else logging.WARNING, "%s", self.last_error)

    def _login(self) -> Login:
        settings = self._settings
        password = settings.password() if callable(settings.password) else settings.password
        will = self._will() if self._will else None
        return Login(
            host=self._host,
            port=self._port,
            client_id=settings.client_id,
            username=settings.username,
            password=password.get_secret_value() if password else None,
            keepalive=settings.keepalive,
            will=self._outgoing(will) if will else None,
            timeout_s=settings.connect_timeout_s,
        )

    def _arrived(self, message: Message) -> None:
        prefix = self._settings.topic_prefix
        if not message.topic.startswith(prefix):
            return
        if prefix:
            message = message._replace(topic=message.topic[len(prefix) :])
        topic = message.topic
        levels = topic.split("/")
        for subscription in [one for one in self._subscriptions if one.matches(levels)]:
            try:
                subscription.handler(message)
            except StrawberryError as error:
                _logger.warning("dropped a message on %s: %s", topic, error)
            except Exception:
                _logger.exception("a handler failed on a message on %s", topic)


def _jittered(delay: float) -> float:
    return delay * random.uniform(0.5, 1.0)  # noqa: S311


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 1883
    except ValueError:
        host, port = None, 0
    if parts.scheme != "mqtt" or not host:
        raise ConfigError(f"{url!r} is not the address of a broker", hint="Write it as mqtt://host:1883.")
    return host, port
