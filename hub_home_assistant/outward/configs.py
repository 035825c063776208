"""Entities as Home Assistant's MQTT discovery describes them, and their states as it reads them."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from contracts import topics
from contracts.answers.system import Discovery
from contracts.wire import Json
from hub_home_assistant.outward.rules import COVERS, MODES, Entity

MAX_STATE: Final = 255
"""Characters of a state; a longer one is refused."""
ON: Final = {True: "ON", False: "OFF"}
NOTHING: Final = "\x00"
"""In a configuration, a null that has to be sent."""
_RGB: Final = (
    "{{ value[1:3] | int(base=16) }},{{ value[3:5] | int(base=16) }},{{ value[5:7] | int(base=16) }}"
)
COLOR: Final = re.compile(r"#[0-9a-f]{6}", re.IGNORECASE)
_TEXTS: Final[Mapping[str, Mapping[Json, str]]] = {
    "cover": {
        True: "open",
        False: "closed",
        **{each: each for each in ("open", "closed", "opening", "closing")},
    },
    "cover/position": {True: "100", False: "0", "open": "100", "closed": "0"},
    "lock": {True: "LOCKED", False: "UNLOCKED", "locked": "LOCKED", "unlocked": "UNLOCKED"},
    "climate/mode": {True: "heat", False: "off", "on": "heat", **{each: each for each in MODES}},
}
"""What a component shows for the values of properties."""
_LARGEST: Final = sys.float_info.max

# Home Assistant refuses an entity with a class that it does not know. Newer versions, such as 2025.11, also
# refuse a sensor with a unit that its class does not have.
_OF_SENSORS: Final = """
apparent_power VA kVA mVA
aqi -
atmospheric_pressure Pa hPa kPa mPa bar cbar mbar mmHg inHg inH₂O psi
battery %
carbon_dioxide ppm
carbon_monoxide ppm mg/m³ μg/m³
current A mA
data_rate bit/s kbit/s Mbit/s Gbit/s B/s kB/s MB/s GB/s KiB/s MiB/s GiB/s
data_size bit kbit Mbit Gbit B kB MB GB TB PB KiB MiB GiB TiB PiB
date
distance mm cm m km in ft yd mi nmi
duration μs ms s min h d
energy mWh Wh kWh MWh GWh TWh J kJ MJ GJ cal kcal Mcal Gcal
energy_storage mWh Wh kWh MWh GWh TWh J kJ MJ GJ cal kcal Mcal Gcal
enum
frequency Hz kHz MHz GHz
gas L m³ ft³ CCF MCF
humidity %
illuminance lx
irradiance W/m² BTU/(h⋅ft²)
moisture %
monetary
nitrogen_dioxide μg/m³
nitrogen_monoxide μg/m³
nitrous_oxide μg/m³
ozone μg/m³
ph -
pm1 μg/m³
pm10 μg/m³
pm25 μg/m³
power mW W kW MW GW TW
power_factor %
precipitation mm cm in
precipitation_intensity mm/h mm/d in/h in/d
pressure Pa hPa kPa mPa bar cbar mbar mmHg inHg inH₂O psi
reactive_power var mvar kvar
signal_strength dB dBm
sound_pressure dB dBA
speed mm/s m/s m/min km/h ft/s in/s mph kn mm/h mm/d in/h in/d Beaufort
sulphur_dioxide μg/m³
temperature °C °F K
timestamp
volatile_organic_compounds mg/m³ μg/m³
volatile_organic_compounds_parts ppm ppb
voltage μV mV V kV MV
volume mL L m³ ft³ CCF MCF gal
volume_flow_rate m³/h m³/min m³/s ft³/min L/h L/min L/s gal/h gal/min mL/s
volume_storage mL L m³ ft³ CCF MCF gal
water L m³ ft³ CCF MCF gal
weight μg mg g kg oz lb st
wind_speed mm/s m/s m/min km/h ft/s in/s mph kn Beaufort
"""
"""Device classes, each with its units; none are those with any, ``-`` those without."""
_OF_BINARY_SENSORS: Final = """
battery battery_charging carbon_monoxide cold connectivity door garage_door gas heat light lock moisture
motion moving occupancy opening plug power presence problem running safety smoke sound tamper update
vibration window
"""
_UNITS: Final = {class_: units for class_, *units in map(str.split, _OF_SENSORS.strip().splitlines())}
_SENSOR_CLASSES: Final = frozenset(_UNITS)
_CLASSES: Final = {
    "sensor": _SENSOR_CLASSES,
    "number": _SENSOR_CLASSES - {"date", "enum", "timestamp"},
    "binary_sensor": frozenset(_OF_BINARY_SENSORS.split()),
    "switch": frozenset({"outlet", "switch"}),
    "button": frozenset({"identify", "restart", "update"}),
    "event": frozenset({"button", "doorbell", "motion"}),
    "cover": frozenset(COVERS),
}
_TOTALS: Final = frozenset({"date", "energy", "enum", "gas", "monetary", "timestamp", "volume", "water"})
"""Classes of which a value is no measurement at a moment."""


@dataclass(frozen=True)
class Place:
    """A device as it is called on that broker.

    Attributes:
        node: What it is called in Home Assistant's discovery, unlike devices of other hubs.
    """

    instance: str
    device: str
    node: str

    @classmethod
    def of(cls, hub_id: str, instance: str, device: str) -> "Place":
        return cls(instance, device, f"strawberry_{hub_id[-8:]}_{device}")

    def topic(self, kind: Literal["availability", "state", "set"], name: str = "") -> str:
        return topics.home_topic(self.instance, self.device, kind, name)


@dataclass(frozen=True)
class Command:
    """What a message on a command topic means.

    Attributes:
        path: By which it must be shown: a device's id, the skill, and the member.
        verb: ``press`` for words such as ``OPEN``, else the field of the method that takes the value.
    """

    path: str
    entity: Entity
    verb: Literal["press", "set", "set_brightness", "set_color", "set_speed", "set_mode"]


Handler = Callable[[str], None]
"""Takes what is sent to an entity of the hub itself."""


@dataclass
class Announcement:
    """All that is published of one device.

    Attributes:
        device: How Home Assistant describes it.
        assumed: By topic, what was set where the skill publishes no such property.
        components: By component and name, what describes the entity.
        states: By topic.
        commands: By topic.
    """

    place: Place
    device: dict[str, Any]
    origin: dict[str, Any]
    assumed: Mapping[str, bytes] = field(default_factory=dict)
    components: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)
    commands: dict[str, Command | Handler] = field(default_factory=dict)

    def add(self, component: str, name: str, label: str, *, lasting: bool = False, **config: Json) -> None:
        """Add an entity.

        Args:
            lasting: Whether it is available while the device is not.
        """
        known = {
            key: None if value == NOTHING else value for key, value in config.items() if value is not None
        }
        words = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_") or name.lower()
        wished = f"{self.place.device if self.place.device != 'hub' else 'strawberry'}_{words}"
        unique = {
            "name": label,
            "unique_id": f"{self.place.node}-{component}-{name}",
            # Stays when a device is renamed, or is announced again. The first is for versions before 2025.10.
            "object_id": wished,
            "default_entity_id": f"{component}.{wished}",
        }
        here = [{"topic": topics.home_availability(self.place.instance)}]
        if not lasting:
            here.append({"topic": self.place.topic("availability")})
        self.components[component, name] = {
            **unique,
            **known,
            "availability": here,
            "availability_mode": "all",
        }

    def add_entity(self, entity: Entity) -> None:
        """Add an entity of a skill, with its state and its commands."""
        given, component, name = entity.appearance, entity.component, entity.object
        shows, orders = self.place.topic("state", name), self.place.topic("set", name)
        class_ = _class_of(component, given.device_class, given.unit)
        config: dict[str, Json] = {"icon": given.icon, "device_class": class_}
        if component not in ("button", "climate"):
            config["state_topic"] = shows
        if component not in ("sensor", "binary_sensor", "event", "climate"):
            config["command_topic"] = orders
            has_words = component in ("button", "cover", "lock")
            self.commands[orders] = self._command(entity, "press" if has_words else "set")
        match component:
            case "sensor":
                config["unit_of_measurement"] = given.unit
                if is_number(entity.value) and class_ not in _TOTALS:
                    config["state_class"] = "measurement"
                if isinstance(entity.value, (dict, list)):
                    config["json_attributes_topic"] = f"{shows}/attributes"
                    inner = entity.value if isinstance(entity.value, dict) else {"items": entity.value}
                    self.states[f"{shows}/attributes"] = json.dumps(inner).encode()
            case "number":
                config["unit_of_measurement"] = given.unit
                config |= {"min": given.least, "max": given.most, "step": given.step}
            case "select":
                config["options"] = given.options
            case "event":
                config["event_types"] = [entity.name]
            case "light":
                if "set_brightness" in entity.calls:
                    config |= self._part("brightness", entity)
                    config["brightness_scale"] = max(1, int(given.most or 100))
                if "set_color" in entity.calls:
                    config |= self._part("color", entity, config="rgb")
                    config["rgb_command_template"] = "{{ '#%02x%02x%02x' | format(red, green, blue) }}"
                    config["rgb_value_template"] = _RGB
            case "cover":
                for field, word in (("on", "open"), ("off", "close"), ("stop", "stop")):
                    # Home Assistant takes none for "cannot".
                    config |= {} if field in entity.calls else {f"payload_{word}": NOTHING}
                if is_number(entity.value) or "set" in entity.calls:
                    config |= self._part("position", entity, field="state", verb="set")
                    config["position_topic"] = config.pop("position_state_topic")
                    del config["state_topic"]
                    if "position_command_topic" in config:
                        config["set_position_topic"] = config.pop("position_command_topic")
            case "fan" if "set_speed" in entity.calls:
                config |= self._part("speed", entity, config="percentage")
                config |= {"speed_range_min": 1, "speed_range_max": max(1, int(given.most or 100))}
            case "climate":
                config |= self._part("target", entity, "state", "set", config="temperature")
                config |= self._part("mode", entity)
                config |= {"modes": given.options, "temperature_unit": (given.unit or "C")[-1]}
                coldest, warmest = (41, 95) if config["temperature_unit"] == "F" else (5, 35)
                config["min_temp"] = coldest if given.least is None else given.least
                config["max_temp"] = warmest if given.most is None else given.most
                config["temp_step"] = given.step
                if given.current is not None:
                    shown = f"{shows}/current"
                    config["current_temperature_topic"] = shown
                    self._show(shown, text_of("number", entity.values.get("current")))
        self.add(component, name, entity.label, **config)
        if component not in ("button", "event", "climate"):
            self._show(shows, text_of(component, entity.value))

    def _command(self, entity: Entity, verb: Any) -> Command:
        return Command(f"{self.place.device}.{entity.skill}.{entity.name}", entity, verb)

    def _part(
        self, part: str, entity: Entity, field: str = "", verb: str = "", *, config: str = ""
    ) -> dict[str, Json]:
        """Add the topics of a further value of an entity; return its part of the configuration.

        Args:
            field: Of the appearance, which names the property that shows the value; as ``part``.
            verb: The call that sets it; ``set_`` with the part.
            config: What Home Assistant calls it; as ``part``.
        """
        verb, name = verb or f"set_{part}", entity.object
        shows, orders = (f"{self.place.topic(kind, name)}/{part}" for kind in ("state", "set"))
        text = text_of(f"{entity.component}/{part}", entity.values.get(field or part))
        made: dict[str, Json] = {f"{config or part}_state_topic": shows}
        is_switched = part == "mode" and "on" in entity.calls
        if verb in entity.calls or is_switched:
            made[f"{config or part}_command_topic"] = orders
            self.commands[orders] = self._command(entity, verb)
        elif part == "mode":
            text = "heat"
        self._show(shows, text)
        return made

    def _show(self, topic: str, text: str | None) -> None:
        if text is not None:
            self.states[topic] = text.encode()
        elif topic in self.assumed:
            self.states[topic] = self.assumed[topic]

    def messages(self, discovery: Discovery, dropped: set[tuple[str, str]]) -> dict[str, bytes]:
        """Return what announces all of it, by topic.

        Args:
            dropped: Components that are there no longer; an announcement of a device has to say so.
        """
        common = {"device": self.device, "origin": self.origin}
        if discovery == "entity":
            return {
                topics.discovery_topic(component, self.place.node, name): json.dumps(
                    {**config, **common}
                ).encode()
                for (component, name), config in self.components.items()
            }
        parts: dict[str, Json] = {f"{each}-{name}": {"platform": each} for each, name in sorted(dropped)}
        parts |= {
            f"{each}-{name}": {"platform": each, **config} for (each, name), config in self.components.items()
        }
        whole = json.dumps({**common, "components": parts}).encode()
        return {topics.discovery_topic("device", self.place.node, ""): whole}


def _class_of(component: str, wanted: str | None, unit: str | None) -> str | None:
    """Return a device class, None where Home Assistant would refuse it."""
    if wanted is None or wanted not in _CLASSES.get(component, ()):
        return None
    units = _UNITS.get(wanted) if component in ("sensor", "number") else None
    # Of the two letters for micro it takes either.
    return wanted if not (unit and units) or unit.replace("µ", "μ") in units else None


def is_number(value: Json) -> bool:
    # Compared, not converted: an integer of JSON may be larger than any float.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def text_of(component: str, value: Json) -> str | None:
    """Return a value as the state of an entity, or None where it cannot be one."""
    if (texts := _TEXTS.get(component)) is not None:
        key = value.lower() if isinstance(value, str) else value
        if isinstance(key, (str, bool)) or component != "cover/position":
            return texts.get(key) if isinstance(key, (str, bool)) else None
    if component == "light/color":
        return value.lower() if isinstance(value, str) and COLOR.fullmatch(value) else None
    if "/" in component:
        return json.dumps(value) if is_number(value) else None
    match value:
        case None:
            return None
        case bool() if component != "sensor":
            return ON[value]
        case str() if component in ("switch", "light", "fan", "binary_sensor"):
            return {"on": "ON", "off": "OFF"}.get(value.lower())
        case dict():
            # A node, for example, is an object with its state; what is played, one with a title.
            said = (value[each] for each in ("state", "title") if is_plain(value.get(each)))
            return text_of(component, next(said, len(value)))
        case list():
            return str(len(value))
        case str():
            return value[:MAX_STATE]
    return json.dumps(value) if component in ("sensor", "number") else None


def is_plain(value: Json) -> bool:
    return isinstance(value, str) or is_number(value)
