"""The parts of the live home, opened in their order and closed in the reverse one."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from agent_core.prompt import Household
from chat.tasks import supervise
from contracts.answers.live import LinkName
from contracts.errors import FileProblem, NotFound, StorageError
from hub_agent.bus.home_link import HomeLink
from hub_agent.calls.own_skills import HubSkill
from hub_agent.parts import HubParts
from hub_agent.prompt import Contribution
from hub_agent.settings import ProtobufSettings
from hub_home_assistant.inward import Inward
from hub_home_assistant.inward.client import HomeAssistant
from hub_home_assistant.inward.topics import StateTopics
from hub_live.captures import Captures, CaptureSkill, open_captures
from hub_live.events import Events
from hub_live.events.presence import presence_events
from hub_live.memory.memory import Memory, open_memory
from hub_live.memory.skill import ListSkill, MemorySkill
from hub_live.nodes import Nodes, node_events
from hub_live.notifications import Notifications, open_notifications, tell_full_disk
from hub_live.push import Push
from hub_live.topics import Decoding, Feed, LastHeard, TopicLink, open_feed
from hub_live.topics.operations import BusSkill
from hub_live.topics.values import BusValues
from hub_live.watchers.opening import open_watchers
from hub_live.watchers.skill import WatcherSkill
from hub_live.watchers.timers import Timers, open_timers
from hub_live.watchers.watchers import Watchers
from hub_live.world import World, WorldSkill, open_world
from hub_live.world.section import world_part

PROMPT_PARTS: Final = ("world", "watchers", "captures", "memory")


@dataclass(frozen=True)
class Live:
    """The live home.

    Attributes:
        skills: The hub's own.
        contributions: What the parts add to the prompt, in its order.
    """

    feed: Feed
    values: BusValues
    events: Events
    captures: Captures
    watchers: Watchers
    timers: Timers
    world: World
    memory: Memory
    nodes: Nodes
    home_assistant: Inward
    notifications: Notifications
    push: Push
    skills: Sequence[HubSkill]
    contributions: Mapping[str, Contribution]

    def problems(self) -> list[FileProblem]:
        return [self.memory.problem] if self.memory.problem is not None else []

    def without_values(self) -> list[tuple[str, str, str]]:
        # Owner, name, and why.
        return [*self.watchers.views.without_values(), *self.captures.without_values()]

    async def forget_person(self, user: str, heir: str) -> None:
        """Delete what there is of a person who was removed; their captures stop, and go to an admin.

        Args:
            heir: Id of that admin.
        """
        await self.watchers.forget_person(user)
        await self.timers.forget_person(user)
        await self.captures.hand_over(user, heir)
        await self.events.forget_person(user)
        await self.push.forget_person(user)
        # Last, since people may have made the file one that cannot be changed.
        await self.memory.forget_person(user)


@asynccontextmanager
async def open_live(
    parts: HubParts, *, home: HomeLink | None, tasks: asyncio.TaskGroup
) -> AsyncIterator[Live]:
    """Open all parts.

    Args:
        home: The connection to the home's own broker, where there is one.
        tasks: Owns what runs as long as the hub.
    """
    settings, registry, bus, manager = parts.settings, parts.registry, parts.bus, parts.manager
    async with AsyncExitStack() as stack:
        heard = LastHeard(registry.store, instance=settings.instance)
        decoding = _decoding(settings.protobuf)
        states = StateTopics()
        others: dict[LinkName, TopicLink] = {"home_assistant": states}
        feed = await stack.enter_async_context(
            open_feed(bus.link, home, heard, decoding=decoding, others=others)
        )
        stack.callback(registry.directory.on_sharing(feed.forget_rights))
        events = Events(registry.store, bus.link)
        presence = presence_events(events, registry.directory, bus.service, tasks=tasks)
        await stack.enter_async_context(presence)
        values = BusValues(
            feed,
            patterns=settings.home_link.publish if settings.home_link else (),
            directory=registry.directory,
            manager=manager,
        )
        access = settings.home_assistant_access
        assistant = HomeAssistant(access, topics=states)
        web_push = Push(registry.store, directory=settings.directory)
        await web_push.load()

        async def household_of(user: str) -> Household:
            with suppress(NotFound, StorageError):
                person = await registry.accounts.get(user)
                return settings.household.of(person.language, person.time_zone)
            return settings.household

        # Before what raises alarms at the start, and closed after what raises them at the end.
        notifications = await stack.enter_async_context(
            open_notifications(
                settings.notifications,
                events,
                home=settings.home,
                home_assistant=assistant.notify,
                push=web_push,
                household_of=household_of,
            )
        )
        captures = await stack.enter_async_context(
            open_captures(settings, registry, feed=feed, link=bus.link, events=events)
        )
        # On the bus only the hub announces devices.
        has_others = settings.home_link is not None and not settings.home_link.is_bus
        world = await stack.enter_async_context(open_world(registry.directory, feed, home=has_others))
        watchers = await stack.enter_async_context(
            open_watchers(parts, feed=feed, events=events, captures=captures, world=world)
        )
        timers = await stack.enter_async_context(open_timers(parts, events))
        home_assistant = Inward(assistant, world=world, feed=feed, registry=registry)
        stack.enter_context(home_assistant.running(tasks))
        memory = await stack.enter_async_context(
            open_memory(settings.directory, embeddings=settings.embeddings, tasks=tasks)
        )
        await stack.enter_async_context(node_events(events, registry.directory, feed, tasks=tasks))
        telling = partial(
            tell_full_disk, registry.store, events, person=registry.admin.id, directory=settings.directory
        )
        supervise(tasks, telling, name="full disk")
        yield Live(
            feed=feed,
            values=values,
            events=events,
            captures=captures,
            watchers=watchers,
            timers=timers,
            world=world,
            memory=memory,
            nodes=Nodes(registry.directory, manager, feed),
            home_assistant=home_assistant,
            notifications=notifications,
            push=web_push,
            skills=(
                BusSkill(values),
                CaptureSkill(captures),
                WatcherSkill(watchers, timers, household=settings.household),
                WorldSkill(world),
                MemorySkill(memory, parts.histories),
                ListSkill(memory),
                home_assistant.skill,
            ),
            contributions={
                "world": partial(world_part, world),
                "watchers": watchers.views.prompt_part,
                "captures": captures.prompt_part,
                "memory": memory.prompt_part,
            },
        )


def _decoding(settings: ProtobufSettings | None) -> Decoding:
    if settings is None:
        return Decoding()
    # Imported where it is used: protobuf takes 40 ms.
    from hub_live.topics.protobuf import load_patterns

    return Decoding(load_patterns(settings.descriptors, settings.topics))
