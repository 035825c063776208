"""The pytest fixture of authors: a skill as a device hosts it, with nothing around it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from strawberry_skills import Skill, at, every, on_event, on_value, skill_method
from strawberry_skills.testing import CallError, Host, host

__all__ = ["host"]


class KettleSkill(Skill):
    """A kettle."""

    class Settings(BaseModel):
        celsius: Annotated[int, Field(ge=40)] = 100
        room: str

    def __init__(self) -> None:
        self.ticks = self.mornings = 0
        self.heard: list[object] = []
        self.log_file = self.data_dir / "log"

    async def setup(self) -> None:
        self.state("temperature", 20)

    async def close(self) -> None:
        self.log_file.write_text("closed")

    @skill_method()
    def boil(self, cups: int) -> str:
        """Boil water."""
        self.state("temperature", self.settings.celsius)
        self.emit("boiled", {"cups": cups})
        return f"{cups} cups at {self.settings.celsius} °C in the {self.settings.room}"

    @skill_method(destructive=True, confirm=True)
    def drain(self) -> Iterator[int]:
        """Drain it."""
        self.clear_state("temperature")
        yield from (50, 100)

    @skill_method()
    async def cool(self) -> int:
        """Cool down, which takes a moment."""
        await asyncio.sleep(0.01)
        return 20

    @every("10m")
    def _tick(self) -> None:
        self.ticks += 1

    @at("07:30")
    async def _morning(self) -> None:
        self.mornings += 1

    @on_event("doorbell")
    def _ring(self, what: str) -> None:
        self.heard.append(what)

    @on_value("TankSkill.level")
    def _level(self, percent: int) -> None:
        self.heard.append(percent)


def test_a_call_is_read_and_checked_as_on_a_device(host: Host, tmp_path: Path) -> None:
    kettle = host(KettleSkill, room="kitchen", celsius=90)
    assert kettle.states == {"temperature": 20}
    assert kettle.call("boil", cups="2") == "2 cups at 90 °C in the kitchen"
    assert kettle.states == {"temperature": 90}
    assert kettle.events == [("boiled", {"cups": 2})]
    assert kettle.call("cool") == 20
    with pytest.raises(CallError, match="cups"):
        kettle.call("boil", cups="many")
    with pytest.raises(CallError, match="confirmation"):
        kettle.call("drain")
    assert (kettle.call("drain", confirmed=True), kettle.progress) == (100, [50, 100])
    assert kettle.states == {}
    kettle.call("change_settings", celsius=50, confirmed=True)
    assert kettle.call("boil", 1) == "1 cups at 50 °C in the kitchen"
    host.close()
    assert (kettle.folder / "log").read_text() == "closed"


def test_time_events_and_values_come_when_the_test_says_so(host: Host) -> None:
    kettle = host(KettleSkill, room="kitchen")
    assert kettle.skill.ticks == 1
    kettle.advance(minutes=30, seconds=1)
    assert kettle.skill.ticks == 4
    mornings = kettle.skill.mornings  # one already, if it is seven o'clock now
    kettle.advance(days=2)
    assert (kettle.skill.ticks, kettle.skill.mornings - mornings) == (4 + 2 * 24 * 6, 2)
    kettle.tell_event("doorbell", "a parcel")
    kettle.tell_value("TankSkill.level", 40)
    assert kettle.skill.heard == ["a parcel", 40]


class UnreadySkill(Skill):
    """Fails."""

    async def setup(self) -> None:
        raise OSError("no such pump")

    def fill(self) -> None:
        """Fill it."""


class VagueSkill(Skill):
    """Cannot be offered whole."""

    def fill(self, *cups: int) -> None:
        """Fill cups."""

    def empty(self) -> None:
        """Empty it."""


@pytest.mark.parametrize(
    ("owner", "reason"), [(UnreadySkill, "no such pump"), (VagueSkill, "VagueSkill.fill")]
)
def test_what_a_device_would_not_offer_fails_the_test(host: Host, owner: type, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        host(owner)


def test_calls_of_other_devices_have_the_answers_of_the_test(host: Host) -> None:
    class BellSkill(Skill):
        uses = ("kitchen.LampSkill.turn_on",)

        async def ring(self, level: int) -> int:
            return await self.home.devices.kitchen.LampSkill.turn_on(level) + 1

        def pause(self) -> None:
            self.home.devices["hall"].MediaSkill.pause()

    bell = host(BellSkill)
    bell.answers["kitchen.LampSkill.turn_on"] = 40
    assert bell.call("ring", 3) == 41
    with pytest.raises(CallError, match=r"hall\.MediaSkill\.pause has no answer"):
        bell.call("pause")
    assert bell.calls == [("kitchen.LampSkill.turn_on", [3], {}), ("hall.MediaSkill.pause", [], {})]
