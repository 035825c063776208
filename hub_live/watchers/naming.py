"""Values of watchers by the ids that the world prints, and what a mistyped topic may have meant."""

from collections.abc import Mapping

from agent_core.search.targets import AnyDirectory
from contracts import topics
from contracts.phrases import Phrase
from contracts.validation import did_you_mean
from hub_live.topics import Feed
from hub_live.topics.values import visible_to
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.definition import WatcherRequest, sources_of
from hub_live.watchers.tables import WatcherRow
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


async def mistaken(row: WatcherRow, seen: Mapping[str, Seen], feed: Feed, directory: Directory) -> str:
    """Return which state has no value while its device has one of a similar name; empty where none is."""
    for name, source in sources_of(row).items():
        place = topics.STATE.place(source.topic) if source.link == "bus" else None
        if place is None or seen[name].age_s is not None:
            continue
        sees = visible_to(directory, row.owner, source.link)
        known = await feed.fetch(topics.STATE.filter(device=place["device"]), source.link)
        if near := did_you_mean(source.topic, [each.topic for each in known if sees(each.topic)]):
            return Phrase("there is no value of {name} yet{near}", name=source.topic, near=near)
    return ""
