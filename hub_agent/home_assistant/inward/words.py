"""The sentences of the skill in English and German, and the words of states."""

from typing import Annotated, Any, Final, TypedDict

from pydantic import Field

from contracts.wire import Json
from hub_agent.home_assistant.inward.entities import Entity


class Spoken(TypedDict):
    """What ``skill_method`` takes: sentences, and how the result is said, by language."""

    sentences: dict[str, list[str]]
    responses: dict[str, str]


_DAS: Final = "[das|die|den|der]"
_IM: Final = "(im|in der|in|auf dem|auf der)"
_IN: Final = "(in|on|of) [the]"
_LIGHTS: Final = "[alle|das|die] (licht|lichter|lampen)"


def _switching(english: str, german: tuple[str, ...], said: str, gesagt: str) -> Spoken:
    """Make the sentences of turning something on or off."""
    return {
        "sentences": {
            "en": [
                f"(turn|switch) {english} [the] {{name}}",
                f"(turn|switch) [the] {{name}} {english}",
                f"(turn|switch) {english} [all] [the] lights {_IN} {{area}}",
                f"(turn|switch) [all] [the] lights {_IN} {{area}} {english}",
                f"(turn|switch) {english} [all] [the] {{area}} lights",
            ],
            "de": [
                f"(schalte|schalt|mache|mach) {_DAS} {{name}} ({'|'.join(german)})",
                f"(schalte|schalt|mache|mach) {_LIGHTS} {_IM} {{area}} ({'|'.join(german)})",
            ],
        },
        "responses": {"en": f"{said} {{result.names}}.", "de": f"{{result.names}}: {gesagt}."},
    }


TURN_ON: Final = _switching("on", ("ein", "an"), "Turned on", "eingeschaltet")
TURN_ON["sentences"]["en"] += ["(activate|run) [the] {name} [scene|script]"]
TURN_ON["sentences"]["de"] += [f"aktiviere {_DAS} {{name}}"]
TURN_OFF: Final = _switching("off", ("aus", "ab"), "Turned off", "ausgeschaltet")
TOGGLE: Final[Spoken] = {
    "sentences": {"en": ["toggle [the] {name}"], "de": [f"schalte {_DAS} {{name}} um"]},
    "responses": {"en": "Toggled {result.names}.", "de": "{result.names}: umgeschaltet."},
}
SET_LEVEL: Final[Spoken] = {
    "sentences": {
        "en": [
            "(set|dim|turn) [the] {name} to {percent} [percent]",
            f"(set|dim|turn) [the] lights {_IN} {{area}} to {{percent}} [percent]",
        ],
        "de": [
            f"(stelle|stell|setze|setz|dimme|dimm) {_DAS} {{name}} auf {{percent}} [prozent]",
            f"(stelle|stell|setze|setz|dimme|dimm) {_LIGHTS} {_IM} {{area}} auf {{percent}} [prozent]",
        ],
    },
    "responses": {"en": "Set {result.names} to {percent} %.", "de": "{result.names}: {percent} %."},
}
SET_TEMPERATURE: Final[Spoken] = {
    "sentences": {
        "en": [
            "set [the] {name} to {degrees} [degrees]",
            f"set the temperature {_IN} {{area}} to {{degrees}} [degrees]",
        ],
        "de": [
            f"(stelle|stell|setze|setz) {_DAS} {{name}} auf {{degrees}} [grad]",
            f"(stelle|stell|setze|setz) die temperatur {_IM} {{area}} auf {{degrees}} [grad]",
        ],
    },
    "responses": {"en": "Set {result.names} to {degrees}°.", "de": "{result.names}: {degrees}°."},
}
OPEN: Final[Spoken] = {
    "sentences": {
        "en": ["open [the] {name}"],
        "de": [f"öffne {_DAS} {{name}}", f"(mache|mach|fahre|fahr) {_DAS} {{name}} (auf|hoch)"],
    },
    "responses": {"en": "Opening {result.names}.", "de": "{result.names}: wird geöffnet."},
}
CLOSE: Final[Spoken] = {
    "sentences": {
        "en": ["(close|shut) [the] {name}"],
        "de": [
            f"(schließe|schließ) {_DAS} {{name}}",
            f"(mache|mach|fahre|fahr) {_DAS} {{name}} (zu|runter|herunter)",
        ],
    },
    "responses": {"en": "Closing {result.names}.", "de": "{result.names}: wird geschlossen."},
}
LOCK: Final[Spoken] = {
    "sentences": {
        "en": ["lock [the] {name}"],
        "de": [
            f"(verriegle|verriegele) {_DAS} {{name}}",
            f"(schließe|schließ|sperre|sperr) {_DAS} {{name}} (ab|zu)",
        ],
    },
    "responses": {"en": "Locked {result.names}.", "de": "{result.names}: abgeschlossen."},
}
UNLOCK: Final[Spoken] = {
    "sentences": {
        "en": ["unlock [the] {name}"],
        "de": [
            f"(entriegle|entriegele) {_DAS} {{name}}",
            f"(schließe|schließ|sperre|sperr) {_DAS} {{name}} auf",
        ],
    },
    "responses": {"en": "Unlocked {result.names}.", "de": "{result.names}: aufgeschlossen."},
}
IS: Final[Spoken] = {
    "sentences": {"en": ["(is|are) [the] {name} {value}"], "de": [f"(ist|sind) {_DAS} {{name}} {{value}}"]},
    "responses": {
        "en": "{result.is_so:Yes|No}, {result.name} is {result.state}.",
        "de": "{result.is_so:Ja|Nein}, {result.name} ist {result.state}.",
    },
}
STATE: Final[Spoken] = {
    "sentences": {
        "en": ["(what is|what's) [the] {name}", "(what is|what's) the (state|status) of [the] {name}"],
        "de": [
            f"(was|wie) (ist|zeigt) {_DAS} {{name}}",
            f"(wie ist|was ist) der (zustand|status) von {_DAS} {{name}}",
        ],
    },
    "responses": {
        "en": "{result.name}: {result.state}[ {result.unit}].",
        "de": "{result.name}: {result.state}[ {result.unit}].",
    },
}
MEASURE: Final[Spoken] = {
    "sentences": {
        "en": [
            f"(what is|what's) the {{quantity}} {_IN} {{area}}",
            "how (warm|hot|cold) is it (in|on) [the] {area}",
        ],
        "de": [
            f"(wie|was) ist die {{quantity}} {_IM} {{area}}",
            f"welche {{quantity}} (ist|hat) [es] [{_IM}] [der|die|das] {{area}}",
            f"wie (warm|kalt) ist es {_IM} {{area}}",
        ],
    },
    "responses": {
        "en": "[It is {result.value} {result.unit}.][{result.several}.]",
        "de": "[Es sind {result.value} {result.unit}.][{result.several}.]",
    },
}

