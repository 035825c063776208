"""What only one hub of a home does: the live home, Home Assistant, chat over the bus, tidying."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.routing import BaseRoute

from chat.operations import Operations, Resource
from chat.tasks import open_tasks, supervise
from contracts.answers.system import McpServers
from contracts.errors import FileProblem, LinkError, StorageError
from hub_agent.bus.bus_chat import open_bus_chat
from hub_agent.bus.bus_login import link_settings
from hub_agent.bus.home_link import HomeLink, HomeTopics, open_home_link, purge_home
from hub_agent.bus.wake_words import open_wake_words
from hub_agent.calls.own_skills import HubSkill
from hub_agent.parts import HubParts
from hub_agent.prompt import Asked, Contribution, PromptPart
from hub_home_assistant.outward import open_outward
from hub_home_assistant.outward.operations import Exposing, home_assistant
from hub_live.captures.operations import captures
from hub_live.events.operations import events
from hub_live.memory.operations import memory
from hub_live.nodes import nodes
from hub_live.notifications import announce_ends, announce_missing_values, notifications
from hub_live.push import push
from hub_live.topics.operations import bus
from hub_live.watchers.operations import timers, watchers
from hub_live.world.operations import world
from hub_registry.access.bearer import Bearer
from hub_registry.storage.tables import now
from hub_server import limits
from hub_server.live import PROMPT_PARTS, Live, open_live
from hub_server.mcp.clients import McpClients, mcp_servers

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeadingParts:
    """What is open while this hub leads."""

    live: Live
    home: HomeLink | None
    servers: McpClients
    exposing: Exposing


_SERVED: Final[tuple[tuple[Resource[Any, Bearer], Callable[[LeadingParts], object]], ...]] = (
    (events, lambda parts: parts.live.events),
    (bus, lambda parts: parts.live.values),
    (captures, lambda parts: parts.live.captures),
    (watchers, lambda parts: parts.live.watchers),
    (timers, lambda parts: parts.live.timers),
    (world, lambda parts: parts.live.world),
    (memory, lambda parts: parts.live.memory),
    (nodes, lambda parts: parts.live.nodes),
    (notifications, lambda parts: parts.live.notifications),
    (push, lambda parts: parts.live.push),
    (home_assistant, lambda parts: parts.exposing),
    (mcp_servers, lambda parts: parts.servers),
)
"""What is served of these parts."""


class NotLeading(LinkError):
    """Another replica leads, and what was asked for is done there."""


class Leader:
    """What only one hub of a home does, where this is the one.

    Attributes:
        parts: None while another replica leads.
        remote_part: Returns parts of prompts while another replica leads.
    """

    def __init__(self, operations: Operations[Bearer]) -> None:
        self.parts: LeadingParts | None = None
        self.remote_part: Callable[[str, Asked], Awaitable[PromptPart | None]] | None = None
        self._operations = operations
        self._changes: dict[str, Callable[[Live], None]] = {}

    @property
    def live(self) -> Live:
        """The live home.

        Raises:
            NotLeading: If another replica leads.
        """
        if self.parts is None:
            raise NotLeading("another replica of the hub leads", hint="Try again in a moment.")
        return self.parts.live

    def servers(self) -> McpServers:
        return McpServers(servers=[], problem="") if self.parts is None else self.parts.servers.state()

    @property
    def home(self) -> HomeLink | None:
        return self.parts.home if self.parts is not None else None

    def problems(self) -> list[FileProblem]:
        return self.parts.live.problems() if self.parts is not None else []

    def routes(self) -> list[BaseRoute]:
        """Make the HTTP routes, whether it leads or not."""
        served = ((resource, self.parts and of(self.parts)) for resource, of in _SERVED)
        return [route for resource, service in served for route in self._operations.mount(resource, service)]

    @property
    def contributions(self) -> Mapping[str, Contribution]:
        return {name: partial(self._contribute, name) for name in PROMPT_PARTS}

    async def _contribute(self, name: str, asked: Asked) -> PromptPart | None:
        if self.parts is None:
            return await self.remote_part(name, asked) if self.remote_part is not None else None
        return await self.live.contributions[name](asked)

    def change(self, what: str, change: Callable[[Live], None]) -> None:
        """Change the live home, now and whenever it leads, in place of an earlier change of the same name."""
        self._changes[what] = change
        if self.parts is not None:
            change(self.parts.live)

    def close(self) -> None:
        if self.parts is not None:
            self.parts.live.events.close()

    def put(self, parts: LeadingParts | None) -> None:
        """Serve these parts, or none any more."""
        self.parts = parts
        for resource, of in _SERVED:
            self._operations.put(resource, parts and of(parts))
        if parts is not None:
            for change in self._changes.values():
                change(parts.live)


@asynccontextmanager
async def open_leading(
    parts: HubParts,
    leader: Leader,
    *,
    skills: tuple[HubSkill, ...],
    announce: Callable[[], Awaitable[None]] | None,
) -> AsyncIterator[None]:
    """Do what only one hub of a home does, for as long as the context is open.

    Args:
        leader: Gets the parts.
        skills: The hub's own that need none of the parts.
        announce: Tells the network of the hub, until cancelled.
    """
    settings, registry, agent = parts.settings, parts.registry, parts.agent
    async with AsyncExitStack() as stack:
        topics = HomeTopics(registry.store)
        home = None
        if settings.home_link is not None:
            opened = open_home_link(
                settings.home_link, topics, instance=settings.instance, bus=link_settings(settings, registry)
            )
            home = await stack.enter_async_context(opened)
        parts.bus.service.purgers = (partial(purge_home, topics, home),)
        tasks = await stack.enter_async_context(open_tasks(contained=True))
        live = await stack.enter_async_context(open_live(parts, home=home, tasks=tasks))
        servers = McpClients(settings.home, parts.own, tasks)
        supervise(tasks, servers.run, name="MCP servers")
        stack.callback(registry.authority.on_revoked(live.push.end_revoked))
        await stack.enter_async_context(parts.own.offering((*live.skills, *skills)))
        stack.callback(live.home_assistant.on_offered(parts.own.refresh))
        supervise(tasks, partial(_keep_tidy, parts, live), name="old records")
        stack.callback(registry.people.on_removed(live.forget_person))
        await stack.enter_async_context(open_bus_chat(registry, agent.assistant.ask, parts.bus, parts.trail))
        await stack.enter_async_context(open_wake_words(registry.directory, parts.bus))
        outward = await stack.enter_async_context(
            open_outward(parts, home, feed=live.feed, events=live.events)
        )
        if announce is not None:
            supervise(tasks, announce, name="announcement")
        exposing = Exposing(outward, registry.directory, live.home_assistant.client)
        leader.put(LeadingParts(live, home, servers, exposing))
        try:
            yield
        finally:
            leader.put(None)


async def _keep_tidy(parts: HubParts, live: Live) -> None:
    """Delete records that have outlived their use, and announce what is wrong soon, until cancelled."""
    authority, agent = parts.registry.authority, parts.agent
    while True:
        try:
            await authority.forget_expired()
            await agent.assistant.record.forget_cancelled()
            await agent.traces.trim()
            await parts.trail.trim()
            await announce_ends(authority, live.events, at=now())
            await announce_missing_values(live.without_values(), live.events)
        except StorageError as error:
            _log.error("old records are deleted later: %s", error)
        await asyncio.sleep(limits.TIDY_S)
