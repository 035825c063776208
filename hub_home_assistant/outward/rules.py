"""The rules by which methods and states of a skill become entities of Home Assistant.

What a skill declares in ``homeassistant`` comes first, and replaces single fields of what the rules say.
An entity has the name of one member of the skill: of a method, of a property that it publishes, or of an
event. A pair of methods has that of the first.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent_core.search.directory import RegisteredSkill
from agent_core.sentences.kinds import OPENING
from agent_core.skills.labels import Labels, as_words
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
COLOR: Final = "set_color"
"""The method of a light that sets its colour, from ``#rrggbb``."""
FAN_WORDS: Final = frozenset({"fan", "fans", "ventilator"})
"""Words in the name of a skill that make a pair a fan."""
SPEED: Final = {"set_speed": "speed", "set_percentage": "percentage"}
"""Methods that make a pair a fan, with the property that shows it."""
COVER_PAIRS: Final = (
    ("open", "close"),
    ("open_cover", "close_cover"),
    ("move_up", "move_down"),
    ("roll_up", "roll_down"),
)
"""Methods without arguments that open and close a cover, beside ``open_blind`` and its like. ``close`` of a
skill in Python is the end of that skill."""
POSITIONS: Final = ("position", "is_open", "open", "state")
"""Properties that show how far a cover is open."""
LOCKED: Final = ("locked", "is_locked", "state")
TARGETS: Final = ("set_target_temperature", "set_temperature")
"""Methods that make a skill a thermostat."""
MODES: Final = ("off", "heat", "cool", "heat_cool", "auto", "dry", "fan_only")
"""Home Assistant's modes of a thermostat; others are refused there."""
DOORS: Final = frozenset({"door", "garage", "gate"})
"""Classes of covers that are opened only where the owner names the entity."""
COVERS: Final = (
    "awning",
    "blind",
    "curtain",
    "damper",
    "door",
    "garage",
    "gate",
    "shade",
    "shutter",
    "window",
)
"""Device classes of covers, by a word in the name of the skill."""
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
_SETTERS: Final = ("set", "set_brightness", "set_color", "set_speed", "set_mode")
_ACTIONS: Final = ("press", "on", "off", "stop")
_METHODS: Final = ("on", "off", "stop", *_SETTERS)
_PROPERTIES: Final = ("state", "brightness", "color", "speed", "mode", "current")
_NEEDED: Final = {
    "switch": ({"on", "off"}, {"set"}),
    "light": ({"on", "off"}, {"set"}),
    "fan": ({"on", "off"},),
    "cover": ({"on", "off"}, {"off"}),
    "lock": ({"on"},),
    "climate": ({"set"},),
    "number": ({"set"},),
    "select": ({"set"},),
}
"""By component, the fields of which one group must name methods."""


@dataclass(frozen=True)
class Entity:
    """An entity of a skill.

    Attributes:
        name: Of the member of the skill.
        appearance: With all that is known; ``component`` is never None.
        calls: The methods that it calls, by the field of the appearance that names them, or ``press``.
        values: By the field of the appearance that names the property, what it shows at present.
        labels: What people call the skill and its members.
    """

    skill: str
    name: str
    appearance: Appearance
    calls: Mapping[str, Method]
    values: Mapping[str, Json]
    labels: Labels = field(default_factory=lambda: Labels({}, "en"), compare=False)

    @property
    def value(self) -> Json:
        return self.values.get("state")

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
        is_whole = self.component in ("climate", "cover", "fan", "lock")
        skill = self._called(self.skill.removesuffix("Skill"), self.skill)
        if is_whole or self.name in ("turn_on", "switch_on"):
            return skill
        usual = self.name.removeprefix(SETTER)
        what = self._called(usual, usual)
        return f"{skill} {what.lower() if what == _words(usual) else what}"

    def _called(self, usual: str, name: str) -> str:
        label = self.labels(name)
        return _words(usual) if label == as_words(name) else label

    @property
    def opening(self) -> frozenset[str]:
        """Return its calls that open an entrance: they need an exposure of this entity by its name."""
        if self.component == "lock":
            return frozenset({"off"})
        if self.component == "button" and self._opens:
            return frozenset(self.calls)
        is_door = self.component == "cover" and self.appearance.device_class in DOORS
        return frozenset({"on", "set"}) if is_door else frozenset()

    @property
    def _opens(self) -> bool:
        # By its method, or because what it opens is a door.
        name = self.name.lower()
        is_door = any(door in f"{self.skill} {name}".lower() for door in DOORS)
        return name in OPENING or (name.startswith(("open", "unlock")) and (is_door or name.endswith("lock")))

    @property
    def only_by_name(self) -> bool:
        """Return whether it is shown only where the owner names it, and not with the rest of its skill.

        What can lose something, and buttons that only read: their result would be seen nowhere.
        """
        flags = [method.flags for field, method in self.calls.items() if field not in self.opening]
        reads = self.component == "button" and all(each.read_only for each in flags)
        return reads or any(each.destructive for each in flags)


