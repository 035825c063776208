"""The sentences of the skill in English and German, and the words of states."""

from typing import Annotated, Any, Final, TypedDict

from pydantic import Field

from contracts.wire import Json
from hub_home_assistant.inward.entities import Entity
from hub_live.world.thing import state_word


class Spoken(TypedDict):
    """What ``skill_method`` takes: sentences, and the sentence for the result, by language."""

    sentences: dict[str, list[str]]
    responses: dict[str, str]


_DAS: Final = "[das|die|den|der]"
_IM: Final = "(im|in der|in|auf dem|auf der)"
_IN: Final = "(in|on|of) [the]"
_LIGHTS: Final = "[alle|das|die] (licht|lichter|lampen)"


def _spoken(english: list[str], german: list[str], said: str, gesagt: str) -> Spoken:
    """Make sentences with what is answered, and with what could not be reached."""
    said += "[ {result.unavailable} cannot be reached.]"
    gesagt += "[ Nicht erreichbar: {result.unavailable}.]"
    return {"sentences": {"en": english, "de": german}, "responses": {"en": said, "de": gesagt}}


def _switching(english: str, german: str, said: str, gesagt: str) -> Spoken:
    """Make the sentences of turning something on or off."""
    return _spoken(
        [
            f"(turn|switch) {english} [the] {{name}}",
            f"(turn|switch) [the] {{name}} {english}",
            f"(turn|switch) {english} [all] [the] lights {_IN} {{area}}",
            f"(turn|switch) [all] [the] lights {_IN} {{area}} {english}",
            f"(turn|switch) {english} [all] [the] {{area}} lights",
        ],
        [
            f"(schalte|schalt|mache|mach) {_DAS} {{name}} {german}",
            f"(schalte|schalt|mache|mach) {_LIGHTS} {_IM} {{area}} {german}",
            f"(schalte|schalt|mache|mach) {_IM} {{area}} {_LIGHTS} {german}",
        ],
        f"{said} {{result.names}}.",
        f"{{result.names}}: {gesagt}.",
    )


def _setting(slot: str, unit: str, einheit: str, place: tuple[str, str], sign: str) -> Spoken:
    """Make the sentences of setting something to a number.

    Args:
        place: What is set of an area, in both languages.
    """
    verbs, verben = "(set|dim|turn)", "(stelle|stell|setze|setz|dimme|dimm)"
    return _spoken(
        [
            f"{verbs} [the] {{name}} to {{{slot}}} [{unit}]",
            f"{verbs} {place[0]} {_IN} {{area}} to {{{slot}}} [{unit}]",
        ],
        [
            f"{verben} {_DAS} {{name}} auf {{{slot}}} [{einheit}]",
            f"{verben} {place[1]} {_IM} {{area}} auf {{{slot}}} [{einheit}]",
        ],
        f"Set {{result.names}} to {{{slot}}}{sign}.",
        f"{{result.names}}: {{{slot}}}{sign}.",
    )


