"""Pins of a Raspberry Pi: relays, lights and buttons that its owner has named."""

import importlib.util
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from contracts.errors import NotFound
from strawberry_skills import Skill, Unit, skill_method

if TYPE_CHECKING:
    from gpiozero import DigitalInputDevice, DigitalOutputDevice

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")]
Pin = Annotated[int, Field(ge=0, le=27)]
Seconds = Annotated[float, Field(gt=0, le=60), Unit("s")]


class GpioSkill(Skill):
    """The pins of this computer that have a name: outputs to turn on and off, and inputs such as buttons."""

    labels = {
        "de": {"GpioSkill": "Pins", "pins": "Pins", "pulse": "Kurz einschalten"},
        "en": {"GpioSkill": "Pins", "pulse": "Switch on briefly"},
    }

    class Settings(BaseModel):
        """Names of pins by their BCM numbers; a pin without a name is never touched."""

        outputs: dict[Name, Pin] = Field(default={}, max_length=28)
        inputs: dict[Name, Pin] = Field(default={}, max_length=28)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: dict[tuple[str, int], DigitalOutputDevice] = {}
        self._inputs: dict[tuple[str, int], DigitalInputDevice] = {}

    @classmethod
    def can_run(cls) -> bool:
        """Return whether there are pins, and the extra ``gpio`` that reads them."""
        pins = any(Path("/dev").glob("gpiochip*")) or os.environ.get("GPIOZERO_PIN_FACTORY") == "mock"
        return pins and importlib.util.find_spec("gpiozero") is not None

    async def setup(self) -> None:
        with self._lock:
            self._open()

    async def close(self) -> None:
        with self._lock:
            for device in (*self._outputs.values(), *self._inputs.values()):
                device.close()

    @skill_method(read_only=True)
    def pins(self) -> dict[str, bool]:
        """Return which pins have a name, and whether each is on."""
        with self._lock:
            self._open()
            devices = {**self._outputs, **self._inputs}
            return {name: bool(device.value) for (name, _), device in devices.items()}

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["(turn|switch) on (pin|output) {name}"],
            "de": ["(schalte|schalt) Ausgang {name} ein"],
        },
        responses={"en": "{name} is on.", "de": "{name} ist an."},
    )
    def turn_on(self, name: str) -> None:
        """Turn an output on.

        Args:
            name: Its name, as ``pins`` gives it.
        """
        self._set(name, on=True)

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["(turn|switch) off (pin|output) {name}"],
            "de": ["(schalte|schalt) Ausgang {name} aus"],
        },
        responses={"en": "{name} is off.", "de": "{name} ist aus."},
    )
    def turn_off(self, name: str) -> None:
        """Turn an output off.

        Args:
            name: Its name, as ``pins`` gives it.
        """
        self._set(name, on=False)

    @skill_method(timeout_s=90)
    def pulse(self, name: str, seconds: Seconds = 1.0) -> None:
        """Turn an output on for a moment, for a door opener or a bell.

        Args:
            name: Its name, as ``pins`` gives it.
            seconds: How long, up to 60.
        """
        self._set(name, on=True)
        try:
            self.check_cancelled(wait_s=seconds)
        finally:
            self._set(name, on=False)

    def _set(self, name: str, *, on: bool) -> None:
        with self._lock:
            self._open()
            device = next((each for (known, _), each in self._outputs.items() if known == name), None)
            if device is None:
                known = (
                    ", ".join(each for each, _ in self._outputs)
                    or "none; name some in the settings of this skill"
                )
                raise NotFound("there is no output {name}; the outputs are: {known}", name=name, known=known)
            device.value = on
            self.state(name, "on" if on else "off")

    def _open(self) -> None:
        """Open the pins that have a name now, and close those that have none any more."""
        from gpiozero import DigitalInputDevice, DigitalOutputDevice

        outputs, inputs = self.settings.outputs.items(), self.settings.inputs.items()
        for opened, wanted in ((self._outputs, outputs), (self._inputs, inputs)):
            for key in [key for key in opened if key not in wanted]:
                opened.pop(key).close()
        for key in outputs:
            if key not in self._outputs:
                # What the pin is at the moment stays.
                self._outputs[key] = DigitalOutputDevice(key[1], initial_value=None)
        for key in inputs:
            if key not in self._inputs:
                self._inputs[key] = device = DigitalInputDevice(key[1], pull_up=True, bounce_time=0.02)
                self._follow(key[0], device)

    def _follow(self, name: str, device: "DigitalInputDevice") -> None:
        device.when_activated = lambda: self.state(name, "on")
        device.when_deactivated = lambda: self.state(name, "off")
        self.state(name, "on" if device.value else "off")
