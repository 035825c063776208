"""The link to a broker that stands in the house already, beside the bus, with an ordinary login.

Nothing of that broker is ours: no token is sent there, and no rights are changed. All that the hub keeps
there is written down first, so that it can be emptied to the last topic.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from bus.link import Link, LinkSettings, Message, open_link
from contracts import home
from contracts.errors import Disconnected, Forbidden, StrawberryError
from contracts.wire import Json
from hub_agent.bus.bus_login import with_login
from hub_agent.bus.connection import CONNECT_S, link_health
from hub_agent.bus.home_topics import HomeTopics, Published
from hub_agent.settings import HomeLinkSettings
from hub_registry.bus.purging import Purged

_log = logging.getLogger(__name__)

_CLIENT_ID: Final = "strawberry-home-"
"""Another one than on the bus: both may be the same broker, which lets a client id in once."""
_GOODBYE_S: Final = 2.0
"""How long stopping may wait for a broker that no longer answers."""
_RECONNECT_S: Final = 15.0
_LOOK_S: Final = 15.0
"""How long the broker may take to send what it retains on a handful of topics."""


class Availability:
    """Whether a hub process is there, as it is retained on the broker.

    Attributes:
        silent: Whether nothing may be kept any more, not even a Last Will.
    """

    def __init__(self, instance: str) -> None:
        self.topic = home.availability(instance)
        self.silent = False

    def will(self) -> Message | None:
        """Make the Last Will; for ``open_link``, which asks before each connect."""
        return None if self.silent else Message(self.topic, home.OFFLINE, 1, True)


class HomeLink:
    """What the hub says on that broker. Made by `open_home_link`.

    Args:
        broker: Address of the broker.
    """

    def __init__(self, link: Link, topics: HomeTopics, *, broker: str, availability: Availability) -> None:
        self.link = link
        self.broker = broker
        self._topics = topics
        self._availability = availability

    def health(self) -> dict[str, Json]:
        """Say whether the broker is there."""
        return link_health(self.link)

    async def publish(self, topic: str, payload: bytes, *, confirmed: bool = False) -> None:
        """Publish what the broker shall retain; nothing any more once all was purged.

        Every retained topic on this broker goes through here.

        Args:
            confirmed: As for `Link.publish`.

        Raises:
            Disconnected: While there is no connection.
        """
        if self._availability.silent:
            return
        await self._topics.record(Published(self.broker, topic))
        await self.link.publish(topic, payload, retain=True, confirmed=confirmed)

    async def say_online(self) -> None:
        """Say that the hub is there; after each connect."""
        await self.publish(self._availability.topic, home.ONLINE)

    async def say_offline(self) -> None:
        """Say that the hub goes, if the broker listens."""

        async def publish() -> None:
            async with asyncio.timeout(_GOODBYE_S):
                await self.publish(self._availability.topic, home.OFFLINE, confirmed=True)

        try:
            await asyncio.shield(publish())
        except (TimeoutError, StrawberryError):
            _log.info("the home broker is gone; the hub's last will says there that it went")

    async def purge(self) -> Purged:
        """Empty all that was published on this broker, and read back that it is; then be silent.

        The hub says nothing there any more until it is started again. What could not be emptied stays written
        down, and is named; where that is everything, the hub goes on as before.
        """
        published = {each.topic for each in await self._topics.list() if each.broker == self.broker}
        self._availability.silent = True
        try:
            left = await self._empty(published)
        except StrawberryError as error:
            _log.error("nothing was emptied on the home broker: %s", error)
            self._availability.silent = False
            self.link.reconnect()
            left = published
        await self._topics.forget(self.broker, published - left)
        return Purged(len(published - left), tuple(f"{topic} on {self.broker}" for topic in sorted(left)))

    async def _empty(self, published: set[str]) -> set[str]:
        """Give what the broker retains all the same.

        Raises:
            StrawberryError: If the broker is away or takes nothing.
        """
        own = self._availability.topic
        # The broker holds the Last Will of the present connection.
        await self._connect_anew()
        others = sorted(published - {own})
        for topic in others:
            with suppress(Forbidden):  # reading back shows it
                await self.link.publish(topic, b"", retain=True, confirmed=True)
        left = await self._retained(others) if others else set()
        await self.link.publish(own, b"", retain=True, confirmed=True)
        return left

    async def _retained(self, topics: list[str]) -> set[str]:
        """Look which of these topics the broker retains.

        It answers subscriptions in their order: when the hub's own topic has come, all others have.
        """
        own = self._availability.topic
        found: set[str] = set()
        done = asyncio.Event()

        def collect(message: Message) -> None:
            if message.retain and message.payload:
                found.add(message.topic)

        def finish(message: Message) -> None:
            if message.retain:
                done.set()

        await self.link.publish(own, home.OFFLINE, retain=True, confirmed=True)
        async with AsyncExitStack() as stack:
            for topic in topics:
                stack.push_async_callback(await self.link.subscribe(topic, collect))
            stack.push_async_callback(await self.link.subscribe(own, finish))
            try:
                async with asyncio.timeout(_LOOK_S):
                    await done.wait()
            except TimeoutError:
                raise Disconnected("the home broker did not send its retained messages") from None
        return found

    async def _connect_anew(self) -> None:
        anew = asyncio.Event()

        async def note() -> None:
            anew.set()

        if not self.link.connected:
            raise Disconnected("the home broker is not connected")
        forget = self.link.on_connected(note)
        try:
            self.link.reconnect()
            async with asyncio.timeout(_RECONNECT_S):
                await anew.wait()
        except TimeoutError:
            raise Disconnected("the home broker did not accept the hub again in time") from None
        finally:
            forget()


@asynccontextmanager
async def open_home_link(
    settings: HomeLinkSettings, topics: HomeTopics, *, instance: str
) -> AsyncIterator[HomeLink]:
    """Be there on a broker of the house for as long as the context is open.

    A broker that is away is waited for in the background.

    Raises:
        ConfigError: If the address or the certificate authority of the broker cannot be used.
    """
    availability = Availability(instance)
    # The will is published by the broker, whenever it likes.
    await topics.record(Published(settings.url, availability.topic))
    given = LinkSettings(urls=(settings.url,), client_id=f"{_CLIENT_ID}{instance}", ca=settings.ca)
    link = open_link(with_login(given, settings.login), will=availability.will, wait_s=CONNECT_S)
    async with link:
        opened = HomeLink(link, topics, broker=settings.url, availability=availability)
        stop = link.on_connected(opened.say_online)
        try:
            if link.connected:
                await opened.say_online()
            yield opened
        finally:
            stop()
            await opened.say_offline()


async def purge_home(topics: HomeTopics, link: HomeLink | None) -> Purged:
    """Empty what was published beside the bus, and name what stands on brokers that are not used any more."""
    here = link.broker if link is not None else None
    purged = await link.purge() if link is not None else Purged(0)
    elsewhere = tuple(
        f"{each.topic} on {each.broker}, which is not used any more"
        for each in await topics.list()
        if each.broker != here
    )
    return Purged(purged.emptied, purged.left + elsewhere)