_QUANTITIES: Final = {
    "temperature": "temperature Temperatur",
    "humidity": "humidity Luftfeuchtigkeit Feuchtigkeit",
    "illuminance": "illuminance brightness Helligkeit",
    "pressure": "pressure Luftdruck",
    "power": "power Leistung",
    "carbon_dioxide": "CO2",
}
"""Device classes by the words for them."""
_ENGLISH_CONDITIONS: Final = frozenset({"on", "off", "open", "closed", "shut", "locked", "unlocked"})
_CONDITIONS: Final = {
    "on": "on an eingeschaltet",
    "off": "off aus ausgeschaltet",
    "open": "open offen auf",
    "closed": "closed shut geschlossen zu",
    "locked": "locked abgeschlossen verriegelt",
    "unlocked": "unlocked aufgeschlossen entriegelt",
}


def _by_word(table: dict[str, str]) -> dict[str, Json]:
    return {word: meant for meant, words in table.items() for word in words.split()}


_MEASURED: Final = _by_word(_QUANTITIES)
_WANTED: Final = _by_word(_CONDITIONS)
Quantity = Annotated[str, Field(json_schema_extra={"enum": list(_MEASURED)})]
Condition = Annotated[str, Field(json_schema_extra={"enum": list(_WANTED)})]
_GERMAN: Final = {
    "on": "an",
    "off": "aus",
    "open": "offen",
    "opening": "dabei, sich zu öffnen",
    "closed": "geschlossen",
    "closing": "dabei, sich zu schließen",
    "locked": "abgeschlossen",
    "unlocked": "nicht abgeschlossen",
    "unavailable": "nicht erreichbar",
    "unknown": "unbekannt",
}
_OPENINGS: Final = frozenset({"door", "garage_door", "opening", "window"})
_BUSY: Final = frozenset({"climate", "fan", "humidifier", "media_player", "vacuum", "water_heater"})
"""Domains in which what is not off is on, whatever it does."""
_OFF: Final = frozenset({"off", "standby", "unavailable", "unknown", None})


def quantity_class(quantity: str) -> Json:
    """Return the device class of what is measured."""
    return _MEASURED[quantity]


def said_state(entity: Entity, value: Json) -> Json:
    """Return a state as it is said: a door sensor is open and not on."""
    if entity.domain == "binary_sensor" and value in ("on", "off"):
        if entity.device_class in _OPENINGS:
            return "open" if value == "on" else "closed"
        if entity.device_class == "lock":
            return "unlocked" if value == "on" else "locked"
    return value


def wanted_state(entity: Entity, value: Json, condition: str) -> tuple[bool, str]:
    """Return whether an entity is in a condition, and how it is, in the language of the condition."""
    wanted, state = _WANTED[condition], said_state(entity, value)
    is_so = state == wanted
    if entity.domain in _BUSY and wanted in ("on", "off"):
        is_so = (state not in _OFF) == (wanted == "on") and state not in ("unavailable", "unknown", None)
    word: Any = "unknown" if state is None else state
    return is_so, str(word) if condition in _ENGLISH_CONDITIONS else _GERMAN.get(word, str(word))
