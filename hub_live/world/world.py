"""The world as it is at this moment: things with their area, state and age, found by area, kind and name."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from agent_core.schemas.nearest import suggestion
from agent_core.search.words import singular_words
from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from contracts import topics
from contracts.answers.live import ShownWorld
from contracts.errors import InvalidMessage, NotFound
from contracts.listeners import Listeners
from contracts.text import shortened
from contracts.wire import Json
from hub_agent.calls.own_skills import HubSkill
from hub_live import limits
from hub_live.topics import Feed, Sample, field
from hub_live.world.entities import Entities
from hub_live.world.thing import OWN_KINDS, Thing, state_word
from hub_registry.devices.directory import Directory, Entry

ENTITY: Final = "entity"
"""Stands for every kind of entity: those of the home broker, and the states of the devices' skills."""
NODES: Final = "NodesSkill"
"""The skill of a spoke that publishes the state of each of its nodes, and beside it their health."""
_HEALTH: Final = ".health"


@dataclass(frozen=True)
class WorldView(ShownWorld):
    """Things that were asked for."""

    things: list[Thing]


class World:
    """All that is known of the home. Made by `open_world`."""

    def __init__(self, directory: Directory, feed: Feed) -> None:
        self._directory = directory
        self._feed = feed
        self._states: dict[str, dict[str, Sample]] = {}
        # With the topic whose state is new; with an empty text where there may be other things.
        self.on_change: Listeners[Callable[[str], None]] = Listeners()
        self.entities = Entities(feed, on_change=self.changed)

    def changed(self, topic: str = "") -> None:
        for listener in self.on_change:
            listener(topic)

    def hear_state(self, sample: Sample) -> None:
        """Store the state of a device's skill."""
        device = sample.topic.split("/")[1]
        states = self._states.setdefault(device, {}) if self._directory.get(device) is not None else {}
        is_known = sample.topic in states
        if not sample.payload:
            states.pop(sample.topic, None)
        elif is_known or len(states) < limits.MOST_DEVICE_STATES:
            states[sample.topic] = sample
        self.changed(sample.topic if is_known and sample.payload else "")

    def view(
        self,
        user: str,
        *,
        area: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        limit: int = 200,
    ) -> WorldView:
        """Return the things that fit all that is given, still without their states; see `seen`.

        Args:
            user: Id of the person for whom it is.
            area: Of the home, whatever its case.
            kind: Of the things; ``entity`` for all that have a state.
            name: Of a thing or its id; where none has it, words that its name contains.

        Raises:
            NotFound: If there is no such area, kind or name; with the nearest ones.
        """
        everything, entries = self.things(user), self._directory.seen_by(user).entries()
        things = everything
        if kind is not None:
            things = _of_kind(things, kind)
        if area is not None:
            things = _in_area(things, area, everything, entries)
        if name is not None:
            things = _named(things, name, everything, entries)
        things = sorted(things, key=_order)
        return WorldView(
            things=things[:limit],
            more=max(0, len(things) - limit),
            kinds=dict(Counter(thing.kind for thing in things).most_common()),
            areas=dict(Counter(thing.area for thing in things if thing.area is not None).most_common()),
            left_out=self.entities.left_out,
        )

    async def seen(self, view: WorldView) -> WorldView:
        """Return a view with the states as they are now; what a stranger sent may take long to decode."""
        things: list[Thing] = []
        for thing in view.things:
            things.append(self.current(thing))
            await asyncio.sleep(0)
        return replace(view, things=things)

    def things(self, user: str) -> list[Thing]:
        """List everything; what has a topic is still without its state, see `current`."""
        entries = [entry for entry in self._directory.seen_by(user).entries() if not entry.revoked]
        made = [*_devices(entries), *self.device_states(user), *self.entities.list()]
        return [*_areas(made), *made]

    def device_states(self, user: str) -> Iterator[Thing]:
        """Iterate over the states of the devices' skills, and of their nodes, without what they are."""
        directory = self._directory.seen_by(user)
        for device, topic in ((device, topic) for device, states in self._states.items() for topic in states):
            names, entry = topics.STATE.match(topic), directory.get(device)
            if names is None or entry is None or entry.revoked:
                continue
            skill = entry.skills.get(names["skill"])
            is_node = names["skill"] == NODES and not names["property"].endswith(_HEALTH)
            # Nodes end with their spoke, which cannot publish that any more.
            has_ended = names["skill"] == NODES and not entry.connected
            yield Thing(
                kind="node" if is_node else "state",
                id=f"devices.{entry.key}.{names['skill']}.{names['property']}",
                name=names["property"] if is_node else f"{names['skill']} {names['property']}",
                area=(skill.registration.area if skill is not None else None) or entry.device.area,
                device=entry.key,
                topic=topic if not has_ended else None,
                state=entry.unavailable if has_ended else None,
                link="bus",
                field="value",
            )

    def current(self, thing: Thing) -> Thing:
        """Return a thing with its state as it is now: reading the states of all would take long."""
        if thing.topic is None:
            return thing
        if thing.link == "bus":
            sample = self._states.get(thing.topic.split("/")[1], {}).get(thing.topic)
            with suppress(InvalidMessage):
                state = topics.STATE.parse(sample.payload if sample is not None else b"")
                return replace(
                    thing,
                    state=_bounded(state.value),
                    unit=state.unit,
                    age_s=_age(state.at.timestamp()),
                    device_class=state.device_class,
                )
        elif (
            (sample := self._feed.latest(thing.topic, thing.link or "home")) is not None
            and sample.payload
            and (len(sample.payload) <= limits.MOST_STATE or thing.link == "home_assistant")
        ):
            value = sample.value
            # What the broker had kept may be of any age; Home Assistant knows it.
            age_s = None if sample.retained else _age(sample.at)
            if thing.link == "home_assistant" and isinstance(changed := field(value, "changed"), str):
                age_s = _age(datetime.fromisoformat(changed).timestamp())
            state = thing.reading(value)
            if thing.on_off:  # a watcher compares what Home Assistant says as it is
                state = state_word(thing.kind, thing.device_class, state)
            return replace(thing, state=_bounded(state), age_s=age_s)
        return thing


