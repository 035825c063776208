"""The devices of Zigbee2MQTT as a house, where there is no Home Assistant."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contracts.errors import InvalidMessage
from contracts.wire import Json
from hub_home_assistant.inward.entities import Entity, EntityIndex, State, clean
from hub_live.topics import Feed, Sample
from hub_live.world.thing import Thing
from hub_live.world.world import World

_SWITCH: Final = {"turn_on": "ON", "turn_off": "OFF", "toggle": "TOGGLE"}
_STATES: Final[dict[str, dict[str, str]]] = {
    "cover": {"open_cover": "OPEN", "close_cover": "CLOSE", "stop_cover": "STOP"},
    "lock": {"lock": "LOCK", "unlock": "UNLOCK"},
}
_VALUES: Final = {"LOCK": "locked", "UNLOCK": "unlocked", "CLOSE": "closed", "OPEN": "open"}
"""Payloads of Zigbee2MQTT as states of Home Assistant; others are the same in small letters."""
_BRIGHTEST: Final = 254


class Zigbee:
    """A ``House`` of what Zigbee2MQTT lists on the home broker."""

    temperature_unit = "°C"

    def __init__(self, world: World, feed: Feed) -> None:
        self.entities = EntityIndex()
        self._world = world
        self._feed = feed
        self._things: dict[str, Thing] = {}

    def update(self) -> bool:
        """Store the devices as they are listed now; return whether they changed."""
        things = {thing.id: thing for thing in self._world.entities.of_zigbee()}
        if things == self._things:
            return False
        self._things = things
        self.entities = EntityIndex(map(_entity, things.values()))
        return True

    def state(self, entity: Entity) -> State:
        thing = self._things.get(entity.id)
        sample = self._feed.latest(thing.topic, "home") if thing is not None and thing.topic else None
        return _state(thing, sample) if thing is not None and sample is not None else State()

    async def call(
        self, domain: str, service: str, entities: Sequence[Entity], data: Mapping[str, Json]
    ) -> None:
        """See `House`; what is published is the same as from Zigbee2MQTT's own page."""
        things = [self._things[each.id] for each in entities]
        payloads = [
            _payload(thing, service, data, self.state(each))
            for thing, each in zip(things, entities, strict=True)
        ]
        for thing, payload in zip(things, payloads, strict=True):
            await self._feed.publish(f"{thing.topic}/set", payload, link="home", qos=1)

    async def services_of(self, script: str) -> frozenset[str]:
        return frozenset()

    async def history(self, entity: Entity, since: float) -> list[State]:
        """Return what was heard since then, as far back as the hub remembers."""
        thing = self._things[entity.id]
        samples = self._feed.history(thing.topic or "", "home", since=since)
        return [_state(thing, sample) for sample in samples if sample.payload]


def _entity(thing: Thing) -> Entity:
    return Entity(
        thing.id, clean(thing.name), device=thing.device, device_class=thing.device_class, unit=thing.unit
    )


def _state(thing: Thing, sample: Sample) -> State:
    decoded = sample.value
    value = thing.reading(decoded)
    if thing.kind != "sensor":
        if isinstance(value, bool):
            value = "on" if value else "off"
        elif isinstance(value, str):
            value = _VALUES.get(value, value.lower())
    attributes: dict[str, Any] = dict(decoded) if isinstance(decoded, dict) else {}
    if thing.unit:
        attributes["unit_of_measurement"] = thing.unit
    return State(value, attributes, None if sample.retained else sample.at)


def _payload(thing: Thing, service: str, data: Mapping[str, Json], now: State) -> dict[str, Json]:
    """Return what sets a device as a service of Home Assistant does.

    Raises:
        InvalidMessage: If it has no such service.
    """
    states = _SWITCH | _STATES.get(thing.kind, {})
    place = thing.field or "state"
    # With several endpoints the names of their properties end alike: state_l1, brightness_l1.
    suffix = place.removeprefix("state") if place.startswith("state") else ""
    match service, dict(data):
        case "turn_on", {"brightness_pct": int() | float() as percent} if f"brightness{suffix}" in thing.sets:
            return {place: "ON", f"brightness{suffix}": round(percent * _BRIGHTEST / 100)}
        case "set_cover_position", {"position": int() | float() as position} if "position" in thing.sets:
            return {"position": position}
        case "set_temperature", {"temperature": int() | float() as degrees}:
            for name in thing.sets:
                if name.endswith("heating_setpoint"):
                    return {name: degrees}
        case "set_value", {"value": value} if place in thing.sets:
            return {place: value}
        case "select_option", {"option": option} if place in thing.sets:
            return {place: option}
        case _, {**rest} if not rest and service in states and place in thing.sets:
            is_boolean = isinstance(now.attributes.get(place), bool)
            return {place: service == "turn_on" if is_boolean and service != "toggle" else states[service]}
    given = f" with {', '.join(data)}" if data else ""
    raise InvalidMessage(
        "{name}, a {kind} of Zigbee2MQTT, has no {service}{given}",
        name=thing.name,
        kind=thing.kind,
        service=service,
        given=given,
    )
