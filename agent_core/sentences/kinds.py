"""Kinds of skills, and which of their methods an intent of Home Assistant means."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from contracts.wire import Json

LIGHT_WORDS: Final = frozenset({"lamp", "lamps", "light", "lights", "bulb"})
_COVER_WORDS: Final = frozenset(
    {"awning", "blind", "blinds", "cover", "curtain", "curtains", "door", "garage", "gate", "roller"}
    | {"shade", "shutter", "shutters", "window"}
)
_BY_METHODS: Final = (
    ("lock", ({"lock", "unlock"},), None),
    ("cover", ({"open", "close"}, {"open_cover", "close_cover"}), _COVER_WORDS),
    ("cover", ({"open", "close", "set_position"},), None),
    ("media_player", ({"play", "pause"},), None),
    ("vacuum", ({"start", "return_to_base"}, {"start", "dock"}), frozenset({"vacuum", "robot", "hoover"})),
    ("lawn_mower", ({"start_mowing"}, {"start", "dock"}), frozenset({"mower", "lawn"})),
    ("climate", ({"set_temperature"},), None),
    ("fan", ({"turn_on", "turn_off"},), frozenset({"fan", "ventilator"})),
    ("light", ({"turn_on", "turn_off"}, {"switch_on", "switch_off"}), LIGHT_WORDS),
    ("light", ({"turn_on", "turn_off", "set_brightness"}, {"turn_on", "turn_off", "set_color"}), None),
    ("switch", ({"turn_on", "turn_off"}, {"switch_on", "switch_off"}), None),
    ("scene", ({"activate"},), frozenset({"scene"})),
    ("timer", ({"set_timer"},), None),
    ("list", ({"add_item"}, {"add"}), frozenset({"list", "shopping", "groceries", "todo"})),
    ("clock", ({"time", "date"},), None),
    ("weather", ({"weather"}, {"current"}, {"now"}, {"forecast"}), frozenset({"weather"})),
    ("broadcast", ({"broadcast"}, {"announce"}), None),
    ("help", ({"help"},), frozenset({"help"})),
)
"""A kind, sets of methods of which it has one, and words of which its name has one; the first that fits."""

LATER: Final = "CallLater"
"""The intent of "turn off the lamp in 20 minutes", which the package has as a timer with a command."""
_ON: Final = ("turn_on", "switch_on")
_OFF: Final = ("turn_off", "switch_off")
_CALLS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("HassTurnOn", ""): _ON,
    ("HassTurnOn", "cover"): ("open", "open_cover"),
    ("HassTurnOn", "lock"): ("lock",),
    ("HassTurnOn", "scene"): ("activate", *_ON),
    ("HassTurnOff", ""): _OFF,
    ("HassTurnOff", "cover"): ("close", "close_cover"),
    ("HassTurnOff", "lock"): ("unlock",),
    ("Toggle", ""): ("toggle",),
    ("HassLightSet", "light"): ("set_brightness {brightness}", "set_color {color}", "set_level {brightness}"),
    ("HassSetPosition", "cover"): ("set_position {position}",),
    ("HassFanSetSpeed", "fan"): ("set_speed {percentage}", "set_percentage {percentage}"),
    ("HassClimateSetTemperature", "climate"): ("set_temperature {temperature}",),
    ("HassMediaPause", "media_player"): ("pause",),
    ("HassMediaUnpause", "media_player"): ("resume", "play"),
    ("HassMediaNext", "media_player"): ("next_track", "next"),
    ("HassMediaPrevious", "media_player"): ("previous_track", "previous"),
    ("HassMediaPlayerMute", "media_player"): ("mute",),
    ("HassMediaPlayerUnmute", "media_player"): ("unmute",),
    ("HassSetVolume", "media_player"): ("set_volume {volume_level}",),
    ("HassSetVolumeRelative", "media_player"): ("change_volume {volume_step}",),
    ("HassVacuumStart", "vacuum"): ("start", "clean"),
    ("HassVacuumReturnToBase", "vacuum"): ("return_to_base", "dock"),
    ("HassLawnMowerStartMowing", "lawn_mower"): ("start_mowing", "start"),
    ("HassLawnMowerDock", "lawn_mower"): ("dock",),
    ("HassStartTimer", "timer"): ("set_timer {minutes} {text?}",),
    (LATER, "timer"): ("call_later {minutes} {call} {arguments} {text}",),
    ("HassCancelTimer", "timer"): ("cancel_timer {text?}",),
    ("HassCancelAllTimers", "timer"): ("cancel_all_timers",),
    ("HassPauseTimer", "timer"): ("pause_timer {text?}",),
    ("HassUnpauseTimer", "timer"): ("resume_timer {text?}",),
    ("HassIncreaseTimer", "timer"): ("add_to_timer {minutes} {text?}",),
    ("HassDecreaseTimer", "timer"): ("add_to_timer {minutes} {text?}",),
    ("HassTimerStatus", "timer"): ("timer_status {text?}",),
    ("HassShoppingListAddItem", "list"): ("add_item {item}", "add {item}"),
    ("HassShoppingListCompleteItem", "list"): ("complete_item {item}", "remove_item {item}"),
    ("ReadList", "list"): ("read_list",),
    ("Help", "help"): ("help",),
    ("HassGetCurrentTime", "clock"): ("time",),
    ("HassGetCurrentDate", "clock"): ("date",),
    ("HassGetWeather", "weather"): ("weather", "current", "now", "forecast"),
    ("HassBroadcast", "broadcast"): ("broadcast {message}", "announce {message}"),
}
"""Methods by intent and kind, with the slots that they are given; those with a ? may be missing."""

OPENING: Final = frozenset({"open", "open_cover", "unlock"})
"""Methods that may open an entrance."""
INTENTS: Final = frozenset(intent for intent, _ in _CALLS) | {
    "HassClimateGetTemperature",
    "HassGetState",
    "Measure",
}
NAMELESS: Final = frozenset({"broadcast", "clock", "help", "list", "media_player", "timer", "weather"})
"""Kinds of which a home has one as a rule: a sentence means them without a name or a room."""
_SLOT: Final = re.compile(r"\{(\w+)(\??)\}")
_STEP: Final = {"up": 10, "down": -10}


def kind_of(skill: str, methods: Iterable[str]) -> str | None:
    """Return what a skill is by its name and its methods; None where no sentence fits it."""
    names, words = frozenset(methods), frozenset(skill_words(skill).split())
    for kind, choices, needed in _BY_METHODS:
        if any(each <= names for each in choices) and (needed is None or needed & words):
            return kind
    return None


def skill_words(skill: str) -> str:
    """Return the spoken name of a class: ``bedroom lamp`` for ``BedroomLampSkill``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", skill.removesuffix("Skill")).lower()


