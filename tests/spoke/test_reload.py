"""Skills that are saved while the spoke runs."""

import asyncio
import time

import pytest

from contracts import topics
from contracts.errors import CallError, ErrorCode
from spoke.app import open_spoke
from tests.spoke.home import DEVICE, BusSide, Place, StandInHub, wait_for

TOPIC = topics.SKILL.build(device=DEVICE, skill="KettleSkill")
KETTLE = '''
from spoke import Skill, skill_method


class KettleSkill(Skill):
    """The kettle."""

    async def setup(self) -> None:
        self.state("version", {version})

    async def close(self) -> None:
        with (self.data_dir / "closed").open("a") as file:
            file.write("{version}")

    @skill_method(read_only=True)
    def version(self) -> int:
        """{doc}"""
        return {version}
'''

MY_LAMP = """
import asyncio
from spoke import Skill


class LampSkill(Skill):
    async def setup(self) -> None:
        await asyncio.sleep(0.1)

    def mine(self) -> int:
        return 7
"""


def kettle(version: int, doc: str = "Return the version.") -> str:
    return KETTLE.format(version=version, doc=doc)


async def version(bus: BusSide) -> int:
    return await bus.call("version", skill="KettleSkill")


async def until(bus: BusSide, wanted: int) -> None:
    deadline = time.monotonic() + 60
    while await version(bus) != wanted:
        assert time.monotonic() < deadline, f"version {wanted} never came"
        await asyncio.sleep(0.02)


async def test_a_saved_skill_is_loaded_while_other_calls_and_those_of_its_old_version_go_on(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    place.add_skill("kettle.py", kettle(1))
    place.add_gate()
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        assert await version(bus) == 1
        running = asyncio.create_task(bus.call("wait", "old", skill="GateSkill"))  # noqa: TID251
        await wait_for(lambda: "old begun" in place.journal, "the call")
        place.add_skill("gate.py", (place.skills / "gate.py").read_text().replace("wrote", "new wrote"))
        place.add_skill("kettle.py", kettle(2, "Tell the version."))
        await until(bus, 2)
        await wait_for(lambda: b"Tell the version" in bus.payloads(TOPIC)[-1], "the registration")
        assert not running.done()
        place.open_gate()
        assert await running == "wrote old"
        assert await bus.call("wait", "new", skill="GateSkill") == "new wrote new"
        closed = place.home / "spoke" / "data" / "KettleSkill" / "closed"
        await wait_for(lambda: closed.exists() and closed.read_text() == "1", "the end of the old version")
    assert len({status.connection for status in bus.statuses}) == 1
    assert closed.read_text() == "12"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("def broken(:\n", "kettle.py, line 1"),
        ("raise SystemExit\n", "SystemExit"),
        ("", "defines no skill"),
        (kettle(2).replace("self.state", "raise OSError('no such port') or self.state"), "no such port"),
        (kettle(2).replace("(self) -> int", "(self, *cups: int) -> int"), "cups"),
    ],
    ids=["import", "exit", "empty", "set-up", "signature"],
)
async def test_the_last_good_version_stays_where_the_saved_one_does_not_load(
    hub: StandInHub, bus: BusSide, place: Place, broken: str, reason: str
) -> None:
    place.add_skill("kettle.py", kettle(1))
    async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
        await bus.online()
        place.add_skill("kettle.py", broken)
        await wait_for(lambda: any(reason in each.message for each in spoke.problems), "the reason")
        assert "goes on" in spoke.problems[-1].what
        await wait_for(lambda: b'"kind":"saved"' in bus.payloads(TOPIC)[-1], "the reason on the bus")
        assert await version(bus) == 1
        place.add_skill("kettle.py", kettle(3))
        await until(bus, 3)
        await wait_for(lambda: b"saved" not in bus.payloads(TOPIC)[-1], "the registration")
        assert spoke.problems == ()


async def test_a_setting_that_a_saved_skill_needs_can_be_given(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    place.add_skill("kettle.py", kettle(1))
    needs = "    class Settings(BaseModel):\n        cup: str\n\n    async def setup"
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        text = "from pydantic import BaseModel\n" + kettle(2).replace("    async def setup", needs)
        place.add_skill("kettle.py", text)
        await wait_for(lambda: b'"kind":"settings"' in bus.payloads(TOPIC)[-1], "what it lacks")
        await bus.call("change_settings", skill="KettleSkill", kwargs={"cup": "blue"}, confirmed=True)
        await until(bus, 2)


async def test_skills_come_and_go_with_their_files_and_take_the_place_of_samples(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    sample = "turn_on"
    place.add_skill("kettle.py", kettle(1))
    async with open_spoke(place.settings(hub, samples=("lamp",)), token=hub.invite()) as spoke:
        await bus.online()
        assert set(spoke.skills) == {"JournalSkill", "KettleSkill", "LampSkill"}
        await bus.call(sample, skill="LampSkill")
        place.add_skill("mine.py", MY_LAMP)
        await wait_for(lambda: "sample left out" in [each.what for each in spoke.problems], "the other lamp")
        assert await bus.call("mine", skill="LampSkill") == 7
        (place.skills / "mine.py").unlink()
        (place.skills / "kettle.py").unlink()
        lamp = spoke._host._runner.skills
        await wait_for(lambda: sample in lamp["LampSkill"].methods, "the sample")
        await wait_for(lambda: set(spoke.skills) == {"JournalSkill", "LampSkill"}, "the end of the kettle")
        await bus.call(sample, skill="LampSkill")
        await wait_for(lambda: bus.payloads(TOPIC)[-1] == b"", "the topic of the kettle to be emptied")
        assert "KettleSkill" not in bus.statuses[-1].skills
        with pytest.raises(CallError) as caught:
            await version(bus)
    assert caught.value.code is ErrorCode.UNKNOWN_SKILL
