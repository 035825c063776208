"""A device without its hub finds and names its skills as the hub does."""

from collections.abc import Iterator

import pytest

from agent_core.sentences.index import SentenceCall
from contracts.devices.joining import DeviceProfile
from contracts.devices.registration import Method, Registration
from contracts.errors import CallError, ErrorCode
from spoke.chat.own_skills import OwnSkills


def registration(skill: str, method: str, *, agnostic: bool = False) -> Registration:
    return Registration(
        skill=skill,
        doc=f"The {skill}.",
        device_agnostic=agnostic,
        methods=[
            Method(
                name=method,
                signature=f"{method}() -> None",
                doc="Switch the light on.",
                parameters={"type": "object", "properties": {}},
                sentences={} if agnostic else {"en": ["turn on the lamp"]},
            )
        ],
    )


class Named:
    """What the hub says of the device's names."""

    profile = DeviceProfile(name="vm 2", key="vm_2")


@pytest.fixture
def named() -> Named:
    return Named()


@pytest.fixture
def skills(named: Named) -> Iterator[OwnSkills]:
    made = OwnSkills(
        [registration("LampSkill", "turn_on"), registration("TimeSkill", "now", agnostic=True)],
        device="vm_2",
        profile=lambda: named.profile,
    )
    yield made
    made.close()


async def test_a_renamed_device_goes_by_its_new_names(skills: OwnSkills, named: Named) -> None:
    named.profile = DeviceProfile(name="Entrance Hall", key="entrance_hall", aliases=("Hall",), area="Ground")
    skills.refresh()
    assert (await skills.search("lamp")).results[0].path == "devices.entrance_hall.LampSkill.turn_on"
    assert (await skills.resolve("devices.entrance_hall.LampSkill.turn_on")).device == "vm_2"
    assert "devices.entrance_hall.LampSkill" in await skills.describe("LampSkill")
    said = skills.finder.match("turn on the lamp in the entrance hall", language="en", current="vm_2")
    assert isinstance(said, SentenceCall)
    assert said.target.device_name == "Entrance Hall"
    with pytest.raises(CallError) as refused:
        await skills.resolve("devices.vm_2.LampSkill.turn_on")
    assert "entrance_hall" in refused.value.hint


async def test_what_any_device_can_do_is_done_here(skills: OwnSkills) -> None:
    target = await skills.resolve("devices.hub.TimeSkill.now")
    assert (target.path, target.device) == ("devices.hub.TimeSkill.now", "vm_2")
    assert (await skills.resolve("device.TimeSkill.now")).device == "vm_2"


async def test_another_device_cannot_be_reached(skills: OwnSkills) -> None:
    with pytest.raises(CallError) as refused:
        await skills.resolve("devices.tv.LampSkill.turn_on")
    assert (refused.value.code, refused.value.hint) == (
        ErrorCode.OFFLINE,
        "Only this device can be used now: devices.vm_2.",
    )
