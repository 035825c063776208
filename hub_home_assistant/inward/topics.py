"""States as topics of a link: what watches or records topics follows the entities of Home Assistant, too.

A topic is ``<domain>/<object id>``, as ``light/kitchen``, on the link ``home_assistant``; its payload is
``{"state", "attributes", "changed"}``. Nothing can be published on them.
"""

import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime

from bus.link import Message
from contracts.access import covers
from contracts.errors import Forbidden
from contracts.listeners import Listeners
from contracts.wire import Json, rfc3339
from hub_home_assistant import limits
from hub_home_assistant.inward.entities import State

Handler = Callable[[Message], None]


def topic_of(entity: str) -> str:
    return entity.replace(".", "/", 1)


def number_or_text(state: State) -> Json:
    """Return a state as a number where it is one: Home Assistant writes all of them as text."""
    value, attributes = state.value, state.attributes
    if isinstance(value, str) and ("unit_of_measurement" in attributes or "state_class" in attributes):
        try:
            number = float(value)
        except ValueError:
            return value
        return number if math.isfinite(number) else value
    return value


class StateTopics:
    """A link whose topics are the states of entities; see `hub_live.topics.source.TopicLink`."""

    def __init__(self) -> None:
        self.connected = False
        self._payloads: dict[str, bytes] = {}
        self._handlers: list[tuple[str, Handler]] = []
        # After each connect, and when the connection is lost.
        self.on_connected: Listeners[Callable[[], Awaitable[None]]] = Listeners()
        self.on_disconnected: Listeners[Callable[[], None]] = Listeners()

    async def connect(self) -> None:
        """Note that the states are heard from now on."""
        if not self.connected:
            self.connected = True
            for callback in self.on_connected:
                await callback()

    def disconnect(self) -> None:
        """Note that they are not heard any more."""
        if self.connected:
            self.connected = False
            for callback in self.on_disconnected:
                callback()

    def put(self, changed: Iterable[str], states: Mapping[str, State], shown: Mapping[str, object]) -> None:
        """Publish what changed; what is gone, or not shown, is emptied.

        Args:
            changed: Ids of entities.
            shown: Those that are shown, by id.
        """
        for id_ in changed:
            topic, state = topic_of(id_), states.get(id_) if id_ in shown else None
            payload = _payload(state) if state is not None else b""
            if payload == self._payloads.get(topic, b""):
                continue
            if payload:
                self._payloads[topic] = payload
            else:
                del self._payloads[topic]
            for filter_, handle in tuple(self._handlers):
                if covers(filter_, topic):
                    handle(Message(topic, payload))

    @property
    def entities(self) -> list[str]:
        return [topic.replace("/", ".", 1) for topic in self._payloads]

    async def subscribe(self, topic_filter: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        """Hand messages to a handler, first those that are known."""
        follower = (topic_filter, handler)
        self._handlers.append(follower)
        for topic, payload in tuple(self._payloads.items()):
            if covers(topic_filter, topic):
                handler(Message(topic, payload, retain=True))

        async def stop() -> None:
            self._handlers.remove(follower)

        return stop

    async def publish(self, topic: str, payload: bytes, **_: object) -> None:
        """Refuse.

        Raises:
            Forbidden: Always.
        """
        raise Forbidden(
            "nothing can be published on {topic}: it is a state of Home Assistant",
            topic=topic,
            hint="devices.hub.HomeAssistantSkill changes it.",
        )


def _payload(state: State) -> bytes:
    changed = rfc3339(datetime.fromtimestamp(state.changed, UTC)) if state.changed is not None else None
    made = {"state": number_or_text(state), "attributes": dict(state.attributes), "changed": changed}
    payload = json.dumps(made, ensure_ascii=False).encode()
    if len(payload) > limits.MAX_TOPIC_PAYLOAD_BYTES:
        payload = json.dumps({**made, "attributes": {}}, ensure_ascii=False).encode()
    return payload[: limits.MAX_TOPIC_PAYLOAD_BYTES]