def object_name(skill: str, name: str) -> str:
    # Home Assistant allows no dots in it.
    return f"{skill}-{name}".replace(".", "_")


def parameter(method: Method) -> tuple[str, dict[str, Any]] | None:
    """Return the one argument that a method is called with, and its schema; None where that is not so."""
    properties, required = method.parameters.get("properties", {}), method.parameters.get("required", [])
    names = required or list(properties)
    schema = properties.get(names[0]) if len(names) == 1 else None
    return (names[0], schema) if isinstance(schema, dict) else None


def entities_of(
    skill: RegisteredSkill, states: Mapping[str, State | None], events: set[str], language: str = "en"
) -> Iterator[Entity]:
    """Iterate over the entities of a skill. A method that needs a confirmation is in none of them.

    Args:
        states: What the skill publishes, by property; None where that was taken back.
        events: Names of events that it was heard to emit.
        language: Of their names.
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
            yield replace(made, labels=Labels(skill.registration.labels, language))


def _named(appearance: Appearance) -> set[str]:
    named = {getattr(appearance, each) for each in (*_METHODS, *_PROPERTIES)}
    return {each for each in named if each is not None}


def _of_methods(
    skill: str, methods: Mapping[str, Method], used: set[str], states: Mapping[str, State]
) -> Iterator[tuple[str, Appearance]]:
    taken = set(used)
    words = _words(skill).lower().split()
    is_lamp, is_fan = not LIGHT_WORDS.isdisjoint(words), not FAN_WORDS.isdisjoint(words)
    free = {name: each for name, each in methods.items() if name not in taken}
    for made in (
        _cover(words, free, states),
        _lock(free, states),
        None if is_lamp else _climate(free, states),
    ):
        if made is not None:
            taken |= _named(made)
            yield made.on or made.set or made.off or "", made
    for on, off in PAIRS:
        if not {on, off} <= methods.keys() - taken or any(
            methods[each].parameters.get("required") for each in (on, off)
        ):
            continue
        taken |= {on, off}
        shows = next((each for each in (on, *ON_STATES) if each in states), None)
        dims = next((each for each in BRIGHTNESS if each in methods.keys() - taken), None)
        colors = COLOR if COLOR not in taken and _takes(methods, COLOR, "string") else None
        blows = next((each for each in SPEED if each in methods.keys() - taken), None)
        turns, scaled = on in ("turn_on", "switch_on"), None
        more: dict[str, Any] = {"component": "switch", "icon": ICONS.get(on)}
        if turns and not is_lamp and (blows is not None or is_fan):
            scaled = blows
            more = {"component": "fan", "set_speed": blows, "speed": SPEED.get(blows or "")}
        elif turns and (dims or colors or is_lamp):
            scaled = dims
            more = {"component": "light", "set_brightness": dims, "brightness": BRIGHTNESS.get(dims or "")}
            more |= {"set_color": colors, "color": "color" if colors else None}
        if scaled is not None:
            more["most"] = (parameter(methods[scaled]) or ("", {}))[1].get("maximum", 100)
        taken |= {each for each in (scaled, more.get("set_color")) if each}
        yield on, Appearance(on=on, off=off, state=shows, **more)
    for name, method in methods.items():
        if name not in taken and (made := _of_method(name, method, states)) is not None:
            yield name, made


def _cover(words: list[str], methods: Mapping[str, Method], states: Mapping[str, State]) -> Appearance | None:
    pairs = (*COVER_PAIRS, *((f"open_{each}", f"close_{each}") for each in COVERS if each != "window"))
    found = next(
        (each for each in pairs if each[1] in methods and _takes_nothing(methods, *each, "stop")), None
    )
    if found is None:
        return None
    on, off = found
    kinds = [*words, off.rpartition("_")[2]]
    if on not in methods and set(COVERS).isdisjoint(kinds):
        return None
    position = "set_position" if _takes(methods, "set_position", "integer", "number") else None
    return Appearance(
        component="cover",
        device_class=next((each for each in kinds if each in COVERS), None),
        on=on if on in methods else None,
        off=off,
        stop="stop" if "stop" in methods else None,
        set=position,
        state=_first(POSITIONS, states) or POSITIONS[0],
    )


def _lock(methods: Mapping[str, Method], states: Mapping[str, State]) -> Appearance | None:
    if "lock" not in methods or not _takes_nothing(methods, "lock", "unlock"):
        return None
    unlock = "unlock" if "unlock" in methods else None
    return Appearance(component="lock", on="lock", off=unlock, state=_first(LOCKED, states) or LOCKED[0])


def _climate(methods: Mapping[str, Method], states: Mapping[str, State]) -> Appearance | None:
    target = next((each for each in TARGETS if _takes(methods, each, "integer", "number")), None)
    if target is None or not methods.keys().isdisjoint({*BRIGHTNESS, COLOR}):
        return None
    measured = _first(("current_temperature", "temperature"), states)
    if target == "set_temperature" and measured == "temperature" and "target_temperature" not in states:
        measured = None  # what is set has that name
    shown = "target_temperature" if measured or target != "set_temperature" else "temperature"
    schema = (parameter(methods[target]) or ("", {}))[1]
    unit = (states[shown].unit if shown in states else None) or schema.get("unit")
    options = (parameter(methods["set_mode"]) or ("", {}))[1].get("enum") if "set_mode" in methods else None
    modes = options if options and set(MODES).issuperset(map(str, options)) else None
    on, off = next((each for each in PAIRS[:2] if {*each} <= methods.keys()), (None, None))
    if modes or not _takes_nothing(methods, on or "", off or ""):
        on = off = None
    return Appearance(
        component="climate",
        on=on,
        off=off,
        set=target,
        state=shown,
        current=measured,
        set_mode="set_mode" if modes else None,
        mode="mode" if modes else _first((on or "", *ON_STATES), states) or ON_STATES[0],
        options=modes or (["off", "heat"] if on else ["heat"]),
        least=schema.get("minimum"),
        most=schema.get("maximum"),
        step=1 if schema.get("type") == "integer" else 0.5,
        unit=unit,
    )


def _first(names: Iterable[str], states: Mapping[str, State]) -> str | None:
    return next((each for each in names if each in states), None)


def _takes_nothing(methods: Mapping[str, Method], *names: str) -> bool:
    return not any(methods[each].parameters.get("required") for each in names if each in methods)


def _takes(methods: Mapping[str, Method], name: str, *types: str) -> bool:
    only = parameter(methods[name]) if name in methods else None
    return only is not None and only[1].get("type") in types and "enum" not in only[1]


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
    takes_none = [calls[each] for each in _ACTIONS if each in calls]
    takes_one = [calls[each] for each in _SETTERS if each in calls]
    if any(each.parameters.get("required") for each in takes_none) or not all(map(parameter, takes_one)):
        return None
    if not any(fields <= calls.keys() for fields in _NEEDED.get(component or "none", (set(),))):
        return None
    property_ = appearance.state or name
    if component in (None, "none") or (
        component in ("sensor", "binary_sensor") and (property_ not in states or named)
    ):
        return None
    if component == "select" and not appearance.options:
        return None
    shows = {"state": property_, **{each: getattr(appearance, each) for each in _PROPERTIES[1:]}}
    values = {each: states[of].value for each, of in shows.items() if of in states}
    return Entity(skill, name, appearance, calls, values)


def _words(name: str) -> str:
    """Return ``next_track`` and ``NextTrack`` as ``Next track``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.-]+", " ", name).strip()
    return words[:1].upper() + words[1:].lower()
