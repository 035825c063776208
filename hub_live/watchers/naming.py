"""Values of watchers by the ids that the world prints, and what a mistyped topic may have meant."""

from collections.abc import Iterator, Mapping

from agent_core.search.targets import AnyDirectory
from contracts import topics
from contracts.phrases import Phrase
from contracts.validation import did_you_mean
from contracts.wire import Json
from hub_live.topics import Feed
from hub_live.topics.values import visible_to
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.definition import WatchedValue, WatcherRequest, sources_of
from hub_live.watchers.tables import WatcherRow
from hub_live.world import World
from hub_registry.devices.directory import Directory


def resolved(request: WatcherRequest, devices: AnyDirectory, owner: str) -> WatcherRequest:
    """Return a request in which a state is named by its topic, not as ``devices.nas.SystemSkill.disk``.

    A method that is asked gets the topic of its answers.

    Raises:
        CallError: If there is no such device, with the nearest name.
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
    return request.model_copy(update={"topics": sources})


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
