"""Something in the home."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from agent_core.search.words import naming_words
from contracts.answers.live import ShownThing
from contracts.wire import Json
from hub_live.topics import field

OWN_KINDS: Final = ("area", "device", "node", "state", "skill")
"""Kinds that are not those of Home Assistant's entities."""
_OPENINGS: Final = frozenset({"door", "garage_door", "opening", "window"})


@dataclass(frozen=True)
class Thing(ShownThing):
    """Something in the home, as the hub finds it by words."""

    def reading(self, payload: Json) -> Json:
        """Return the state in a decoded payload; ``on`` or ``off`` where a value means that."""
        value = field(payload, self.field)
        return ("on", "off")[self.on_off.index(str(value))] if str(value) in self.on_off else value

    @property
    def is_entity(self) -> bool:
        return self.kind == "state" or self.kind not in OWN_KINDS

    @cached_property
    def words(self) -> frozenset[str]:
        return naming_words(self.name) | naming_words(self.device or "") | naming_words(self.area or "")

    @property
    def kind_words(self) -> frozenset[str]:
        return naming_words(self.kind) | naming_words(self.device_class or "")


def state_word(kind: str, device_class: str | None, state: Json) -> Json:
    """Return a state in words: a door sensor is open and not on."""
    if kind == "binary_sensor" and state in ("on", "off"):
        if device_class in _OPENINGS:
            return "open" if state == "on" else "closed"
        if device_class == "lock":
            return "unlocked" if state == "on" else "locked"
    return state
