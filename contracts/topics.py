"""Every topic of the bus: who may name it, what it carries, how it is sent.

No topic string is written anywhere else. Topics here never carry the configured prefix: the link
adds it when it sends and takes it off when it receives.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from contracts.chat.messages import ChatReply, ChatRequest
from contracts.devices.presence import (
    CaptureState,
    DeviceStatus,
    Emitted,
    Heartbeat,
    HubStatus,
    Revocation,
    State,
    UserEvent,
    WatcherState,
)
from contracts.devices.registration import Registration
from contracts.devices.rpc import REPLY, Call, Control
from contracts.devices.voice import WakeHeard, WakeVerdict
from contracts.errors import InvalidTopic
from contracts.names import CallId, DeviceId, InstanceName, MethodName, SkillName, Token
from contracts.validation import parsed

_DEFERRED: Final = ConfigDict(defer_build=True)
_TOKEN: Final[TypeAdapter[str]] = TypeAdapter(Token, config=_DEFERRED)
_LEVELS: Final[dict[str, TypeAdapter[str]]] = {
    "device": TypeAdapter(DeviceId, config=_DEFERRED),
    "skill": TypeAdapter(SkillName, config=_DEFERRED),
    "method": TypeAdapter(MethodName, config=_DEFERRED),
    "call": TypeAdapter(CallId, config=_DEFERRED),
    "instance": TypeAdapter(InstanceName, config=_DEFERRED),
}
"""How the levels are checked that are no `Token`."""


@lru_cache(maxsize=4096)
def _check(level: str, value: str) -> str:
    try:
        return _LEVELS.get(level, _TOKEN).validate_python(value)
    except ValidationError:
        raise InvalidTopic(f"{value!r} cannot stand for {{{level}}} in a topic") from None


Payload = TypeVar("Payload")


@dataclass(frozen=True)
class Topic(Generic[Payload]):
    """One row of the table.

    Attributes:
        template: The topic with its variable levels in braces, as in ``protocol.md``.
        payload: What a message on it is parsed as.
        signed: Whether it carries a signature.
    """

    template: str
    payload: TypeAdapter[Payload] = field(repr=False)
    sender: Literal["device", "hub", "chatter"]
    retained: bool = False
    qos: Literal[0, 1] = 1
    signed: bool = False

    @cached_property
    def levels(self) -> tuple[str, ...]:
        return tuple(self.template.split("/"))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.template))

    def build(self, **values: str) -> str:
        """Make the topic for these values.

        Raises:
            InvalidTopic: If a value cannot stand in a topic.
            KeyError: If a value is missing.
        """
        return self.template.format_map({name: _check(name, values[name]) for name in self.names})

    def filter(self, **values: str) -> str:
        """Make a subscription filter; what is not given matches anything (``+``)."""
        return self.template.format_map(
            {name: _check(name, values[name]) if name in values else "+" for name in self.names}
        )

    def place(self, topic: str) -> dict[str, str] | None:
        """Return the variable levels as they stand, or None where the topic has other levels than this row.

        A client that may publish by a filter may use levels that no topic of ours has; see `match`.
        """
        levels = topic.split("/")
        if len(levels) != len(self.levels):
            return None
        values: dict[str, str] = {}
        for own, given in zip(self.levels, levels, strict=True):
            if own.startswith("{"):
                values[own[1:-1]] = given
            elif own != given:
                return None
        return values

    def match(self, topic: str) -> dict[str, str] | None:
        """Return the values of the variable levels, or None where the topic is not of this row."""
        values = self.place(topic)
        if values is None:
            return None
        try:
            return {name: _check(name, value) for name, value in values.items()}
        except InvalidTopic:
            return None

    def parse(self, payload: bytes) -> Payload:
        """Parse a payload whose signature, if it carries one, has been checked already.

        Raises:
            InvalidMessage: If it is not a message of this row.
        """
        return parsed(self.payload, payload)


STATUS: Final = Topic(
    "devices/{device}/status", TypeAdapter(DeviceStatus), "device", retained=True, signed=True
)
HEARTBEAT: Final = Topic("devices/{device}/heartbeat", TypeAdapter(Heartbeat), "device", retained=True, qos=0)
SKILL: Final = Topic(
    "devices/{device}/skills/{skill}", TypeAdapter(Registration), "device", retained=True, signed=True
)
STATE: Final = Topic(
    "devices/{device}/state/{skill}/{property}", TypeAdapter(State), "device", retained=True, qos=0
)
EVENT: Final = Topic("devices/{device}/events/{name}", TypeAdapter(Emitted), "device", qos=0)
CALL: Final = Topic("devices/{device}/calls/{skill}/{method}", TypeAdapter(Call), "hub", signed=True)
CONTROL: Final = Topic("devices/{device}/control/{call}", TypeAdapter(Control), "hub", signed=True)
RESULT: Final = Topic("devices/{device}/results/{instance}/{call}", REPLY, "device", signed=True)
WAKE_HEARD: Final = Topic(
    "devices/{device}/voice/heard", TypeAdapter(WakeHeard), "device", qos=0, signed=True
)
WAKE_VERDICT: Final = Topic(
    "devices/{device}/voice/verdict", TypeAdapter(WakeVerdict), "hub", qos=0, signed=True
)
HUB_STATUS: Final = Topic("hub/{instance}/status", TypeAdapter(HubStatus), "hub", retained=True, signed=True)
CHAT_REQUEST: Final = Topic("hub/chat/{principal}/request/{request}", TypeAdapter(ChatRequest), "chatter")
"""Signed by a device, plain from a granted client, so the receiver decides by the principal."""
CHAT_REPLY: Final = Topic("hub/chat/{principal}/reply/{request}", TypeAdapter(ChatReply), "hub")
"""Signed to a device, plain to a client."""
WATCHER: Final = Topic("users/{user}/watchers/{watcher}", TypeAdapter(WatcherState), "hub", retained=True)
WATCHER_VALUE: Final = Topic("users/{user}/watchers/{watcher}/{name}", TypeAdapter(State), "hub", qos=0)
"""What a method answered that a watcher asks at an interval."""
CAPTURE: Final = Topic("users/{user}/captures/{capture}", TypeAdapter(CaptureState), "hub", retained=True)
USER_EVENT: Final = Topic("users/{user}/events/{kind}", TypeAdapter(UserEvent), "hub")

BROKER_CONTROL: Final = Topic("$CONTROL/strawberry/v1", TypeAdapter(Revocation), "hub")
"""Only to the embedded broker: never retained, never delivered to a subscriber."""

TOPICS: Final[tuple[Topic[Any], ...]] = tuple(
    each for each in tuple(globals().values()) if isinstance(each, Topic) and each is not BROKER_CONTROL
)
"""All rows above but the last."""

DYNAMIC_SECURITY: Final = "$CONTROL/dynamic-security/v1"
"""Commands to Mosquitto's plugin of that name; a JSON of its own, not a message of ours."""
DYNAMIC_SECURITY_ANSWER: Final = f"{DYNAMIC_SECURITY}/response"
ALL_DYNAMIC_SECURITY: Final = "$CONTROL/dynamic-security/#"
BROKER_OWN: Final = ("$SYS/#", "$CONTROL/#")
"""What a broker tells about itself and takes orders on."""
SHARED: Final = "$share/#"
"""Shared subscriptions (MQTT 5, section 4.8.2)."""

