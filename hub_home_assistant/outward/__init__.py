"""This home in Home Assistant, over MQTT discovery on the home's own broker.

``exposures``   what the owner shows; nothing by itself
``rules``       methods and states of a skill as entities
``configs``     entities as discovery describes them
``publishing``  what is published, kept equal to that, and taken back
``commands``    what Home Assistant asks for, as calls
``hub``         chat, watchers and messages
``operations``  the routes
"""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from chat.tasks import open_tasks, supervise
from contracts import topics
from contracts.answers.system import Discovery
from contracts.errors import Forbidden
from hub_agent.bus.home_link import HomeLink
from hub_agent.parts import HubParts
from hub_home_assistant.outward.commands import Commands
from hub_home_assistant.outward.configs import Place
from hub_home_assistant.outward.exposures import Exposures
from hub_home_assistant.outward.hub import HubEntities
from hub_home_assistant.outward.publishing import Publishing
from hub_live.events import Events
from hub_live.topics import Feed

__all__ = ["Outward", "open_outward"]

_log = logging.getLogger(__name__)


@dataclass
class Outward:
    """What of this home is in Home Assistant.

    Attributes:
        publishing: None where no broker is configured, and nothing is published.
        parts: None likewise.
    """

    exposures: Exposures
    discovery: Discovery
    publishing: Publishing | None = None
    parts: HubEntities | None = None


@asynccontextmanager
async def open_outward(
    parts: HubParts, home: HomeLink | None, *, feed: Feed, events: Events
) -> AsyncIterator[Outward]:
    """Publish what is exposed, and carry out what is asked for, for as long as the context is open."""
    settings, registry, service = parts.settings, parts.registry, parts.bus.service
    exposures = Exposures(registry.store)
    await exposures.load()
    outward = Outward(exposures, settings.discovery)
    async with AsyncExitStack() as stack:
        stack.callback(registry.people.on_removed(lambda user, _heir: exposures.forget_person(user)))
        if home is None:
            yield outward
            return
        tasks = await stack.enter_async_context(open_tasks(contained=True))
        place = partial(Place.of, registry.hub_id, settings.instance)
        publishing = Publishing(registry.directory, exposures, home, settings.discovery, place, tasks)
        entities = HubEntities(registry, parts.agent.assistant.ask, events, publishing)
        publishing.extend, publishing.url = entities.extend, registry.settings.url
        publishing.language = settings.household.language
        commands = Commands(registry, parts.manager, publishing)
        outward.publishing, outward.parts = publishing, entities
        for sample in feed.known(topics.STATE.filter()):
            publishing.hear_state(sample)
        for sample in feed.known(topics.WATCHER.filter()):
            entities.hear_watcher(sample)
        for followed, hear in (
            (topics.STATE.filter(), publishing.hear_state),
            (topics.EVENT.filter(), publishing.hear_event),
            (topics.WATCHER.filter(), entities.hear_watcher),
            (topics.USER_EVENT.filter(kind="watcher"), entities.hear_decision),
        ):
            stack.enter_context(feed.follow(followed, hear))
        stack.callback(registry.directory.on_change(lambda _: publishing.refresh()))
        stack.callback(service.on_presence(lambda change: publishing.refresh(change.device)))
        stack.callback(exposures.on_change(publishing.refresh))
        # Its own retained messages may be gone: a broker without persistence was restarted.
        stack.callback(home.link.on_connected(publishing.resend))
        for wanted, arrived in (
            (topics.home_topic(settings.instance, "+", "set", "#"), commands.arrived),
            (topics.HOME_ASSISTANT_STATUS, publishing.hear_birth),
        ):
            try:
                stack.push_async_callback(await home.link.subscribe(wanted, arrived))
            except Forbidden as error:
                _log.warning("Home Assistant is not heard: the home broker refuses %s: %s", wanted, error)
        supervise(tasks, publishing.run, name="home assistant")
        publishing.refresh()
        yield outward
