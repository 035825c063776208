"""The rules by which methods and states of a skill become entities of Home Assistant.

What a skill declares in ``homeassistant`` comes first, and replaces single fields of what the rules say.
An entity has the name of one member of the skill: of a method, of a property that it publishes, or of an
event. A pair of methods has that of the first.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_core.search.directory import RegisteredSkill
from contracts.devices.presence import State
from contracts.devices.registration import Appearance, Component, Method
from contracts.wire import Json

PAIRS: Final = (
    ("turn_on", "turn_off"),
    ("switch_on", "switch_off"),
    ("enable", "disable"),
    ("mute", "unmute"),
)
"""Methods without arguments that are a switch together, or a light."""
ON_STATES: Final = ("on", "is_on", "power", "state")
"""Properties that show whether what such a pair switches is on; else the one named as the first method."""
BRIGHTNESS: Final = {"set_brightness": "brightness", "dim": "brightness", "set_level": "level"}
"""Methods that make a pair a light, with the property that shows it."""
LIGHT_WORDS: Final = frozenset({"lamp", "lamps", "light", "lights", "bulb"})
"""Words in the name of a skill that make a pair a light."""
SETTER: Final = "set_"
"""What a method begins with that sets the property of that name; its one argument says what it is."""
ICONS: Final = {
    "play": "mdi:play",
    "pause": "mdi:pause",
    "play_pause": "mdi:play-pause",
    "stop": "mdi:stop",
    "next": "mdi:skip-next",
    "next_track": "mdi:skip-next",
    "previous": "mdi:skip-previous",
    "previous_track": "mdi:skip-previous",
    "set_volume": "mdi:volume-high",
    "change_volume": "mdi:volume-plus",
    "volume_up": "mdi:volume-plus",
    "turn_down": "mdi:volume-minus",
    "volume_down": "mdi:volume-minus",
    "mute": "mdi:volume-off",
    "set_mute": "mdi:volume-off",
    "set_source": "mdi:playlist-music",
    "set_shuffle": "mdi:shuffle",
    "now_playing": "mdi:music",
    "playing": "mdi:music",
    "restart": "mdi:restart",
    "ring": "mdi:bell",
}
"""Of methods and properties. Home Assistant has no media player over MQTT: a player is what its remote has,
buttons, a number and a switch, with a sensor of what it plays."""
_METHODS: Final = ("on", "off", "set", "set_brightness")
_PROPERTIES: Final = ("state", "brightness")


@dataclass(frozen=True)
class Entity:
    """An entity of a skill.

    Attributes:
        name: Of the member of the skill.
        appearance: With all that is known; ``component`` is never None.
        calls: The methods that it calls, by the field of the appearance that names them, or ``press``.
        value: What it shows at present, where that is known.
    """

    skill: str
    name: str
    appearance: Appearance
    calls: Mapping[str, Method]
    value: Json = None
    brightness: Json = None

    @property
    def component(self) -> Component:
        return self.appearance.component or "none"

    @property
    def object(self) -> str:
        return object_name(self.skill, self.name)

    @property
    def label(self) -> str:
        """Return the name that people read."""
        if self.appearance.name is not None:
            return self.appearance.name
        what = "" if self.name in ("turn_on", "switch_on") else _words(self.name.removeprefix(SETTER))
        return f"{_words(self.skill.removesuffix('Skill'))} {what.lower()}".strip()

    @property
    def only_by_name(self) -> bool:
        """Return whether it is shown only where the owner names it, and not with the rest of its skill.

        What can lose something, and buttons that only read: their result would be seen nowhere.
        """
        flags = [method.flags for method in self.calls.values()]
        reads = self.component == "button" and all(each.read_only for each in flags)
        return reads or any(each.destructive for each in flags)


def object_name(skill: str, name: str) -> str:
    """Return what an entity is called on its device, in the letters that Home Assistant allows."""
    return f"{skill}-{name}".replace(".", "_")


def parameter(method: Method) -> tuple[str, dict[str, Any]] | None:
    """Return the one argument that a method is called with, and its schema; None where that is not so."""
    properties, required = method.parameters.get("properties", {}), method.parameters.get("required", [])
    names = required or list(properties)
    schema = properties.get(names[0]) if len(names) == 1 else None
    return (names[0], schema) if isinstance(schema, dict) else None


def entities_of(
    skill: RegisteredSkill, states: Mapping[str, State | None], events: set[str]
) -> Iterator[Entity]:
    """Iterate over the entities of a skill. A method that needs a confirmation is in none of them.

    Args:
        states: What the skill publishes, by property; None where that was taken back.
        events: Names of events that it was heard to emit.
    """
    shown = {name: state for name, state in states.items() if state is not None}
    methods = {name: each for name, each in skill.methods.items() if not each.flags.confirm}
    declared = skill.registration.homeassistant
    used = {name for each in declared.values() for name in _named(each)} - declared.keys()
    found = dict(_of_methods(skill.name, methods, used, shown))
    for appearance in found.values():
        used |= _named(appearance)
    found |= {
        name: _of_state(name, state)
        for name, state in shown.items()
        if name not in used and name not in found
    }
    found |= {name: Appearance(component="event") for name in events if name not in found}
    for name in {**found, **declared}:
        appearance = found.get(name, Appearance())
        if name in declared:
            appearance = appearance.model_copy(update=declared[name].model_dump(exclude_none=True))
        made = _entity(skill.name, name, appearance, methods, shown)
        if made is not None:
            yield made


def _named(appearance: Appearance) -> set[str]:
    named = {getattr(appearance, each) for each in (*_METHODS, *_PROPERTIES)}
    return {each for each in named if each is not None}


def _of_methods(
    skill: str, methods: Mapping[str, Method], used: set[str], states: Mapping[str, State]
) -> Iterator[tuple[str, Appearance]]:
    taken = set(used)
    is_lamp = not LIGHT_WORDS.isdisjoint(_words(skill).lower().split())
    for on, off in PAIRS:
        if not {on, off} <= methods.keys() - taken or any(
            methods[each].parameters.get("required") for each in (on, off)
        ):
            continue
        taken |= {on, off}
        shows = next((each for each in (on, *ON_STATES) if each in states), None)
        dims = next((each for each in BRIGHTNESS if each in methods.keys() - taken), None)
        if on in ("turn_on", "switch_on") and (dims is not None or is_lamp):
            scale = (parameter(methods[dims]) or ("", {}))[1] if dims else {}
            taken |= {dims} if dims else set()
            yield (
                on,
                Appearance(
                    component="light",
                    on=on,
                    off=off,
                    state=shows,
                    set_brightness=dims,
                    brightness=BRIGHTNESS[dims] if dims else None,
                    most=scale.get("maximum", 100) if dims else None,
                ),
            )
        else:
            yield on, Appearance(component="switch", on=on, off=off, state=shows, icon=ICONS.get(on))
    for name, method in methods.items():
        if name not in taken and (made := _of_method(name, method, states)) is not None:
            yield name, made


def _of_method(name: str, method: Method, states: Mapping[str, State]) -> Appearance | None:
    if not method.parameters.get("required") and not name.startswith(SETTER):
        return Appearance(component="button", icon=ICONS.get(name))
    only = parameter(method)
    if only is None or not name.startswith(SETTER):
        return None
    schema, property_ = only[1], name.removeprefix(SETTER)
    state = states.get(property_)
    made = Appearance(set=name, state=property_, icon=ICONS.get(name))
    if (options := schema.get("enum")) and all(isinstance(each, str) for each in options):
        return made.model_copy(update={"component": "select", "options": options})
    match schema.get("type"):
        case "boolean":
            return made.model_copy(update={"component": "switch"})
        case "integer" | "number" as kind:
            least, most = schema.get("minimum", 0), schema.get("maximum", 100)
            given = {
                "component": "number",
                # Where only one end is given, the other must not be on its wrong side.
                "least": least if "minimum" in schema or least < most else most - 100,
                "most": most if "maximum" in schema or least < most else least + 100,
                "step": 1 if kind == "integer" else 0.1,
                "unit": schema.get("unit") or (state.unit if state is not None else None),
                "device_class": state.device_class if state is not None else None,
            }
            return made.model_copy(update=given)
    return None


def _of_state(name: str, state: State) -> Appearance:
    is_plain = isinstance(state.value, (int, float)) and not isinstance(state.value, bool)
    return Appearance.model_construct(
        component="binary_sensor" if isinstance(state.value, bool) else "sensor",
        device_class=state.device_class,
        unit=state.unit if is_plain else None,
        icon=ICONS.get(name),
    )


def _entity(
    skill: str,
    name: str,
    appearance: Appearance,
    methods: Mapping[str, Method],
    states: Mapping[str, State],
) -> Entity | None:
    """Make an entity, or None where it has not what its component needs."""
    component = appearance.component
    if component == "button":
        named = {"press": appearance.set or name}
    else:
        named = {each: value for each in _METHODS if (value := getattr(appearance, each)) is not None}
        if component in ("number", "select", "switch") and not named and name in methods:
            named = {"set": name}
    if any(each not in methods for each in named.values()):
        return None
    calls = {each: methods[value] for each, value in named.items()}
    takes_none = [calls[each] for each in ("press", "on", "off") if each in calls]
    takes_one = [calls[each] for each in ("set", "set_brightness") if each in calls]
    if any(each.parameters.get("required") for each in takes_none) or not all(map(parameter, takes_one)):
        return None
    if component in ("switch", "light") and not ({"on", "off"} <= calls.keys() or "set" in calls):
        return None
    if component in ("number", "select") and "set" not in calls:
        return None
    property_ = appearance.state or name
    if component in (None, "none") or (
        component in ("sensor", "binary_sensor") and (property_ not in states or named)
    ):
        return None
    if component == "select" and not appearance.options:
        return None
    value = states[property_].value if property_ in states else None
    bright = states.get(appearance.brightness or "")
    return Entity(skill, name, appearance, calls, value, bright.value if bright is not None else None)


def _words(name: str) -> str:
    """Return ``next_track`` and ``NextTrack`` as ``Next track``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.-]+", " ", name).strip()
    return words[:1].upper() + words[1:].lower()