EVERYTHING: Final = "#"
BRANCHES: Final = ("devices/#", "hub/#", "users/#")
"""All that is ours, branch by branch."""
ALL_SKILLS: Final = "devices/+/skills/#"
"""The registry's subscription to every skill of every device."""


def branches_of(principal: str) -> tuple[str, ...]:
    """Return filters for all that a device or client may ever have published."""
    name = _check("principal", principal)
    return f"devices/{name}/#", f"hub/chat/{name}/#"


def has_place(topic: str) -> bool:
    """Return whether the table has a place for a topic; any other topic on our branches is foreign."""
    return any(row.place(topic) is not None for row in TOPICS)


def find(topic: str) -> tuple[Topic[Any], dict[str, str]] | None:
    """Return the row that a topic belongs to with its values, or None where it belongs to none."""
    for row in TOPICS:
        values = row.match(topic)
        if values is not None:
            return row, values
    return None


def is_filter(text: str) -> bool:
    """Return whether a text is a well-formed topic filter (MQTT 3.1.1, section 4.7.1)."""
    levels = text.split("/")
    if not text or "\0" in text or "#" in levels[:-1]:
        return False
    return all(level in ("+", "#") or ("+" not in level and "#" not in level) for level in levels)


def is_exact(filter_: str) -> bool:
    return "+" not in filter_ and "#" not in filter_


def check_filter(text: str) -> None:
    """Check a topic filter that a person or a model wrote.

    Raises:
        InvalidTopic: If it is none.
    """
    if not _fits(text) or not is_filter(text):
        raise InvalidTopic(
            f"{text[:100]!r} is not a topic filter",
            hint="'+' stands for one whole level, and '#' for all the last ones, as in home/+/temperature.",
        )


def check_topic(text: str) -> None:
    """Check a topic that a person or a model wrote.

    Raises:
        InvalidTopic: If it cannot be published on.
    """
    if not _fits(text) or not is_filter(text) or not is_exact(text):
        raise InvalidTopic(f"{text[:100]!r} is not a topic", hint="Name one topic, without + and #.")


def _fits(text: str) -> bool:
    """Return whether a text can be encoded, with its length in two bytes."""
    try:
        return len(text.encode()) <= 65_535
    except UnicodeEncodeError:
        return False


HOME_ONLINE: Final = b"online"
HOME_OFFLINE: Final = b"offline"
"""What the topic of `home_availability` carries; the second is also the Last Will."""


HOME_OWN: Final = "strawberry/#"
"""Filter for all that is ours on the home's own broker, and for what Home Assistant sends there."""

HOME_BRANCHES: Final = ("homeassistant/#", HOME_OWN)
"""All that Home Assistant shares with us, branch by branch."""

HOME_ANNOUNCED: Final = "/strawberry_"
"""Part of the topics on which our devices are announced to Home Assistant."""

HOME_ASSISTANT_STATUS: Final = "homeassistant/status"
"""Where Home Assistant says ``online`` after its start (its birth message)."""


def home_availability(instance: str) -> str:
    """Return the topic of a hub process's availability on the home's own broker, as Home Assistant reads it.

    Raises:
        InvalidTopic: If that is not the name of a hub process.
    """
    try:
        return f"strawberry/{_LEVELS['instance'].validate_python(instance)}/availability"
    except ValidationError:
        raise InvalidTopic(f"{instance!r} is not the name of a hub process") from None


def home_topic(instance: str, device: str, kind: Literal["availability", "state", "set"], name: str) -> str:
    """Return a topic of a device on the home's own broker, or a filter where something is ``+`` or ``#``.

    Args:
        name: Of the entity, and of what belongs to it; empty for the availability of a device.
    """
    return "/".join(filter(None, ("strawberry", instance, device, kind, name)))


def discovery_topic(component: str, node: str, name: str) -> str:
    """Return where an entity announces itself to Home Assistant; of component ``device``, a device.

    Args:
        node: What the device is called there; with ``name``, of ``[a-zA-Z0-9_-]``.
        name: Of the entity, empty for a device.
    """
    return "/".join(filter(None, ("homeassistant", component, node, name, "config")))
