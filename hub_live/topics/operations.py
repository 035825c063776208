"""Topics: ``/api/bus``, their page and their skill; what is published is a call of that."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Literal

from pydantic import Field

from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from agent_core.times import Since, parse_since
from chat.http.streams import HEARTBEAT_S
from chat.operations import LOOK, Resource
from chat.tasks import happens
from contracts.answers.live import LinkName, LostValues, NewGap, ShownSample, ShownSamples
from contracts.topics import EVERYTHING, check_topic
from contracts.wire import Json, Strict
from hub_agent.calls.own_skills import HubSkill
from hub_live import limits
from hub_live.topics.samples import Gap, Sample
from hub_live.topics.tree import MOST_TOPICS, TreeEvent, watching
from hub_live.topics.values import BusValues, check_visible, described, described_all, described_gap
from hub_registry.access.bearer import Bearer

Topic = Annotated[str, Field(min_length=1, max_length=65_535)]


class PublishBody(Strict):
    """A message to publish; see `BusSkill.publish`.

    Attributes:
        confirmation: As for ``/api/skills/call``.
    """

    topic: Topic
    payload: Json
    link: LinkName
    retain: bool = False
    qos: Literal[0, 1] = 0
    confirmation: Annotated[str | None, Field(max_length=64)] = None


bus: Resource[BusValues, Bearer] = Resource("bus", "/api/bus")


@bus.get(LOOK, "/latest")
async def latest(values: BusValues, asking: Bearer, topic: Topic, link: LinkName = "bus") -> ShownSamples:
    """Return the last value of a topic, or of each topic that a filter matches.

    A gap without an end means that the values may be out of date. `recorded` marks what an earlier run of the
    hub has heard. With `follow=true` it is a stream of server-sent events: these values, then each further
    one, `{"gap"}` for a time in which nothing was heard, `{"lost"}` for values that came faster than they
    were read.
    """
    samples = await values.latest(asking.user, topic, link)
    # Of the latest values only counts whether they may be out of date.
    gaps = [gap for gap in values.gaps(link, since=None) if gap.until is None]
    return ShownSamples(samples=await described_all(samples), gaps=gaps)


@bus.stream(LOOK, "/latest", switch="follow")
async def follow(
    values: BusValues, asking: Bearer, topic: Topic, link: LinkName = "bus"
) -> AsyncIterator[ShownSample | NewGap | LostValues | None]:
    """Follow the values of a topic, or of all that a filter matches."""
    # What may not be read is refused before the stream begins.
    await values.latest(asking.user, topic, link)
    return _values(values, asking, topic, link)


@bus.get(LOOK, "/history")
async def history(
    values: BusValues,
    asking: Bearer,
    topic: Topic,
    link: LinkName = "bus",
    since: Annotated[Since, Field(validate_default=True)] = "1h",  # type: ignore[assignment]
    limit: Annotated[int, Field(ge=1, le=limits.MOST_SAMPLES)] = 1_000,
) -> ShownSamples:
    """Return the recent values of a topic, oldest first.

    Args:
        since: How far back, as `2h` or a time.
        limit: At most so many, the newest.
    """
    return await values.history(asking.user, topic, link, since=since, limit=limit)


@bus.stream(LOOK, "/tree")
async def tree(
    values: BusValues,
    asking: Bearer,
    filter: Topic = EVERYTHING,  # noqa: A002 - the field's word
    words: Annotated[str, Field(max_length=200)] = "",
    link: LinkName = "bus",
) -> AsyncIterator[TreeEvent | None]:
    """Follow the topics of a filter, with their latest values.

    First come all that you may see, then those that changed, at most twice a second each and 400 a second
    together; a client that reads slowly gets the newest message of each topic alone. At most 5,000 topics:
    more are said with `{"full": 5000}`. `value` is cut to 2,000 bytes (`cut`); `retained` is whether the
    broker keeps the last message, as far as is known. `{"gap"}` says that the broker is away, and
    `{"refused"}` why the home broker does not let the hub see that.

    Args:
        words: Only topics in which all of these are.
    """
    values.feed.require(link)
    check_visible(asking.user, filter, link)
    return _growing(values, asking, filter, words, link)


def _size(item: Sample | Gap) -> int:
    return len(item.payload) if isinstance(item, Sample) else 0


async def _values(
    values: BusValues, asking: Bearer, topic: str, link: LinkName
) -> AsyncIterator[ShownSample | NewGap | LostValues | None]:
    waiting: asyncio.Queue[Sample | Gap] = asyncio.Queue(limits.STREAM_WAITING)
    lost = size = 0

    def put(item: Sample | Gap) -> None:
        nonlocal lost, size
        if waiting.full() or size + _size(item) > limits.STREAM_WAITING_BYTES:
            lost += 1
        else:
            size += _size(item)
            waiting.put_nowait(item)

    with ExitStack() as stack:
        sees = values.sees(asking.user, link)
        stack.enter_context(values.feed.follow(topic, put, link=link, sees=sees))
        stack.callback(values.feed.on_gap(lambda gap: put(gap) if gap.link == link else None))
        known = await values.latest(asking.user, topic, link)
        for sample in known:
            yield described(sample)
        while time.time() < asking.claims.exp:
            if lost and waiting.empty():
                # The client gets them in the order in which they would have come.
                count, lost = lost, 0
                yield LostValues(lost=count)
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    item = await waiting.get()
            except TimeoutError:
                yield None
                continue
            size -= _size(item)
            if isinstance(item, Gap):
                yield NewGap(gap=described_gap(item))
            elif not any(item is each for each in known):
                yield described(item)


async def _growing(
    values: BusValues, asking: Bearer, filter_: str, wanted: str, link: LinkName
) -> AsyncIterator[TreeEvent | None]:
    feed, may_see, words = values.feed, values.sees(asking.user, link), wanted.lower().split()

    def sees(topic: str) -> bool:
        return all(word in topic.lower() for word in words) and may_see(topic)

    with ExitStack() as stack:
        tree = stack.enter_context(watching(feed, filter_, link, sees=sees))
        gaps: list[Gap] = [gap for gap in feed.gaps(link) if gap.until is None]

        def note(gap: Gap) -> None:
            if gap.link == link:
                gaps[:] = [gap]
                tree.changed.set()

        stack.callback(feed.on_gap(note))
        await feed.settled(link)
        if (reason := feed.refusal(filter_, link)) is not None:
            yield TreeEvent(refused=reason)
            return
        was_full = False
        while time.time() < asking.claims.exp:
            for gap in gaps:
                yield TreeEvent(gap=described_gap(gap))
            gaps.clear()
            topics, were_known = tree.take()
            # An empty first one says that the stream is there.
            yield TreeEvent(topics=topics)
            if tree.is_full and not was_full:
                was_full = True
                yield TreeEvent(full=MOST_TOPICS)
            # What a client sees for the first time comes as fast as it reads.
            await asyncio.sleep(limits.TREE_TICK_S if were_known else 0)
            while not await happens(tree.changed, within_s=HEARTBEAT_S):
                yield None


class BusSkill(HubSkill):
    """MQTT values: the last value of a topic, its recent history, and publishing.

    link="bus" is Strawberry's own bus, with topics such as devices/nas/state/SystemSkill/disk; link="home" is
    the MQTT broker of the home: zigbee2mqtt, sensors; link="home_assistant" has the states of its entities:
    light/kitchen.
    """

    labels = labels_of(
        "BusSkill", english={"BusSkill": "Values and messages", "latest": "Last value", "qos": "Delivery"}
    )

    def __init__(self, values: BusValues) -> None:
        self._values = values

    @skill_method(read_only=True, untrusted_output=True)
    async def latest(self, topic: str, link: LinkName = "bus") -> dict[str, Json] | None:
        """Return the last message of a topic with value, at (when it arrived) and retained; None if unknown.

        Args:
            topic: The exact topic; use query for a filter with + or #.
            link: bus or home.
        """
        check_topic(topic)
        found = await self._values.latest(self.asking.bearer(LOOK).user, topic, link)
        return described(found[0]).model_dump(mode="json") if found else None

    @skill_method(read_only=True, untrusted_output=True)
    async def history(
        self, topic: str, since: str = "10m", link: LinkName = "bus", limit: int = 100
    ) -> dict[str, Json]:
        """Return recent messages of a topic as {"samples": [...], "gaps": [...]}, oldest first.

        A topic is remembered from the first time it is watched, recorded or asked for. In a gap nothing was
        heard.

        Args:
            topic: The exact topic.
            since: How far back, as 10m, 2h or 1d, or a time in RFC 3339.
            link: bus or home.
            limit: At most so many samples, the newest.
        """
        user, start = self.asking.bearer(LOOK).user, parse_since(since)
        limit = max(1, min(limit, 1_000))
        found = await self._values.history(user, topic, link, since=start, limit=limit)
        return found.model_dump(mode="json")

    @skill_method(read_only=True, untrusted_output=True)
    async def query(self, filter: str, link: LinkName = "bus") -> list[dict[str, Json]]:  # noqa: A002
        """Return the last message of each topic that a filter matches, for example devices/+/state/#.

        devices/+/calls/SystemSkill/disk_usage calls this method on each device that has it, if it only reads
        and needs no arguments, and returns path and value, or error.

        Args:
            filter: A topic filter: + stands for one level, # at the end for all further ones.
            link: bus or home.
        """
        self.asking.bearer(LOOK)
        return await self._values.query(self.asking, filter, link)

    @skill_method()
    async def publish(
        self, topic: str, payload: Json, link: LinkName = "home", retain: bool = False, qos: Literal[0, 1] = 0
    ) -> str:
        """Publish a message, for example on zigbee2mqtt/lamp/set of the home broker.

        On the bus only users/<your id>/events/<name> can be published; call skills to act on devices.

        Args:
            topic: The exact topic.
            payload: Text is sent as it is, anything else as JSON.
            link: home or bus.
            retain: Whether the broker keeps it for later subscribers.
            qos: 1 waits until the broker has it.
        """
        await self._values.publish(self.asking, topic, payload, link=link, retain=retain, qos=qos)
        return f"published on {topic}"