class WorldSkill(HubSkill):
    """What there is in the home, and how it is now: devices, areas, lights, sensors, states, nodes."""

    labels = labels_of("WorldSkill", english={"WorldSkill": "Home", "get_world": "Look up"})

    def __init__(self, world: World) -> None:
        self._world = world

    @skill_method(read_only=True, idempotent=True, untrusted_output=True)
    async def get_world(
        self, area: str | None = None, kind: str | None = None, name: str | None = None, limit: int = 100
    ) -> WorldView:
        """Look up what there is in the home and how it is now: is the light on, how warm is it, since when.

        Args:
            area: Only what is there, for example Kitchen.
            kind: Only device, skill, node, area, state, or a kind of entity such as light or sensor;
                entity for everything that has a state.
            name: Only what is called so.
            limit: At most so many; "more" counts the others.

        Returns:
            "things"; topic, link and field of a thing are what a watcher or a capture follows.
        """
        if not 1 <= limit <= limits.MOST_THINGS:
            raise InvalidMessage("limit is 1 to {most}, not {limit}", most=limits.MOST_THINGS, limit=limit)
        user = self.asking.user.id
        return await self._world.seen(self._world.view(user, area=area, kind=kind, name=name, limit=limit))


@asynccontextmanager
async def open_world(directory: Directory, feed: Feed, *, home: bool) -> AsyncIterator[World]:
    """Keep up with the home for as long as the context is open.

    Args:
        home: Whether there is a home broker.
    """
    world = World(directory, feed)
    async with AsyncExitStack() as stack:
        stack.enter_context(feed.follow(topics.STATE.filter(), world.hear_state))
        stack.callback(directory.on_change(lambda _: world.changed()))
        stack.enter_context(feed.follow("#", world.entities.hear_state, link="home_assistant"))
        if home:
            await stack.enter_async_context(world.entities.heard())
        yield world


