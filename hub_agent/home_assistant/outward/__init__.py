"""This home in Home Assistant, over MQTT discovery on the home's own broker.

``exposures``   what the owner shows; nothing by itself
``rules``       methods and states of a skill as entities
``configs``     entities as discovery describes them
``publishing``  what is published, kept equal to that, and taken back
``commands``    what Home Assistant asks for, as calls
``hub``         chat, watchers and messages
``http``        the routes
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bus.link import Message
from chat.tasks import open_tasks
from contracts import topics
from contracts.errors import Forbidden
from hub_agent.bus.connection import Bus
from hub_agent.bus.home_link import HomeLink
from hub_agent.chat.assistant import Assistant
from hub_agent.home_assistant.outward.commands import Commands
from hub_agent.home_assistant.outward.configs import Announcement, Command, Place
from hub_agent.home_assistant.outward.exposures import Exposures
from hub_agent.home_assistant.outward.hub import HubParts
from hub_agent.home_assistant.outward.publishing import HUB, Publishing, event_of
from hub_agent.live.topics import Sample

__all__ = ["Outward", "open_outward"]

_log = logging.getLogger(__name__)


@dataclass
class Outward:
    """What of this home is in Home Assistant.

    Attributes:
        home: The broker; None where none is configured, and nothing is published.
        publishing: None likewise.
        parts: None likewise.
        status: What Home Assistant last said of itself since this start: ``online``, ``offline``, or nothing.
    """

    exposures: Exposures
    home: HomeLink | None = None
    publishing: Publishing | None = None
    parts: HubParts | None = None
    discovery: str = "entity"
    status: str = ""

    def hear_status(self, message: Message) -> None:
        """Note whether Home Assistant is there; it may retain that."""
        self.status = message.payload.decode(errors="replace")[:20]


@asynccontextmanager
async def open_outward(
    assistant: Assistant, bus: Bus, home: HomeLink | None, *, version: str
) -> AsyncIterator[Outward]:
    """Publish what is exposed, and carry out what is asked for, for as long as the context is open."""
    registry, settings, live = assistant.registry, assistant.settings, assistant.live
    outward = Outward(Exposures(registry.store), home, discovery=settings.discovery)
    await outward.exposures.load()
    async with AsyncExitStack() as stack:
        stack.callback(registry.people.on_removed(partial(_forget, outward.exposures)))
        if home is None:
            yield outward
            return
        tasks = await stack.enter_async_context(open_tasks())

        def tell(name: str, payload: dict[str, Any]) -> None:
            tasks.create_task(publishing.send_event(HUB, name, payload), name="home assistant: event")

        def use(known: dict[str, Command]) -> None:
            commands.known, commands.handlers = known, parts.handlers

        def extend(made: Announcement) -> None:
            parts.extend(made)

        def hear_event(sample: Sample) -> None:
            if (event := event_of(sample)) is not None:
                tasks.create_task(publishing.hear_event(*event), name="home assistant: event")

        publishing = Publishing(
            registry.directory,
            outward.exposures,
            home,
            discovery=settings.discovery,
            version=version,
            place=partial(Place.of, registry.hub_id, settings.instance),
            extend=extend,
            on_commands=use,
        )
        parts = HubParts(
            assistant,
            outward.exposures,
            live.events,
            discovery=settings.discovery,
            tasks=tasks,
            publish_event=tell,
            on_change=partial(publishing.refresh, HUB),
        )
        commands = Commands(
            registry, assistant.manager, outward.exposures, home, tasks=tasks, on_set=publishing.assume
        )
        outward.publishing, outward.parts = publishing, parts
        for sample in live.feed.known(topics.STATE.filter()):
            publishing.hear_state(sample)
        for sample in live.feed.known(topics.WATCHER.filter()):
            parts.hear_watcher(sample)
        stack.enter_context(live.feed.follow(topics.STATE.filter(), publishing.hear_state))
        stack.enter_context(live.feed.follow(topics.EVENT.filter(), hear_event))
        stack.enter_context(live.feed.follow(topics.WATCHER.filter(), parts.hear_watcher))
        decisions = topics.USER_EVENT.filter(kind="watcher")
        stack.enter_context(live.feed.follow(decisions, parts.hear_decision))
        stack.callback(registry.directory.on_change(lambda _: publishing.refresh()))
        stack.callback(bus.service.on_presence(lambda change: publishing.refresh(change.device)))
        stack.callback(outward.exposures.on_change(publishing.refresh))
        # Its own retained messages may be gone: a broker without persistence was restarted.
        stack.callback(home.link.on_connected(publishing.resend))
        filter_ = topics.home_topic(settings.instance, "+", "set", "#")
        listening: tuple[tuple[str, Callable[[Message], None]], ...] = (
            (filter_, commands.arrived),
            (topics.HOME_ASSISTANT_STATUS, publishing.hear_birth),
            (topics.HOME_ASSISTANT_STATUS, outward.hear_status),
        )
        for wanted, hear in listening:
            try:
                stack.push_async_callback(await home.link.subscribe(wanted, hear))
            except Forbidden as error:
                _log.warning("Home Assistant is not heard: the home broker refuses %s: %s", wanted, error)
        tasks.create_task(publishing.run(), name="home assistant")
        publishing.refresh()
        yield outward


async def _forget(exposures: Exposures, user: str, _heir: str) -> None:
    await exposures.forget_person(user)