def call_for(
    intent: str, kind: str, slots: Mapping[str, Json], parameters: Mapping[str, Iterable[str]]
) -> tuple[str, dict[str, Json]] | None:
    """Return the method that an intent means for a kind of skill, with its arguments; None where it has none.

    Args:
        slots: Values that were said.
        parameters: The names of the parameters of each method, in order.
    """
    said = _converted(intent, slots)
    for call in _CALLS.get((intent, kind)) or _CALLS.get((intent, ""), ()):
        method, _, wanted = call.partition(" ")
        if method not in parameters:
            continue
        pairs = list(zip(_SLOT.findall(wanted), parameters[method], strict=False))
        arguments = {name: said[slot] for (slot, _), name in pairs if slot in said}
        is_given = all(slot in said for (slot, optional), _ in pairs if not optional)
        if is_given and len(pairs) == wanted.count("{"):
            return method, arguments
    return None


def _converted(intent: str, slots: Mapping[str, Json]) -> dict[str, Json]:
    said = dict(slots)
    if intent.endswith("Timer") or intent in ("HassTimerStatus", LATER):
        parts = [
            (said.pop(unit, None), of) for unit, of in (("hours", 60), ("minutes", 1), ("seconds", 1 / 60))
        ]
        numbers = [part * of for part, of in parts if isinstance(part, int | float)]
        if numbers:
            said["minutes"] = round(sum(numbers), 4)
        if intent == "HassDecreaseTimer" and numbers:
            said["minutes"] = -sum(numbers)
    if intent == "HassCancelTimer":
        said.setdefault("text", "Timer")  # what one is called that was set without a name
    if isinstance(step := said.get("volume_step"), str):
        said["volume_step"] = _STEP.get(step)
    return {name: value for name, value in said.items() if value is not None}
