"""Values of topics as one person may read and publish them.

On the bus a person reads what `contracts.access` shows to a reader: presence, skills, states and events of
the devices that are the person's own or shared, and watchers, captures and events of this person. Not even an
admin reads calls, results or conversations. All topics of the bus belong to the hub or to a
device, so a person publishes only on ``users/{user}/events/{kind}``, with kinds that the hub does not use
itself.

The home broker is not ours, and has one login for the whole home: people read all that this login reads but
what Strawberry itself publishes, and what is published there outside of ``[home_broker] publish`` needs a
person's confirmation.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from agent_core.search.catalogue import SkillCall
from agent_core.search.directory import Found
from agent_core.search.targets import on_device
from agent_core.times import utc
from contracts import topics
from contracts.access import Principal, allowed, covers, overlaps, rights
from contracts.answers.live import LinkName, ShownGap, ShownSample, ShownSamples
from contracts.chat.messages import AGENTS, HOME_ASSISTANT
from contracts.devices.presence import UserEvent
from contracts.errors import CallError, Forbidden, InvalidMessage, InvalidTopic
from contracts.phrases import Phrase
from contracts.wire import Json
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.calls.own_skills import Asking
from hub_live import limits
from hub_live.events.kinds import KINDS
from hub_live.topics.feed import Feed
from hub_live.topics.samples import Gap, Sample
from hub_registry.access.accounts import User
from hub_registry.devices.directory import Directory, Entry

_DEVICES: Final = topics.STATE.levels[0]


def visible_to(directory: Directory, user: str, link: LinkName) -> Callable[[str], bool]:
    """Return the function that says whether a person may see a topic, at the time when it is asked.

    Args:
        user: Id of the person.
    """
    if link != "bus":
        return _is_public
    may_receive = partial(allowed, rights(Principal("user", user, owner=user)), "receive")

    def sees(topic: str) -> bool:
        branch, _, rest = topic.partition("/")
        is_theirs = branch != _DEVICES or rest.partition("/")[0] in directory.seen_by(user)
        return is_theirs and may_receive(topic)

    return sees


def check_visible(user: User, filter_: str, link: LinkName) -> None:
    """Check that a person may see something of what a filter matches.

    Raises:
        InvalidTopic: If that is not a topic filter.
        Forbidden: If all of it is hidden from this person.
    """
    topics.check_filter(filter_)
    if link != "bus":
        return
    given = rights(Principal("user", user.id, owner=user.id))
    if not any(right.action == "receive" and overlaps(right.filter, filter_) for right in given):
        hint = (
            "On the bus people see devices/+/status, skills, state and events, hub/+/status, and below "
            "users/ their own events, watchers and captures."
        )
        raise Forbidden(
            "nothing on {filter} is shown to {user}",
            filter=filter_,
            user=user.display_name,
            hint=_of_home(filter_) or hint,
        )


@dataclass(frozen=True)
class BusValues:
    """Reads and publishes on behalf of people.

    Attributes:
        patterns: Topic filters of the home broker on which may be published without a confirmation.
        directory: The devices that queries ask.
        manager: Calls them.
    """

    feed: Feed
    _: KW_ONLY
    patterns: Sequence[str]
    directory: Directory
    manager: DeviceManager

    def sees(self, user: User, link: LinkName) -> Callable[[str], bool]:
        return visible_to(self.directory, user.id, link)

    async def latest(self, user: User, filter_: str, link: LinkName) -> list[Sample]:
        """Return the last sample of each topic that a filter matches.

        Raises:
            InvalidMessage: If that is not a topic filter, or it matches too many topics.
            Forbidden: If this person may see nothing of it, or the broker refuses it.
            NotFound: If there is no home broker.
        """
        check_visible(user, filter_, link)
        sees = self.sees(user, link)
        found = [sample for sample in await self.feed.fetch(filter_, link) if sees(sample.topic)]
        if (reason := self.feed.refusal(filter_, link)) is not None:
            hint = "" if link == "home_assistant" else "Check the rights of the hub's login on that broker."
            raise Forbidden(reason, hint=hint)
        if (
            len(found) > limits.MOST_ANSWER_TOPICS
            or sum(len(each.payload) for each in found) > limits.MOST_ANSWER_BYTES
        ):
            raise InvalidMessage(
                "{filter} matches {found} topics, which is too much to show",
                filter=filter_,
                found=len(found),
                most=limits.MOST_ANSWER_TOPICS,
                hint="Name more of the topic: at most {most} topics with 2 MiB are shown.",
            )
        return found

    async def history(
        self, user: User, topic: str, link: LinkName, *, since: float, limit: int
    ) -> ShownSamples:
        """Return the newest samples of a topic, oldest first, and the gaps; kept from the first question on.

        At most `limits.MOST_ANSWER_BYTES` of them.

        Raises:
            InvalidTopic: If that is not a topic.
            Forbidden: If this person may not see it.
            NotFound: If there is no home broker.
        """
        topics.check_topic(topic)
        await self.latest(user, topic, link)
        newest: list[Sample] = []
        room = limits.MOST_ANSWER_BYTES
        heard = self.feed.history(topic, link, since=since) if self.sees(user, link)(topic) else ()
        for sample in reversed(heard[-limit:]):
            room -= len(sample.payload)
            if room < 0 and newest:
                break
            newest.append(sample)
        gaps = self.gaps(link, since=since)
        return ShownSamples(samples=await described_all(newest[::-1]), gaps=gaps)

    async def query(self, asking: Asking, filter_: str, link: LinkName) -> list[dict[str, Json]]:
        """Return the last value of each topic that a filter matches, or what devices answer.

        MQTT has no queries: a state is what a device last published, and is retained. A device that answers
        does so by a method. So a filter of call topics, ``devices/+/calls/Skill/method``, calls this method
        of each connected device that it matches, if it is read-only and needs no arguments.
        """
        place = topics.CALL.place(filter_) if link == "bus" else None
        if place is None:
            latest = await described_all(await self.latest(asking.user, filter_, link))
            return [sample.model_dump(mode="json") for sample in latest]
        topics.check_filter(filter_)
        if asking.actor.agent not in (None, HOME_ASSISTANT, *AGENTS):
            raise Forbidden(
                "an agent asks devices only by the calls that its profile allows",
                hint="Its profile lists what it may call under skills: allow.",
            )
        found = [
            Found(entry, skill, method)
            for entry in self.directory.seen_by(asking.user.id).entries()
            for skill in entry.skills.values()
            for method in skill.methods.values()
            if entry.connected
            and covers(filter_, topics.CALL.build(device=entry.id, skill=skill.name, method=method.name))
            and method.flags.read_only
            and not method.parameters.get("required")
        ]
        return await asyncio.gather(*(self._ask(asking, each) for each in found[: limits.MOST_DEVICES_ASKED]))

    async def _ask(self, asking: Asking, found: Found[Entry]) -> dict[str, Json]:
        target = on_device(found)
        answer: dict[str, Json] = {"path": target.path}
        try:
            call = SkillCall(target, {}, untrusted=asking.untrusted)
            value = await self.manager.call(asking.actor, call, origin=asking.origin)
        except CallError as error:
            return {**answer, "error": error.message}
        return {**answer, "value": value}

    async def publish(
        self,
        asking: Asking,
        topic: str,
        payload: Json,
        *,
        link: LinkName,
        retain: bool,
        qos: int,
    ) -> None:
        """Publish a message.

        Raises:
            InvalidTopic: If that is not a topic to publish on.
            Forbidden: If no client may publish on it.
            CallError: ``needs_confirmation``.
            Disconnected: While there is no connection.
            NotFound: If there is no home broker.
        """
        topics.check_topic(topic)
        if link == "bus":
            await self._publish_event(asking.user, topic, payload, retain=retain)
            return
        self.feed.require(link)
        if topic.startswith("$") or covers(topics.HOME_OWN, topic):
            raise Forbidden(
                "{topic} cannot be published on",
                topic=topic,
                hint="It belongs to the broker, or to Strawberry itself.",
            )
        if link != "home":
            pass  # The feed refuses it.
        elif not any(covers(pattern, topic) for pattern in self.patterns):
            asking.need_confirmation(f"{topic} is not among the topics of [home_broker] publish")
        elif asking.untrusted:
            asking.need_confirmation(f"{topic} would be published on after text of strangers was read")
        await self.feed.publish(topic, payload, link=link, retain=retain, qos=qos)

    async def _publish_event(self, user: User, topic: str, payload: Json, *, retain: bool) -> None:
        place = topics.USER_EVENT.match(topic)
        if place is None or place["user"] != user.id or place["kind"] in KINDS:
            raise Forbidden(
                "{topic} cannot be published on: the topics of the bus belong to the hub and to devices",
                topic=topic,
                hint=_of_home(topic)
                or Phrase(
                    "Call a skill to act on a device. Your own programs can follow "
                    "users/{id}/events/<name>, with a name of your own.",
                    id=user.id,
                ),
            )
        if retain:
            raise InvalidTopic("events are not retained", hint="Publish it without retain.")
        event = UserEvent(at=datetime.now(UTC), subject=place["kind"], data=payload)
        await self.feed.publish(topic, event.model_dump_json().encode(), qos=topics.USER_EVENT.qos)

    def gaps(self, link: LinkName, *, since: float | None) -> list[ShownGap]:
        return [described_gap(gap) for gap in self.feed.gaps(link, since=since)]


async def described_all(samples: Sequence[Sample]) -> list[ShownSample]:
    """Return samples as people and models are shown them.

    A payload may take a tenth of a second to decode, so that others have their turn in between.
    """
    made: list[ShownSample] = []
    for sample in samples:
        made.append(described(sample))
        if len(sample.payload) > limits.LARGE_PAYLOAD:
            await asyncio.sleep(0)
    return made


def described(sample: Sample) -> ShownSample:
    """Return a sample as people and models are shown it."""
    return ShownSample(
        topic=sample.topic,
        link=sample.link,
        at=utc(sample.at),
        retained=sample.retained,
        value=sample.value,
        recorded=sample.recorded or None,
    )


def described_gap(gap: Gap) -> ShownGap:
    return ShownGap(since=utc(gap.since), until=None if gap.until is None else utc(gap.until))


def _of_home(filter_: str) -> str:
    """Return the hint for a topic that the bus does not have; empty for one that it may have."""
    if any(overlaps(branch, filter_) for branch in topics.BRANCHES):
        return ""
    return "The bus has no such topic; those of the home broker are on the link home."


def _is_public(topic: str) -> bool:
    """Return whether a topic of the home broker is neither the broker's own nor ours.

    Ours are states and chats that are not for everybody here, and all of the bus where that has the same
    broker: who may see one of them reads it on the link of the bus.
    """
    announced = topic.startswith("homeassistant/") and topics.HOME_ANNOUNCED in topic
    return not (topic.startswith("$") or covers(topics.HOME_OWN, topic) or announced)