TURN_ON: Final = _switching("on", "(ein|an)", "Turned on", "eingeschaltet")
TURN_ON["sentences"]["en"] += ["(activate|run) [the] {name} [scene|script]"]
TURN_ON["sentences"]["de"] += [f"aktiviere {_DAS} {{name}}"]
TURN_OFF: Final = _switching("off", "(aus|ab)", "Turned off", "ausgeschaltet")
TOGGLE: Final = _spoken(
    ["toggle [the] {name}"],
    [f"schalte {_DAS} {{name}} um"],
    "Toggled {result.names}.",
    "{result.names}: umgeschaltet.",
)
SET_LEVEL: Final = _setting("percent", "percent", "prozent", ("[all] [the] lights", _LIGHTS), " %")
SET_TEMPERATURE: Final = _setting("degrees", "degrees", "grad", ("the temperature", "die temperatur"), "°")
OPEN: Final = _spoken(
    ["open [the] {name}"],
    [f"öffne {_DAS} {{name}}", f"(mache|mach|fahre|fahr) {_DAS} {{name}} (auf|hoch)"],
    "Opening {result.names}.",
    "{result.names}: wird geöffnet.",
)
CLOSE: Final = _spoken(
    ["(close|shut) [the] {name}"],
    [f"(schließe|schließ) {_DAS} {{name}}", f"(mache|mach|fahre|fahr) {_DAS} {{name}} (zu|runter|herunter)"],
    "Closing {result.names}.",
    "{result.names}: wird geschlossen.",
)
LOCK: Final = _spoken(
    ["lock [the] {name}"],
    [
        f"(verriegle|verriegele) {_DAS} {{name}}",
        f"(schließe|schließ|sperre|sperr) {_DAS} {{name}} (ab|zu)",
    ],
    "Locked {result.names}.",
    "{result.names}: abgeschlossen.",
)
UNLOCK: Final = _spoken(
    ["unlock [the] {name}"],
    [
        f"(entriegle|entriegele) {_DAS} {{name}}",
        f"(schließe|schließ|sperre|sperr) {_DAS} {{name}} auf",
    ],
    "Unlocked {result.names}.",
    "{result.names}: aufgeschlossen.",
)
IS: Final = _spoken(
    ["(is|are) [the] {name} {value}"],
    [f"(ist|sind) {_DAS} {{name}} {{value}}"],
    "{result.is_so:Yes|No}, {result.name} is {result.state}.",
    "{result.is_so:Ja|Nein}, {result.name} ist {result.state}.",
)
STATE: Final = _spoken(
    ["(what is|what's) [the] {name}", "(what is|what's) the (state|status) of [the] {name}"],
    [
        f"(was|wie) (ist|zeigt) {_DAS} {{name}}",
        f"(wie ist|was ist) der (zustand|status) von {_DAS} {{name}}",
    ],
    "{result.name}: {result.state}[ {result.unit}].",
    "{result.name}: {result.state_de}[ {result.unit}].",
)
MEASURE: Final = _spoken(
    [
        f"(what is|what's) the {{quantity}} {_IN} {{area}}",
        "how (warm|hot|cold) is it (in|on) [the] {area}",
    ],
    [
        f"(wie|was) ist die {{quantity}} {_IM} {{area}}",
        f"welche {{quantity}} (ist|hat) [es] [{_IM}] [der|die|das] {{area}}",
        f"wie (warm|kalt) ist es {_IM} {{area}}",
    ],
    "[It is {result.value} {result.unit}.][{result.several}.]",
    "[Es sind {result.value} {result.unit}.][{result.several}.]",
)

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
    "disarmed": "unscharf",
    "armed_away": "scharf",
    "armed_home": "scharf, für Anwesende",
    "armed_night": "scharf, für die Nacht",
    "triggered": "ausgelöst",
    "heat": "heizen",
    "cool": "kühlen",
    "auto": "automatisch",
    "home": "zu Hause",
    "not_home": "unterwegs",
    "playing": "spielt",
    "paused": "pausiert",
    "idle": "bereit",
    "unavailable": "nicht erreichbar",
    "unknown": "unbekannt",
}
_BUSY: Final = frozenset({"climate", "fan", "humidifier", "media_player", "vacuum", "water_heater"})
"""Domains in which what is not off is on, whatever it does."""
_OFF: Final = frozenset({"off", "standby", "unavailable", "unknown", None})


def quantity_class(quantity: str) -> Json:
    """Return the device class of what is measured."""
    return _MEASURED[quantity]


def said_state(entity: Entity, value: Json) -> Json:
    """Return a state in words, as `state_word` does."""
    return state_word(entity.domain, entity.device_class, value)


def german_state(value: Json) -> Json:
    """Return a state in German, where there is a word for it."""
    return _GERMAN.get(value, value) if isinstance(value, str) else value


def is_busy_as(entity: Entity, state: Json, wanted: str) -> bool:
    """Return whether what is busy or not is on or off, whatever its state is called."""
    if entity.domain not in _BUSY or wanted not in ("on", "off"):
        return False
    return (state not in _OFF) == (wanted == "on") and state not in ("unavailable", "unknown", None)


def wanted_state(entity: Entity, value: Json, condition: str) -> tuple[bool, str]:
    """Return whether an entity is in a condition, and how it is, in the language of the condition."""
    wanted, state = _WANTED[condition], said_state(entity, value)
    is_so = state == wanted or is_busy_as(entity, state, str(wanted))
    word: Any = "unknown" if state is None else state
    return is_so, str(word if condition in _ENGLISH_CONDITIONS else german_state(word))
