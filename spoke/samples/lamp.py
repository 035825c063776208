"""A lamp that is not there, to try things on."""

import re
import threading
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field

from contracts.errors import InvalidMessage
from strawberry_skills import Skill, Unit, skill_method

_HEX_COLOR = re.compile(r"#[0-9a-f]{6}\Z")
_COLORS = {
    "white": "#ffffff",
    "red": "#ff0000",
    "green": "#00ff00",
    "blue": "#0000ff",
    "yellow": "#ffff00",
    "orange": "#ffa500",
    "purple": "#800080",
    "pink": "#ffc0cb",
    "turquoise": "#40e0d0",
}

Percent = Annotated[int, Field(ge=0, le=100), Unit("%")]

_STATUS = {
    "en": "The lamp is {result.is_on:on|off}[{result.is_on:, at |}{result.brightness}].",
    "de": "Die Lampe ist {result.is_on:an|aus}[{result.is_on:, mit |}{result.brightness}].",
}


@dataclass
class LampStatus:
    """How the lamp is set; the colour as ``#rrggbb``."""

    is_on: bool = False
    brightness: Percent = 100
    color: str = "#ffffff"


class LampSkill(Skill):
    """A virtual lamp: on, off, brightness and colour."""

    labels = {"de": {"LampSkill": "Lampe"}, "en": {"color": "Colour"}}

    def __init__(self) -> None:
        self._status = LampStatus()
        self._lock = threading.Lock()

    async def setup(self) -> None:
        self._set()

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["(turn|switch) on [the] lamp", "(turn|switch) [the] lamp on"],
            "de": ["(schalte|schalt|mach|mache) [die] Lampe (an|ein)"],
        },
        responses={"de": "Die Lampe ist an."},
    )
    def turn_on(self) -> str:
        """Turn the lamp on."""
        self._set(is_on=True)
        return "The lamp is on."

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["(turn|switch) off [the] lamp", "(turn|switch) [the] lamp off"],
            "de": ["(schalte|schalt|mach|mache) [die] Lampe aus"],
        },
        responses={"de": "Die Lampe ist aus."},
    )
    def turn_off(self) -> str:
        """Turn the lamp off."""
        self._set(is_on=False)
        return "The lamp is off."

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["(set|dim) [the] lamp [brightness] to {percent} [percent]"],
            "de": ["(stelle|stell|dimme) [die] Lampe auf {percent} [Prozent]"],
        },
        responses=_STATUS,
    )
    def set_brightness(self, percent: Percent) -> LampStatus:
        """Set how bright the lamp is; 0 turns it off.

        Args:
            percent: From 0 to 100.
        """
        return self._set(is_on=percent > 0, brightness=percent)

    @skill_method(idempotent=True)
    def set_color(self, color: str) -> LampStatus:
        """Set the colour of the lamp, and turn it on.

        Args:
            color: White, red, green, blue, yellow, orange, purple, pink, turquoise, or ``#rrggbb``.
        """
        wanted = color.strip().lower()
        wanted = _COLORS.get(wanted, wanted)
        if not _HEX_COLOR.match(wanted):
            known = ", ".join(_COLORS)
            raise InvalidMessage(
                "{color!r} is no colour", color=color, known=known, hint="Possible are {known} and #rrggbb."
            )
        return self._set(is_on=True, color=wanted)

    @skill_method(
        read_only=True,
        sentences={
            "en": ["is the lamp on", "is the lamp off"],
            "de": ["ist die Lampe an", "ist die Lampe aus"],
        },
        responses=_STATUS,
    )
    def status(self) -> LampStatus:
        """Return how the lamp is set."""
        with self._lock:
            return LampStatus(**asdict(self._status))

    def _set(self, **changes: object) -> LampStatus:
        with self._lock:
            for name, value in changes.items():
                setattr(self._status, name, value)
            status = LampStatus(**asdict(self._status))
            # Published under the lock, so that the last one published is the last one set.
            self.state("power", "on" if status.is_on else "off")
            self.state("brightness", status.brightness, unit="%")
            self.state("color", status.color)
        return status
