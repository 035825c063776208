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
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Self

from bus.limits import MESSAGES_IN_A_ROW, RESUBSCRIBE_FIRST_S, RESUBSCRIBE_S
from bus.link.connection import Connection, Protocol, SubscriptionRefused
from bus.link.message import Message
from bus.link.reconnection import Reconnection
from bus.link.settings import LinkSettings
from bus.link.subscriptions import Handler, Subscription, Subscriptions
from contracts.errors import Disconnected, Forbidden, LinkError, StrawberryError
from contracts.listeners import Listeners
from contracts.rates import Backoff

__all__ = ["Link", "LinkSettings", "Message", "open_link"]

_log = logging.getLogger(__name__)


def open_link(
    settings: LinkSettings, *, will: Callable[[], Message | None] | None = None, wait_s: float = 5.0
) -> "Link":
    """Make a link, to be entered with ``async with``.

    Args:
        will: Makes the Last Will before each connection.
        wait_s: How long entering waits for the first connection. A link that has none by then is
            entered all the same, and goes on trying.

    Raises:
        ConfigError: If the URL is not one of a broker.
    """
    return Link(settings, will=will, wait_s=wait_s)


class Link:
    """A connection to a broker that comes back by itself. Made by `open_link`.

    Attributes:
        losses: How many connections have ended.
    """

    def __init__(
        self, settings: LinkSettings, *, will: Callable[[], Message | None] | None, wait_s: float
    ) -> None:
        self._will = will
        self._wait_s = wait_s
        self._reconnection = Reconnection(
            settings, will=self._make_will, on_message=self._arrived, stay=self._stay, left=self._lost
        )
        self.losses = 0
        self._connection: Connection | None = None
        self._subscriptions = Subscriptions()
        # After each connect, once everything is subscribed again; and each time the connection is lost.
        self.on_connected: Listeners[Callable[[], Awaitable[None]]] = Listeners()
        self.on_disconnected: Listeners[Callable[[], None]] = Listeners()
        self._first = asyncio.Event()
        # What came before the last of the subscriptions: its handler could publish nothing yet.
        self._early: deque[Message] = deque()
        self._tasks = asyncio.TaskGroup()
        self._runner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._runner = self._tasks.create_task(
            self._reconnection.run(), name=f"link {self._reconnection.settings.client_id}"
        )
        try:
            async with asyncio.timeout(self._wait_s):
                await self._first.wait()
        except TimeoutError:
            reason = self.last_error or f"{self._reconnection.settings.urls[0]} does not answer"
            _log.info("going on without the broker, which is tried again: %s", reason)
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
        return self._connection is not None and not self._connection.closed.done()

    @property
    def last_error(self) -> LinkError | None:
        return self._reconnection.last_error

    @property
    def url(self) -> str | None:
        # While there is no connection, that of the last one.
        return self._reconnection.url

    @property
    def protocol(self) -> Protocol | None:
        """Return the MQTT version of the broker: 5, or 4 for 3.1.1; None before it is known."""
        return self._reconnection.protocol

    async def wait_connected(self) -> None:
        await self._first.wait()

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        confirmed: bool = False,
    ) -> None:
        """Publish; waits while too many are in flight.

        Args:
            confirmed: Wait until the broker has taken it. That says nothing about a receiver.

        Raises:
            Disconnected: At once while there is no connection, and when it is lost before a
                confirmation that was asked for.
        """
        await self.send(Message(topic, payload, qos, retain), confirmed=confirmed)

    async def send(self, message: Message, *, confirmed: bool = False) -> None:
        """Publish a message that is made already; see `publish`."""
        connection = self._live()
        if not connection.has_room():
            await connection.room()
        outgoing = self._outgoing(message)
        mid = connection.publish(outgoing)
        if confirmed and outgoing.qos:
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
        self, filter_: str, handler: Handler, *, qos: int = 1, again: bool = False
    ) -> Callable[[], Awaitable[None]]:
        """Call a plain function for each message that matches, also after every reconnect.

        While there is no connection the subscription waits for one.

        Args:
            again: Have the broker send what it retains also where the filter is subscribed to already; those
                who did so hear it once more, as after a reconnect.

        Returns:
            A function to unsubscribe with.

        Raises:
            Forbidden: If the broker refuses it.
        """
        subscription = Subscription(filter_, handler, qos)
        is_new = self._subscriptions.add(subscription)
        connection = self._connection
        if connection is not None and (is_new or again):
            try:
                await self._subscribe_one(connection, filter_, self._wanted()[filter_])
            except Disconnected:
                _log.debug("the subscription to %s waits for the next connection", filter_)
            except Forbidden:
                self._subscriptions.discard(subscription)
                raise

        async def unsubscribe() -> None:
            was_last = self._subscriptions.discard(subscription)
            connection = self._connection
            if connection is None or not was_last:
                return
            try:
                await connection.unsubscribe(self._prefix + filter_)
            except Disconnected:
                _log.debug("the connection that held the subscription to %s is gone", filter_)

        return unsubscribe

    def _wanted(self) -> dict[str, int]:
        return self._subscriptions.wanted(most=self._reconnection.settings.qos)

    def reconnect(self) -> None:
        """Leave the present connection in good order, so that its Last Will is dropped, and make another.

        Where there is none, the next attempt is made at once.
        """
        self._reconnection.hurry()
        if self._connection is not None:
            self._connection.leave()

    def use(self, settings: LinkSettings) -> None:
        """Go by other settings from now on, with a new connection.

        Raises:
            ConfigError: If a URL is not one of a broker.
        """
        self._reconnection.use(settings)
        self.reconnect()

    def pause(self) -> None:
        """Leave the present connection in good order, and make none until `resume`."""
        self._reconnection.pause()
        self.reconnect()

    def resume(self) -> None:
        self._reconnection.resume()

    @property
    def _prefix(self) -> str:
        return self._reconnection.settings.topic_prefix

    def _live(self) -> Connection:
        connection = self._connection
        if connection is None:
            reason = self.last_error.message if self.last_error else "not connected yet"
            raise Disconnected(f"no connection to the broker: {reason}", hint="It is tried again by itself.")
        return connection

    def _outgoing(self, message: Message) -> Message:
        if not message.retain and message.qos > self._reconnection.settings.qos:
            message = message._replace(qos=self._reconnection.settings.qos)
        prefix = self._prefix
        if not prefix:
            return message
        response = message.response_topic
        return message._replace(
            topic=prefix + message.topic, response_topic=prefix + response if response else None
        )

    def _make_will(self) -> Message | None:
        will = self._will() if self._will else None
        return self._outgoing(will) if will else None

    async def _stay(self, connection: Connection) -> str:
        async with asyncio.TaskGroup() as tasks:
            ready = tasks.create_task(self._get_ready(connection), name="link: subscribe again")
            reason = await connection.drive()
            ready.cancel()
        return reason

    async def _get_ready(self, connection: Connection) -> None:
        # Both steps may fail by a connection that ends meanwhile; the next one does them again.
        self._early.clear()
        try:
            refused = await self._subscribe_all(connection)
            refused = await self._subscribe_again(connection, refused, within_s=RESUBSCRIBE_FIRST_S)
        except Disconnected as error:
            _log.warning("could not subscribe: %s", error)
            return
        if self._reconnection.interrupted:
            # Meanwhile it was paused, or shall go by other settings.
            connection.leave()
            return
        self._connection = connection
        self._reconnection.established()
        self._first.set()
        _log.info("connected to %s with MQTT %s", self.url, "5" if self.protocol == 5 else "3.1.1")
        while self._early:
            for message in [self._early.popleft() for _ in range(min(len(self._early), MESSAGES_IN_A_ROW))]:
                self._subscriptions.dispatch(message)
            await asyncio.sleep(0)
        for callback in self.on_connected:
            try:
                await callback()
            except StrawberryError as error:
                _log.warning("after connecting: %s", error)
            except Exception:  # noqa: BLE001 - the other callbacks run all the same
                _log.exception("a callback failed after connecting")
        with suppress(Disconnected):
            await self._subscribe_again(connection, refused, within_s=math.inf)

    async def _subscribe_again(
        self, connection: Connection, refused: Collection[str], *, within_s: float
    ) -> Collection[str]:
        """Ask again for what the broker refused, as a cluster does, too, that has just lost a node.

        Returns:
            What it still refuses.
        """
        backoff, until = Backoff(*RESUBSCRIBE_S), asyncio.get_running_loop().time() + within_s
        while refused and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(backoff.next())
            still = []
            for filter_, qos in self._wanted().items():
                try:
                    if filter_ in refused:
                        await self._subscribe_one(connection, filter_, qos)
                except SubscriptionRefused:
                    still.append(filter_)
            refused = still
        return refused

    async def _subscribe_all(self, connection: Connection) -> Collection[str]:
        """Subscribe to all that is wanted; return what the broker refuses."""
        refused: list[str] = []
        done: dict[int, int] = {}
        # What is subscribed while the broker answers has no connection yet, and counts on being found here.
        while wanted := {
            filter_: qos
            for filter_, qos in self._wanted().items()
            if done.get(self._subscriptions.number(filter_), -1) < qos
        }:
            done |= {self._subscriptions.number(filter_): qos for filter_, qos in wanted.items()}
            if not connection.identifies:
                filters = [(self._prefix + filter_, qos) for filter_, qos in wanted.items()]
                steps = [connection.subscribe(filters)]
            else:
                # An identifier is for all filters of a packet; all packets leave before the first answer.
                steps = [self._subscribe_one(connection, filter_, qos) for filter_, qos in wanted.items()]
            for failure in await asyncio.gather(*steps, return_exceptions=True):
                if isinstance(failure, SubscriptionRefused):
                    _log.error("%s", failure)
                    refused += [name.removeprefix(self._prefix) for name in failure.filters]
                elif failure is not None:
                    raise failure
        return refused

    def _subscribe_one(self, connection: Connection, filter_: str, qos: int) -> Coroutine[Any, Any, None]:
        # The number is taken now: by the time that it is awaited, the filter may be unsubscribed.
        number = self._subscriptions.number(filter_) if connection.identifies else None
        return connection.subscribe([(self._prefix + filter_, qos)], identifier=number)

    def _lost(self, connection: Connection) -> None:
        if self._connection is not connection:
            return
        self._connection = None
        self.losses += 1
        for callback in self.on_disconnected:
            try:
                callback()
            except Exception:  # noqa: BLE001 - the other callbacks run all the same
                _log.exception("a callback failed after the connection was lost")

    def _arrived(self, message: Message) -> None:
        prefix = self._prefix
        if not message.topic.startswith(prefix):
            return
        if prefix:
            message = message._replace(topic=message.topic[len(prefix) :])
        if self._connection is None or self._early:
            self._early.append(message)
        else:
            self._subscriptions.dispatch(message)
