"""Skills of a device for the tests beside Home Assistant: they keep what was done and tell their state."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from agent_core.skills.results import Publication
from agent_core.skills.skill import Skill, SkillContext, attach, skill_method
from bus.link import Link, Message
from contracts import topics
from contracts.devices.presence import Emitted, State
from hub_registry.storage.tables import now
from tests.hub_agent.home import Device


class LinkSink:
    """Publishes states and events as a spoke does."""

    def __init__(self, link: Link, device: str) -> None:
        self._link = link
        self._device = device

    def __call__(self, publication: Publication) -> None:
        skill, name, value = publication.skill, publication.name, publication.value
        if publication.kind == "event":
            topic = topics.EVENT.build(device=self._device, name=name)
            payload = Emitted(skill=skill, data=value, at=now()).model_dump_json().encode()
        else:
            topic = topics.STATE.build(device=self._device, skill=skill, property=name)
            unit, device_class = publication.unit, publication.device_class
            state = State(value=value, unit=unit, device_class=device_class, at=now())
            payload = state.model_dump_json().encode() if publication.kind == "state" else b""
        self._link.publish_nowait(Message(topic, payload, 0, publication.kind != "event"))


class DeskLampSkill(Skill):
    """A lamp that can be dimmed."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.is_on, self.percent = False, 50

    def tell(self) -> None:
        self.state("is_on", self.is_on)
        self.state("brightness", self.percent)

    @skill_method(sentences={"en": ["light the desk"]}, responses={"en": "The desk is lit."})
    def turn_on(self) -> None:
        """Switch it on."""
        self.did.append("on")
        self.is_on = True
        self.tell()

    def turn_off(self) -> None:
        """Switch it off."""
        self.did.append("off")
        self.is_on = False
        self.tell()

    def set_brightness(self, percent: int) -> None:
        """Dim it."""
        self.did.append(f"brightness {percent}")
        self.percent = percent
        self.tell()


class PlayerSkill(Skill):
    """Something that plays music."""

    homeassistant: ClassVar[dict[str, dict[str, Any]]] = {
        "play": {"name": "Start the music"},
        "hidden": {"component": "none"},
        "rang": {"component": "event", "device_class": "doorbell"},
    }

    def __init__(self) -> None:
        self.did: list[str] = []

    def play(self) -> None:
        """Play."""
        self.did.append("play")

    def pause(self) -> None:
        """Pause."""
        self.did.append("pause")

    def next_track(self) -> None:
        """Go on to the next track."""
        self.did.append("next")
        self.state("now_playing", {"title": "Blue in Green", "artists": ["Miles Davis"]})

    def mute(self) -> None:
        """Mute."""
        self.did.append("mute")

    def unmute(self) -> None:
        """Unmute."""
        self.did.append("unmute")

    def hidden(self) -> None:
        """Nothing for Home Assistant."""
        self.did.append("hidden")

    def set_volume(self, level: int) -> None:
        """Set the volume."""
        self.did.append(f"volume {level}")
        self.state("volume", level, unit="%")

    def set_source(self, source: Literal["radio", "disc"]) -> None:
        """Choose what is played."""
        self.did.append(f"source {source}")

    def set_shuffle(self, on: bool) -> None:
        """Shuffle, or do not."""
        self.did.append(f"shuffle {on}")

    @skill_method(confirm=True)
    def sell(self) -> None:
        """Sell the player."""
        self.did.append("sold")

    @skill_method(destructive=True)
    def erase(self) -> None:
        """Erase all music."""
        self.did.append("erased")


class BlindSkill(Skill):
    """A blind of a window."""

    def __init__(self) -> None:
        self.did: list[str] = []

    @skill_method(idempotent=True)
    def open_blind(self) -> None:
        """Open it."""
        self.set_position(100)

    @skill_method(idempotent=True)
    def close_blind(self) -> None:
        """Close it."""
        self.set_position(0)

    @skill_method(idempotent=True)
    def stop(self) -> None:
        """Stop it."""
        self.did.append("stop")
        raise RuntimeError("the motor does not answer")

    @skill_method(idempotent=True)
    def set_position(self, percent: int) -> None:
        """Move it."""
        self.did.append(f"position {percent}")
        self.state("position", percent)


class DoorSkill(Skill):
    """The lock of a door."""

    def __init__(self) -> None:
        self.did: list[str] = []

    @skill_method(idempotent=True)
    def lock(self) -> None:
        """Lock it."""
        self.did.append("lock")
        self.state("locked", True)

    @skill_method(destructive=True)
    def unlock(self) -> None:
        """Unlock it."""
        self.did.append("unlock")
        self.state("locked", False)


class ThermostatSkill(Skill):
    """A heating."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def tell(self) -> None:
        self.state("temperature", 19.5, unit="°C")
        self.state("target_temperature", 20.0, unit="°C")
        self.state("mode", "auto")

    def set_temperature(self, degrees: Annotated[float, Field(ge=7, le=28)]) -> None:
        """Set the target."""
        self.did.append(f"target {degrees:g}")
        self.state("target_temperature", degrees, unit="°C")

    def set_mode(self, mode: Literal["off", "heat", "auto"]) -> None:
        """Set the mode."""
        self.did.append(mode)
        self.state("mode", mode)


class CeilingFanSkill(Skill):
    """A fan with four speeds."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def turn_on(self) -> None:
        """Start it."""
        self.did.append("on")
        self.state("is_on", True)

    def turn_off(self) -> None:
        """Stop it."""
        self.did.append("off")
        self.state("is_on", False)

    def set_speed(self, speed: Annotated[int, Field(ge=0, le=4)]) -> None:
        """Set how fast it is."""
        self.did.append(f"speed {speed}")
        self.state("speed", speed)


class StripLightSkill(Skill):
    """A light with colours."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def turn_on(self) -> None:
        """Switch it on."""
        self.state("is_on", True)

    def turn_off(self) -> None:
        """Switch it off."""
        self.state("is_on", False)

    def set_color(self, color: str) -> None:
        """Set the colour."""
        self.did.append(color)
        self.state("color", color)


def hosted(device: Device, *skills: Skill, directory: Any) -> None:
    """Give skills of a device the bus to publish on."""
    for skill in skills:
        attach(skill, SkillContext(directory, LinkSink(device.spoke.link, device.id)))
