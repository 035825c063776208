"""The hub's connections to brokers: the bus, and the broker of the house where there is one."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from hub_agent.bus.bus_login import link_settings
from hub_agent.bus.connection import Bus, open_bus
from hub_agent.bus.home_link import HomeLink, HomeTopics, open_home_link, purge_home
from hub_agent.calls.audit import AuditTrail
from hub_agent.settings import HubSettings
from hub_registry.registry import Registry


@asynccontextmanager
async def open_links(
    settings: HubSettings, registry: Registry, trail: AuditTrail, *, version: str
) -> AsyncIterator[tuple[Bus, HomeLink | None]]:
    """Stay connected to the brokers while the context is open; one that is away is waited for.

    Raises:
        ConfigError: If an address or a certificate authority cannot be used.
    """
    topics = HomeTopics(registry.store)
    async with AsyncExitStack() as stack:
        home = None
        if settings.home_link is not None:
            opened = open_home_link(
                settings.home_link, topics, instance=settings.instance, bus=link_settings(settings, registry)
            )
            home = await stack.enter_async_context(opened)
        purgers = (partial(purge_home, topics, home),)
        yield (
            await stack.enter_async_context(
                open_bus(settings, registry, trail, version=version, purgers=purgers)
            ),
            home,
        )
