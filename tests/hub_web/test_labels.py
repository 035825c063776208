"""Names of skills and their members in the language of a person."""

import pytest
from pydantic import ValidationError

from agent_core.skills.labels import Labels, as_words
from agent_core.skills.loading.exposure import expose
from agent_core.skills.skill import Skill
from agent_core.texts import catalogue
from contracts.devices.registration import Registration
from hub_agent.chat.agent_skill import AgentSkill
from hub_home_assistant.inward.skill import HomeAssistantSkill
from hub_live.captures.operations import CaptureSkill
from hub_live.memory.skill import ListSkill, MemorySkill
from hub_live.topics.operations import BusSkill
from hub_live.watchers.skill import WatcherSkill
from hub_live.world.world import WorldSkill
from hub_server.http.sentences import HelpSkill
from spoke.integrations import available, skill_of
from spoke.nodes.skill import NodesSkill
from spoke.samples.calculator import CalculatorSkill
from spoke.samples.camera import CameraSkill
from spoke.samples.clock import TimeSkill
from spoke.samples.gpio import GpioSkill
from spoke.samples.lamp import LampSkill
from spoke.samples.media.media import MediaSkill
from spoke.samples.notes.skill import NotesSkill
from spoke.samples.serial_bridge import SerialSkill
from spoke.samples.system import SystemSkill

OF_THE_HUB = (
    *(AgentSkill, BusSkill, CaptureSkill, HelpSkill, HomeAssistantSkill, ListSkill, MemorySkill),
    *(WatcherSkill, WorldSkill),
)
OF_DEVICES = (CalculatorSkill, CameraSkill, GpioSkill, LampSkill, MediaSkill, NodesSkill, NotesSkill)
_OTHERS = (SerialSkill, SystemSkill, TimeSkill)
SAME = {"computer", "filter", "format", "name", "text", "pause", "pins", "timer", "topic", "topics"}
SAME |= {"GpioSkill", "HomeAssistantSkill"}
"""What is the same in both languages."""


@pytest.mark.parametrize("kind", [*OF_THE_HUB, *OF_DEVICES, *map(skill_of, available()), *_OTHERS])
def test_every_bundled_skill_has_its_names_in_german(kind: type[Skill]) -> None:
    loaded, _ = expose(object.__new__(kind))
    registration = loaded.registration
    label = Labels(registration.labels, "de-AT")
    members = [(registration.skill, "")]
    for method in registration.methods:
        members += [(method.name, ""), *((name, method.name) for name in method.parameters["properties"])]
    english = [
        name
        for name, of in members
        if name not in SAME and label(name, of=of) in (as_words(name), as_words(name.removeprefix("set_")))
    ]
    assert english == []
    assert all("de" in method.responses for method in registration.methods if method.responses)
    # Of devices; a person sees none of the hub's own.
    assert kind in OF_THE_HUB or registration.doc.partition("\n")[0] in catalogue("de")


def test_what_a_person_calls_it_counts_before_what_its_author_declared_and_that_before_common_words() -> None:
    declared = {"de": {"turn_on": "Los", "play.name": "Lied"}}
    assert Labels(declared, "de")("turn_on") == "Los"
    assert Labels(declared, "de", {"turn_on": "An!"})("turn_on") == "An!"
    assert Labels(declared, "de")("turn_off") == "Ausschalten"
    assert [Labels(declared, "de")("name", of=of) for of in ("play", "stop")] == ["Lied", "Name"]
    assert Labels(declared, "en")("set_room_light") == "Room light"
    assert Labels(declared, "de").value("open_window") == "open_window"
    assert [Labels({}, "de").value(each) for each in ("open", "Red Red Wine", "Red")] == [
        "Offen",
        "Red Red Wine",
        "Red",
    ]
    assert [Labels({}, "de").entity(each) for each in ("Humidity", "Power", "Anna's plug")] == [
        "Luftfeuchtigkeit",
        "Leistung",
        "Anna's plug",
    ]


@pytest.mark.parametrize("label", ["", "x" * 65, "a\nb", "safe\u202egnitide", "\x1b[2J"])
def test_a_device_cannot_name_things_by_what_does_not_fit_on_a_line(label: str) -> None:
    with pytest.raises(ValidationError):
        Registration(skill="LampSkill", methods=[], labels={"de": {"turn_on": label}})
