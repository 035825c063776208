"""Home Assistant's entities for everyday sentences: their names, and the method that an intent means."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from agent_core.sentences.intents import EVERYWHERE, Slots
from agent_core.sentences.matching import spoken
from contracts.errors import StrawberryError
from hub_home_assistant.inward.entities import Entity, EntityIndex, House

_EVERYTHING: Final = frozenset({"fan", "light", "media_player", "switch"})
"""What "turn off everything" means."""
_LEVELS: Final = {
    "HassSetPosition": "position",
    "HassFanSetSpeed": "percentage",
    "HassSetVolume": "volume_level",
}
_SERVICES: Final = {
    "HassMediaPause": ("media_player", "media_pause"),
    "HassMediaUnpause": ("media_player", "media_play"),
    "HassMediaNext": ("media_player", "media_next_track"),
    "HassMediaPrevious": ("media_player", "media_previous_track"),
    "HassVacuumStart": ("vacuum", "start"),
    "HassVacuumReturnToBase": ("vacuum", "return_to_base"),
    "HassLawnMowerStartMowing": ("lawn_mower", "start_mowing"),
    "HassLawnMowerDock": ("lawn_mower", "dock"),
}
_SWITCHED: Final = {
    "HassTurnOn": {"cover": "open_cover", "valve": "open_cover", "lock": "lock"},
    "HassTurnOff": {"cover": "close_cover", "valve": "close_cover", "lock": "unlock"},
}
_CONTACT: Final = {"open": "on", "closed": "off"}
_PRESSED: Final = frozenset({"button", "input_button"})
"""What they do is not known: only a model that asks presses them."""


class HomeSentences:
    """See `agent_core.sentences.intents.Home`.

    Args:
        house: Who keeps the entities now.
    """

    def __init__(self, house: Callable[[], House]) -> None:
        self._house = house

    def names(self) -> Iterable[tuple[str, str, str]]:
        """Return each name of the main entities once for each domain, with the id or name that it means."""
        index = self._index
        for domain in sorted({each.domain for each in index.by_id.values()}):
            for said, value in index.called(frozenset({domain})).items():
                yield said, value, domain

    def areas(self) -> Mapping[str, str]:
        return {spoken(name): place.name for place in self._index.places for name in place.names}

    def floors(self) -> Mapping[str, str]:
        floors = [place.floor for place in self._index.places if place.floor is not None]
        return {spoken(name): floor.name for floor in floors for name in floor.names}

    def call(self, intent: str, slots: Slots, domain: str) -> tuple[str, Slots] | None:
        """Return the method of `HomeAssistantSkill` that is meant; None where it means nothing."""
        service = _SERVICES.get(intent)
        domain = domain or (service[0] if service else "light" if intent == "HassLightSet" else "")
        if intent.startswith("HassClimate"):
            domain = domain or "climate"
        elif intent in ("HassSetVolume", "HassSetVolumeRelative"):
            domain = "media_player"
        if intent in ("HassClimateGetTemperature", "Measure"):
            return self._measured(slots)
        names = self._meant(intent, slots, domain)
        if (
            names is None
            and intent == "HassGetState"
            and domain == "cover"
            and slots.get("state") in _CONTACT
        ):
            # A window is a cover where it has a motor, and a contact everywhere else.
            domain, slots = "binary_sensor", {**slots, "state": _CONTACT[str(slots["state"])]}
            names = self._meant(intent, slots, domain)
        if names is None or domain in _PRESSED:
            return None
        given: Slots = {"name": names}
        if intent in _SWITCHED:
            method = _SWITCHED[intent].get(domain) or ("turn_on" if intent == "HassTurnOn" else "turn_off")
            return method, given
        if intent == "HassGetState":
            return (
                ("check_states", {**given, "state": slots["state"]})
                if "state" in slots
                else ("get_state", given)
            )
        if intent == "Toggle":
            return "toggle", given
        if intent == "HassLightSet":
            if "brightness" in slots:
                return "set_level", {**given, "percent": slots["brightness"]}
            return ("set_color", {**given, "color": slots["color"]}) if "color" in slots else None
        if intent in _LEVELS:
            return "set_level", {**given, "percent": slots.get(_LEVELS[intent])}
        if intent == "HassClimateSetTemperature":
            return "set_temperature", {**given, "degrees": slots.get("temperature")}
        if intent == "HassSetVolumeRelative" and slots.get("volume_step") in ("up", "down"):
            return "operate", {**given, "action": f"volume_{slots['volume_step']}"}
        return ("operate", {**given, "action": service[1]}) if service else None

    @property
    def _index(self) -> EntityIndex:
        return self._house().entities

    def _measured(self, slots: Slots) -> tuple[str, Slots] | None:
        place = slots.get("area") or slots.get("floor")
        given: Slots = {"quantity": slots["quantity"]} if "quantity" in slots else {}
        return (
            ("measure", {"area": place, **given}) if isinstance(place, str) and place != EVERYWHERE else None
        )

    def _meant(self, intent: str, slots: Slots, domain: str) -> str | list[str] | None:
        """Return the entities that are meant: a name, or the ids of those in a place and of a kind."""
        place = slots.get("area") or slots.get("floor")
        is_unplaced = place == EVERYWHERE
        if is_unplaced:
            place = None
        if isinstance(name := slots.get("name"), str):
            if not isinstance(place, str):
                return name
            try:
                return self._index.named(name, domains=frozenset({domain}), area=place).id
            except StrawberryError:
                return None
        domains = _EVERYTHING if domain == "everything" else frozenset({domain})
        try:
            found = (
                self._index.within(place, domains)
                if isinstance(place, str)
                else [each for each in self._index.by_id.values() if each.is_main and each.domain in domains]
            )
        except StrawberryError:
            return None
        classes = slots.get("device_class")
        if classes is not None:
            found = [each for each in found if each.device_class == classes]
        if is_unplaced and domain == "media_player":
            found = self._playing(found)
        if is_unplaced and intent != "HassGetState" and len(found) > 1:
            return None  # which of them is not known
        ids = [each.id for each in found]
        return (ids[0] if len(ids) == 1 else ids) if ids else None

    def _playing(self, players: list[Entity]) -> list[Entity]:
        """Return the players that play, else the only one."""
        playing = [each for each in players if self._house().state(each).value == "playing"]
        return playing or (players if len(players) == 1 else [])
