"""The skill with which the assistant reads topics, and publishes on them."""

from typing import Literal

from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from agent_core.times import parse_since
from chat.operations import LOOK
from contracts.answers.live import LinkName
from contracts.topics import check_topic
from contracts.wire import Json
from hub_agent.calls.own_skills import HubSkill
from hub_live.topics.values import BusValues, described


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
