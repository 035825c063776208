"""The link to a broker of the house that is used beside the bus, with an ordinary login.

That broker is not ours, so no token is sent there, and no rights are changed; or it is the bus itself, where
the hub uses the login that it has there. Every topic that the hub retains is recorded first, so that all of
them can be emptied.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from sqlmodel import Session, col, delete, select

from bus.link import Link, LinkSettings, Message, open_link
from contracts import topics
from contracts.answers.devices import Purged
from contracts.answers.system import LinkHealth
from contracts.errors import Forbidden, StrawberryError
from hub_agent import limits
from hub_agent.bus.bus_login import with_login
from hub_agent.bus.connection import CONNECT_S, link_health
from hub_agent.settings import HomeLinkSettings
from hub_agent.tables import HomeTopicRow
from hub_registry.bus.purging import connect_again
from hub_registry.storage.store import Store

_log = logging.getLogger(__name__)

_CLIENT_ID: Final = "strawberry-home-"
"""Another one than on the bus: both may be the same broker, which lets a client id in once."""


class HomeTopics:
    """Topics that the hub has retained on brokers that are not its own, remembered beyond a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[tuple[str, str]] = set()

    async def record(self, broker: str, topic: str) -> None:
        """Record that a topic is about to be published on the broker of an address, before it is."""
        if (broker, topic) in self._known:
            return

        def work(session: Session) -> None:
            if session.get(HomeTopicRow, (broker, topic)) is None:
                session.add(HomeTopicRow(broker=broker, topic=topic))

        await self._store.write(work)
        self._known.add((broker, topic))

    async def list(self) -> list[tuple[str, str]]:
        """List the broker and the topic of all that was published and not emptied."""

        def work(session: Session) -> list[tuple[str, str]]:
            rows = session.exec(select(HomeTopicRow).order_by(col(HomeTopicRow.broker), HomeTopicRow.topic))
            return [(row.broker, row.topic) for row in rows]

        return await self._store.read(work)

    async def forget(self, broker: str, topics: Iterable[str]) -> None:
        """Forget what is empty now."""
        emptied = list(topics)

        def work(session: Session) -> None:
            session.exec(
                delete(HomeTopicRow).where(
                    col(HomeTopicRow.broker) == broker, col(HomeTopicRow.topic).in_(emptied)
                )
            )

        await self._store.write(work)
        self._known -= {(broker, topic) for topic in emptied}


class Availability:
    """Availability of a hub process, as it is retained on the broker.

    Attributes:
        silent: Whether nothing may be retained any more, not even a Last Will.
    """

    def __init__(self, instance: str) -> None:
        self.topic = topics.home_availability(instance)
        self.silent = False

    def will(self) -> Message | None:
        # `open_link` asks before each connect.
        return None if self.silent else Message(self.topic, topics.HOME_OFFLINE, 1, True)


class HomeLink:
    """What the hub publishes on that broker. Made by `open_home_link`.

    Args:
        broker: Address of the broker.
        username: Of the login there; empty for none, and on the bus.
    """

    def __init__(
        self, link: Link, topics: HomeTopics, *, broker: str, username: str, availability: Availability
    ) -> None:
        self.link = link
        self.broker = broker
        self.username = username
        self._topics = topics
        self._availability = availability

    def health(self) -> LinkHealth:
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
        await self._topics.record(self.broker, topic)
        await self.link.publish(topic, payload, retain=True, confirmed=confirmed)

    async def record(self, published: Iterable[str]) -> None:
        """Record topics as if they were retained: they are remembered, and emptied with the others."""
        for topic in published:
            await self._topics.record(self.broker, topic)

    async def recorded(self) -> list[str]:
        return [topic for broker, topic in await self._topics.list() if broker == self.broker]

    async def retract(self, published: Sequence[str]) -> None:
        """Empty topics that the hub has retained.

        Raises:
            Disconnected: While there is no connection; those that are empty by then are forgotten.
        """
        emptied = []
        try:
            for topic in published:
                try:
                    await self.link.publish(topic, b"", retain=True, confirmed=True)
                except Forbidden as error:
                    _log.warning("%s stays on the home broker: %s", topic, error)
                else:
                    emptied.append(topic)
        finally:
            await self._topics.forget(self.broker, emptied)

    async def publish_online(self) -> None:
        await self.publish(self._availability.topic, topics.HOME_ONLINE)

    async def publish_offline(self) -> None:
        """Publish that the hub is offline, if the broker is connected."""
        offline = self.publish(self._availability.topic, topics.HOME_OFFLINE, confirmed=True)
        try:
            await asyncio.shield(asyncio.wait_for(offline, limits.LINK_STOP_S))
        except (TimeoutError, StrawberryError):
            _log.info("the home broker is gone; it publishes the hub's last will")

    async def purge(self) -> Purged:
        """Empty all that was published on this broker, and publish nothing more until the next start.

        What could not be emptied stays recorded, and is named; where the broker is away, the hub goes on as
        before.
        """
        own, published = self._availability.topic, await self.recorded()
        self._availability.silent = True
        try:
            # The broker holds the Last Will of the present connection.
            await connect_again(self.link)
            await self.retract((*(each for each in published if each != own), own))
        except StrawberryError as error:
            _log.error("not everything was emptied on the home broker: %s", error)
            self._availability.silent = False
            self.link.reconnect()
        left = await self.recorded()
        return Purged(len(published) - len(left), tuple(f"{topic} on {self.broker}" for topic in left))


@asynccontextmanager
async def open_home_link(
    settings: HomeLinkSettings, topics: HomeTopics, *, instance: str, bus: LinkSettings | None = None
) -> AsyncIterator[HomeLink]:
    """Stay connected to a broker of the house while the context is open.

    A broker that is away is waited for in the background.

    Args:
        bus: The login on the bus, for where that is the same broker.

    Raises:
        ConfigError: If the address or the certificate authority of the broker cannot be used.
    """
    availability = Availability(instance)
    # The address of the bus may be another one at the next start.
    broker = "bus" if settings.is_bus else settings.url
    # The will is published by the broker, whenever it likes.
    await topics.record(broker, availability.topic)
    if settings.is_bus and bus is not None:
        login = replace(bus, client_id=f"{bus.client_id}-home")
    else:
        given = LinkSettings(urls=(settings.url,), client_id=f"{_CLIENT_ID}{instance}", ca=settings.ca)
        login = with_login(given, settings.login)
    async with open_link(login, will=availability.will, wait_s=CONNECT_S) as link:
        username = (settings.login and settings.login.username) or ""
        opened = HomeLink(link, topics, broker=broker, username=username, availability=availability)
        stop = link.on_connected(opened.publish_online)
        try:
            if link.connected:
                await opened.publish_online()
            yield opened
        finally:
            stop()
            await opened.publish_offline()


async def purge_home(topics: HomeTopics, link: HomeLink | None) -> Purged:
    """Empty what was published beside the bus, and name what stands on brokers that are not used any more."""
    here = link.broker if link is not None else None
    purged = await link.purge() if link is not None else Purged(0)
    elsewhere = tuple(
        f"{topic} on {broker}, which is not used any more"
        for broker, topic in await topics.list()
        if broker != here
    )
    return Purged(purged.emptied, purged.left + elsewhere)