def _of_kind(things: list[Thing], kind: str) -> list[Thing]:
    wanted = kind.strip().casefold()
    if wanted == ENTITY:
        return [thing for thing in things if thing.is_entity]
    known = {*OWN_KINDS, ENTITY, *(thing.kind for thing in things)}
    if wanted not in known:
        raise NotFound("there is no kind {kind!r}", kind=kind[:100], hint=suggestion(kind, known))
    return [thing for thing in things if thing.kind == wanted]


def _in_area(
    things: list[Thing], area: str, everything: list[Thing], entries: Iterable[Entry]
) -> list[Thing]:
    wanted = area.strip().casefold()
    known = {thing.area.casefold(): thing.area for thing in everything if thing.area}
    on_floor = {
        entry.key
        for entry in entries
        if entry.device.floor is not None and entry.device.floor.casefold() == wanted
    }
    if wanted not in known and not on_floor:
        hint = suggestion(area, known.values()) or "'strawberry devices set DEVICE --area AREA' sets one."
        raise NotFound("there is no area {area!r}", area=area[:100], hint=hint)
    return [thing for thing in things if (thing.area or "").casefold() == wanted or thing.device in on_floor]


def _named(things: list[Thing], name: str, everything: list[Thing], entries: Iterable[Entry]) -> list[Thing]:
    wanted, words = name.strip().casefold(), singular_words(name)
    devices = {
        entry.key for entry in entries if wanted in {entry.key, *(each.casefold() for each in entry.names)}
    }
    found = [
        thing
        for thing in things
        if wanted in (thing.name.casefold(), thing.id.casefold())
        or (thing.kind == "device" and thing.device in devices)
    ] or [thing for thing in things if words and words <= thing.words | thing.kind_words]
    if not found:
        among = " among them" if len(things) < len(everything) else ""
        raise NotFound(
            "there is nothing named {name!r}{among}",
            name=name[:100],
            among=among,
            hint=suggestion(name, {thing.name for thing in things or everything}),
        )
    return found


def _devices(entries: Iterable[Entry]) -> Iterator[Thing]:
    for entry in entries:
        seen = entry.last_heartbeat
        yield Thing(
            kind="device",
            id=f"devices.{entry.key}",
            name=entry.display_name,
            area=entry.device.area,
            device=entry.key,
            state="online" if entry.connected else entry.unavailable,
            age_s=None if seen is None or entry.connected else _age(seen.timestamp()),
        )
        for skill in entry.skills.values():
            yield Thing(
                kind="skill",
                id=f"devices.{entry.key}.{skill.name}",
                name=skill.name,
                area=skill.registration.area or entry.device.area,
                device=entry.key,
            )


def _areas(things: Iterable[Thing]) -> Iterator[Thing]:
    spelt: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for thing in things:
        if thing.area:
            spelt.setdefault(thing.area.casefold(), thing.area)
            counts[thing.area.casefold()] += 1
    for folded, area in spelt.items():
        yield Thing(kind="area", id=area, name=area, area=area, state=counts[folded], unit="things")


def _bounded(state: Json) -> Json:
    match state:
        case str() if len(state) > limits.MOST_STATE:
            return shortened(state, limits.MOST_STATE)
        case list() | dict() if (size := len(json.dumps(state))) > limits.MOST_STATE:
            return {"bytes": size}
    return state


def _age(since: float) -> float:
    return round(max(0.0, time.time() - since), 1)


def _order(thing: Thing) -> tuple[int, str, str]:
    """Return the place of a thing in lists: skills last, for there are many and they have no state."""
    kind = OWN_KINDS.index(thing.kind) if thing.kind in OWN_KINDS else OWN_KINDS.index("state")
    return (kind, thing.area or "￿", thing.name)
