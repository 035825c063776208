"""Home Assistant inward, opened: connected, and shown as skill, sentences, world and topics."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chat.tasks import supervise
from contracts.listeners import Listeners
from contracts.phrases import Phrase
from hub_home_assistant.inward.client import HomeAssistant
from hub_home_assistant.inward.control import Rules
from hub_home_assistant.inward.entities import Entity, House
from hub_home_assistant.inward.sentences import HomeSentences
from hub_home_assistant.inward.skill import HomeAssistantSkill
from hub_home_assistant.inward.topics import topic_of
from hub_home_assistant.inward.zigbee import Zigbee
from hub_live.topics import Feed
from hub_live.world import Thing, World
from hub_registry.registry import Registry


class Inward:
    """What the hub has of Home Assistant, or of Zigbee2MQTT.

    Attributes:
        client: Of Home Assistant; without settings where there is none.
        skill: Offered while there is either.
    """

    def __init__(
        self,
        client: HomeAssistant,
        *,
        world: World,
        feed: Feed,
        registry: Registry,
    ) -> None:
        self.client = client
        client.on_entities = self._show
        self.skill = HomeAssistantSkill(self._house, rules=self._rules, area_of=self._area_of)
        self._sentences = HomeSentences(self._house)
        self._zigbee = Zigbee(world, feed)
        self._feed = feed
        self._world = world
        self._registry = registry
        # When the skill is offered, or is no more.
        self.on_offered: Listeners[Callable[[], None]] = Listeners()
        self._update_offer()

    @contextmanager
    def running(self, tasks: asyncio.TaskGroup) -> Iterator[None]:
        """Keep up with Home Assistant, or with Zigbee2MQTT, for as long as the context is open."""
        stop_hearing = self._world.on_change(self._hear_world)
        # Not ended here: what happens last is still sent by it.
        supervise(tasks, self.client.run, name="Home Assistant")
        try:
            yield
        finally:
            stop_hearing()

    def _hear_world(self, topic: str) -> None:
        if not topic and self._zigbee.update() and self.client.settings is None:
            self._show()

    def _house(self) -> House:
        return self.client if self.client.settings is not None else self._zigbee

    def _rules(self) -> Rules:
        settings = self.client.settings
        return Rules(settings.confirm, settings.unasked) if settings is not None else Rules()

    def _area_of(self, device: str | None) -> str | None:
        entry = self._registry.directory.get(device) if device is not None else None
        return entry.device.area if entry is not None else None

    def _show(self) -> None:
        """Show the entities that there are now."""
        self._registry.search.set_home(self._sentences)
        self._feed.withhold("home_assistant", {topic_of(id_): _withheld(id_) for id_ in self.client.withheld})
        imported = None
        if self.client.settings is not None:
            imported = tuple(map(_thing, self.client.entities.by_id.values()))
        self._update_offer()
        self._world.entities.put(imported)

    def _update_offer(self) -> None:
        is_there = self.client.settings is not None or len(self._zigbee.entities) > 0
        if is_there != self.skill.is_offered:
            self.skill.is_offered = is_there
            for listener in self.on_offered:
                listener()


def _withheld(entity: str) -> str:
    return Phrase(
        "{id} is not exposed to Assist in Home Assistant; the page Home Assistant can allow everything",
        id=entity,
    )


def _thing(entity: Entity) -> Thing:
    return Thing(
        kind=entity.domain,
        id=entity.id,
        name=entity.name,
        area=entity.area,
        device=entity.device,
        unit=entity.unit,
        device_class=entity.device_class,
        topic=topic_of(entity.id),
        link="home_assistant",
        field="state",
    )
