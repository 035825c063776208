"""A registry that serves on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from broker.embedded.logins import EmbeddedLogins
from broker.logins import BrokerLogins
from bus.link import Link, LinkSettings, Message, open_link
from contracts import topics
from hub_registry.bus.hub_presence import HubPresence
from hub_registry.bus.purging import Purger
from hub_registry.bus.service import RegistryService
from hub_registry.devices.presence import PresenceChange, PresenceState
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from identity import tokens
from identity.envelope import Seal
from identity.keys import KeyPair
from tests.hub_registry.spokes import FakeSpoke, eventually, join
from tests.reused import put_database


@dataclass
class Hub:
    """A hub's registry with its service, and a link for spokes and for looking on."""

    registry: Registry
    service: RegistryService
    link: Link
    outside: Link
    changes: list[PresenceChange]
    url: str = ""
    with_proofs: bool = True

    def state(self, spoke: FakeSpoke) -> PresenceState:
        entry = self.registry.directory.get(spoke.device)
        assert entry is not None
        return entry.presence.state

    def skills(self, spoke: FakeSpoke) -> set[str]:
        entry = self.registry.directory.get(spoke.device)
        assert entry is not None
        return set(entry.skills)

    def problems(self, spoke: FakeSpoke) -> str:
        entry = self.registry.directory.get(spoke.device)
        assert entry is not None
        return "\n".join(problem.message for problem in entry.problems)

    async def joined(self, name: str, *, trusted: bool = True) -> FakeSpoke:
        return await join(self.registry, self.outside, name, trusted=trusted)

    async def settled(self) -> None:
        """Wait until all that was sent before has been heard: a new device that comes last is there."""
        last = await self.joined(f"Last {len(self.registry.directory.entries())}")
        await last.online()
        await eventually(lambda: self.state(last) is PresenceState.ONLINE)


def hub_login(registry: Registry, url: str, client_id: str) -> LinkSettings:
    """Log in as the hub."""
    claims = tokens.make_claims(
        hub_id=registry.hub_id, subject="main", kind="hub", owner="admin", scopes=(), lifetime_s=600
    )
    password = SecretStr(tokens.issue(registry.key, claims))
    return LinkSettings(urls=(url,), client_id=client_id, username="main", password=password, backoff_s=0.05)


def _set_if_live(event: asyncio.Event, message: Message) -> None:
    if not message.retain:
        event.set()


def no_login(_: Registry, url: str, client_id: str) -> LinkSettings:
    """Come in without a login, where the broker allows that."""
    return LinkSettings(urls=(url,), client_id=client_id)


@asynccontextmanager
async def serve(
    registry: Registry,
    url: str,
    *,
    login: Callable[[Registry, str, str], LinkSettings] = no_login,
    logins: Callable[[Link], BrokerLogins] | None = None,
    purgers: Sequence[Purger] = (),
) -> AsyncIterator[Hub]:
    """Run a registry's service on a broker; on our embedded one where a login is given."""
    if logins is None and login is hub_login:
        logins = EmbeddedLogins
    instance = registry.settings.instance
    presence = HubPresence(Seal(registry.hub_id, registry.key), instance=instance)
    async with (
        open_link(login(registry, url, instance), will=presence.will, wait_s=30) as link,
        open_link(login(registry, url, f"{instance}-outside"), wait_s=30) as outside,
    ):
        service = RegistryService(
            registry, link=link, presence=presence, logins=logins(link) if logins else None, purgers=purgers
        )
        changes: list[PresenceChange] = []
        service.on_presence(changes.append)
        there = asyncio.Event()
        topic = topics.HUB_STATUS.build(instance=instance)
        stop = await outside.subscribe(topic, lambda message: _set_if_live(there, message))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(service.run())
            try:
                # It says so once it has subscribed.
                await there.wait()
                await stop()
                yield Hub(registry, service, link, outside, changes)
            finally:
                running.cancel()


@asynccontextmanager
async def open_hub(
    directory: Path, url: str, *, key: KeyPair, instance: str = "main", **settings
) -> AsyncIterator[Hub]:
    """Open a registry and run it on a broker that asks for no login."""
    given = RegistrySettings(database=directory / "hub.db", instance=instance, **settings)
    await put_database(given.database)
    async with open_registry(given, key=key) as registry, serve(registry, url) as hub:
        yield hub
