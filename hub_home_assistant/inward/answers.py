"""Answers of the skill in English and German, and the words of states."""

from typing import Final

from agent_core.texts import translations
from contracts.wire import Json
from hub_home_assistant.inward.entities import Entity
from hub_live.world.thing import state_word


def _done(english: str, german: str) -> dict[str, str]:
    """Make the answers to a command, with what could not be reached."""
    return {
        "en": f"{english}[ {{result.unavailable}} cannot be reached.]",
        "de": f"{german}[ Nicht erreichbar: {{result.unavailable}}.]",
    }


TURN_ON: Final = _done("Turned on {result.names}.", "{result.names}: eingeschaltet.")
TURN_OFF: Final = _done("Turned off {result.names}.", "{result.names}: ausgeschaltet.")
TOGGLE: Final = _done("Toggled {result.names}.", "{result.names}: umgeschaltet.")
SET_LEVEL: Final = _done("Set {result.names} to {percent} %.", "{result.names}: {percent} %.")
SET_TEMPERATURE: Final = _done("Set {result.names} to {degrees}°.", "{result.names}: {degrees}°.")
OPEN: Final = _done("Opening {result.names}.", "{result.names}: wird geöffnet.")
CLOSE: Final = _done("Closing {result.names}.", "{result.names}: wird geschlossen.")
LOCK: Final = _done("Locked {result.names}.", "{result.names}: abgeschlossen.")
UNLOCK: Final = _done("Unlocked {result.names}.", "{result.names}: aufgeschlossen.")
STATE: Final = {
    "en": "{result.name}: {result.state}[ {result.unit}].",
    "de": "{result.name}: {result.state_de}[ {result.unit}].",
}
MEASURE: Final = {
    "en": "[It is {result.value} {result.unit}.][{result.several}.]",
    "de": "[Es sind {result.value} {result.unit}.][{result.several}.]",
}

_BUSY: Final = frozenset({"climate", "fan", "humidifier", "media_player", "vacuum", "water_heater"})
"""Domains in which what is not off is on, whatever it does."""
_OFF: Final = frozenset({"off", "standby", "unavailable", "unknown", None})


def said_state(entity: Entity, value: Json) -> Json:
    return state_word(entity.domain, entity.device_class, value)


def german_state(value: Json) -> Json:
    return translations("state", "de").get(value, value) if isinstance(value, str) else value


def is_busy_as(entity: Entity, state: Json, wanted: str) -> bool:
    """Return whether what is busy or not is on or off, whatever its state is called."""
    if entity.domain not in _BUSY or wanted not in ("on", "off"):
        return False
    return (state not in _OFF) == (wanted == "on") and state not in ("unavailable", "unknown", None)
