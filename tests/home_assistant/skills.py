"""Skills of a device for the tests beside Home Assistant: they keep what was done and tell their state."""

from typing import Any, ClassVar, Literal

from agent_core.skills.skill import Skill, SkillContext, attach, skill_method
from bus.link import Link, Message
from contracts import topics
from contracts.devices.presence import Emitted, State
from contracts.wire import Json
from hub_registry.storage.tables import now
from tests.hub_agent.home import Device


class LinkSink:
    """Publishes states and events as a spoke does."""

    def __init__(self, link: Link, device: str) -> None:
        self._link = link
        self._device = device

    def publish_state(
        self, skill: str, name: str, value: Json, *, unit: str | None, device_class: str | None
    ) -> None:
        state = State(value=value, unit=unit, device_class=device_class, at=now())
        topic = topics.STATE.build(device=self._device, skill=skill, property=name)
        self._link.publish_nowait(Message(topic, state.model_dump_json().encode(), 0, True))

    def clear_state(self, skill: str, name: str) -> None:
        topic = topics.STATE.build(device=self._device, skill=skill, property=name)
        self._link.publish_nowait(Message(topic, b"", 0, True))

    def publish_event(self, skill: str, name: str, payload: Json) -> None:
        event = Emitted(skill=skill, data=payload, at=now())
        topic = topics.EVENT.build(device=self._device, name=name)
        self._link.publish_nowait(Message(topic, event.model_dump_json().encode(), 0, False))


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


def hosted(device: Device, *skills: Skill, directory: Any) -> None:
    """Give skills of a device the bus to publish on."""
    for skill in skills:
        attach(skill, SkillContext(directory, LinkSink(device.spoke.link, device.id)))
