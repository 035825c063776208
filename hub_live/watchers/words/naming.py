"""Values of watchers by the ids that the world prints, and what a mistyped topic may have meant."""

from collections.abc import Iterator, Mapping
from typing import Final

from agent_core.search.targets import AnyDirectory
from contracts import topics
from contracts.errors import InvalidMessage, NotFound
from contracts.phrases import Phrase
from contracts.validation import did_you_mean
from contracts.wire import Json
from hub_live.topics import Feed
from hub_live.topics.values import visible_to
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.definition import WatchedValue, WatcherRequest, sources_of
from hub_live.watchers.tables import WatcherRow
from hub_live.watchers.words.reading import source_of
from hub_live.world import World
from hub_live.world.world import NODES
from hub_registry.devices.directory import Directory

_NAMES_SHOWN: Final = 8


def resolved(request: WatcherRequest, devices: AnyDirectory, owner: str, world: World) -> WatcherRequest:
    """Return a request in which a state is named by its topic.

    Not as ``devices.nas.SystemSkill.disk``, and not by its name, ``SystemSkill disk``. A method that is asked
    gets the topic of its answers.

    Raises:
        CallError: If there is no such device, with the nearest name.
        NotFound: If nothing has such a name, with the nearest one.
        InvalidMessage: If several values have it.
    """
    sources = dict(request.topics)
    for name, source in request.topics.items():
        if source.ask is not None:
            topic = topics.WATCHER_VALUE.build(user=owner, watcher=request.name, name=name)
            sources[name] = source.model_copy(update={"topic": topic, "link": "bus"})
            continue
        first, *parts = source.topic.split(".", 3)
        if source.link == "bus" and first == "devices" and len(parts) == 3:
            device = devices.by_key(parts[0]).id
            topic = topics.STATE.build(device=device, skill=parts[1], property=parts[2])
            sources[name] = source.model_copy(update={"topic": topic})
        elif source.link == "bus" and "/" not in source.topic:
            sources[name] = _named(source, world, owner)
    return request.model_copy(update={"topics": sources})


def _named(source: WatchedValue, world: World, owner: str) -> WatchedValue:
    """Return the value that a name means."""
    values = [each for each in world.things(owner) if each.topic]
    written = source.topic.casefold()
    meant = [each for each in values if written in (each.name.casefold(), each.id.casefold())]
    if not meant:
        near = did_you_mean(source.topic, [text for each in values for text in (each.name, each.id)])
        hint = "'strawberry world' shows the names, and with --json the ids and topics."
        raise NotFound("there is no value {name!r}{near}", name=source.topic, near=near, hint=hint)
    if len(meant) > 1:
        ids = ", ".join(each.id for each in meant[:_NAMES_SHOWN])
        raise InvalidMessage("{name} is the name of several values: {ids}", name=source.topic, ids=ids)
    found = source_of(meant[0])
    return found if source.value is None else found.model_copy(update={"value": source.value})


def check_published(source: WatchedValue, devices: AnyDirectory, owner: str, world: World) -> None:
    """Check that a state is not a misspelt one of those that its device publishes.

    Raises:
        NotFound: If it is, with the nearest one.
    """
    place = topics.STATE.place(source.topic) if source.link == "bus" else None
    entry = devices.get(place["device"]) if place is not None else None
    if place is None or entry is None or place["skill"] == NODES:
        return
    start = f"devices.{entry.key}."
    known = [each.id.removeprefix(start) for each in world.device_states(owner) if each.id.startswith(start)]
    written = f"{place['skill']}.{place['property']}"
    nearly = [each for each in known if _is_near(written.replace(".", "/"), each.replace(".", "/"))]
    if written not in known and (near := did_you_mean(written, nearly)):
        raise NotFound(
            "{device} publishes no {name}{near}", device=entry.display_name, name=written, near=near
        )


async def mistaken(
    row: WatcherRow, seen: Mapping[str, Seen], feed: Feed, directory: Directory, world: World
) -> str:
    """Return which value is not there while one of a similar name is; empty where none is."""
    for name, source in sources_of(row).items():
        if source.ask is not None or feed.refusal(source.topic, source.link):
            continue
        written = _written(source, source.topic)
        if seen[name].age_s is None:
            sees = visible_to(directory, row.owner, source.link)
            known = {each.topic for each in await feed.fetch(_beside(source), source.link)}
            known |= {each.topic for each in world.entities.list() if each.topic and each.link == source.link}
            names = [_written(source, each) for each in known if sees(each) and _is_near(source.topic, each)]
            if near := did_you_mean(written, names):
                return Phrase("there is no value of {name} yet{near}", name=written, near=near)
            if same := [
                each
                for each in known
                if sees(each) and each.rpartition("/")[0] == source.topic.rpartition("/")[0]
            ]:
                names = sorted(_written(source, each) for each in same)
                others = ", ".join(names[:_NAMES_SHOWN])
                return Phrase(
                    "there is no value of {name} yet; there are {others}", name=written, others=others
                )
        elif seen[name].value is None and (last := feed.latest(source.topic, source.link)) is not None:
            near = did_you_mean(source.value or "", _paths(last.value))
            if near:
                return Phrase("{name} has no {value!r}{near}", name=written, value=source.value, near=near)
    return ""


def _beside(source: WatchedValue) -> str:
    """Return the filter of the topics that may have been meant."""
    place = topics.STATE.place(source.topic) if source.link == "bus" else None
    if place is not None:
        return topics.STATE.filter(device=place["device"])
    return "#" if source.link == "home_assistant" else f"{source.topic.partition('/')[0]}/#"


def _is_near(topic: str, other: str) -> bool:
    """Return whether two topics differ in one level, and little there."""
    levels, others = topic.split("/"), other.split("/")
    wrong = [pair for pair in zip(levels, others, strict=False) if pair[0] != pair[1]]
    return len(levels) == len(others) and len(wrong) == 1 and bool(did_you_mean(wrong[0][0], wrong[0][1:]))


def _written(source: WatchedValue, topic: str) -> str:
    return topic.replace("/", ".", 1) if source.link == "home_assistant" else topic


def _paths(value: Json, depth: int = 3) -> Iterator[str]:
    for name, each in value.items() if isinstance(value, dict) and depth else ():
        yield name
        yield from (f"{name}.{path}" for path in _paths(each, depth - 1))
