"""Methods of skills that run by themselves."""

import asyncio
import logging
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from agent_core import limits
from agent_core.skills.loading.exposure import expose
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.running.triggers import LocalSink, next_of
from agent_core.skills.skill import Skill, SkillContext, attach, every, on_event, on_value, skill_method
from contracts.errors import CallError, ErrorCode


class GardenSkill(Skill):
    """A garden."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self.heard: asyncio.Queue[object] = asyncio.Queue()

    @every("1h")
    async def look(self) -> None:
        self.state("soil", "dry")

    @on_value("GardenSkill.soil")
    async def _water(self, soil: str) -> None:
        self.emit("watered", {"litres": 3, "soil": soil})

    @on_event("watered")
    def _note(self, payload: dict[str, object]) -> None:
        asyncio.run_coroutine_threadsafe(self.heard.put(payload), self.loop)

    @on_event("hail")
    @skill_method(timeout_s=5)
    async def shelter(self) -> None:
        """Close the greenhouse."""
        await self.heard.put("closed")
        raise ValueError("the roof is stuck")


@pytest.fixture
def local(sink):
    return LocalSink(sink)


@pytest.fixture
def garden(local, tmp_path):
    skill = GardenSkill()
    attach(skill, SkillContext(tmp_path, local))
    loaded, problems = expose(skill)
    assert problems == []
    return SkillRunner([loaded], sink=local), skill


async def test_a_skill_runs_at_intervals_at_values_and_at_events_until_it_is_closed(garden, caplog):
    runner, skill = garden
    skill.loop = asyncio.get_running_loop()
    # What runs by itself is not offered, unless its author says so.
    assert list(runner.skills["GardenSkill"].methods) == ["shelter"]
    async with runner, asyncio.timeout(10):
        assert await skill.heard.get() == {"litres": 3, "soil": "dry"}
        skill.state("soil", "dry")
        skill.state("soil", "wet")
        assert await skill.heard.get() == {"litres": 3, "soil": "wet"}
        with caplog.at_level(logging.WARNING):
            skill.emit("hail")
            assert await skill.heard.get() == "closed"
            skill.emit("hail")
            assert await skill.heard.get() == "closed"
        assert "roof is stuck" in caplog.text
        assert "test_triggers.py" in caplog.text
    skill.emit("hail")
    await asyncio.sleep(0.05)
    assert skill.heard.empty()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "GardenSkill"]


async def test_what_takes_the_place_of_a_skill_runs_in_its_place(garden, local, tmp_path):
    runner, old = garden
    new = GardenSkill()
    old.loop = new.loop = asyncio.get_running_loop()
    attach(new, SkillContext(tmp_path, local))
    async with runner, asyncio.timeout(10):
        await old.heard.get()
        await runner.replace(expose(new)[0])
        # The value is there already.
        assert await new.heard.get() == {"litres": 3, "soil": "dry"}
        new.emit("hail")
        assert await new.heard.get() == "closed"
        assert old.heard.empty()


async def test_what_arguments_do_not_fit_is_logged_with_its_line(local, tmp_path, caplog):
    opened = asyncio.Event()

    class DoorSkill(Skill):
        @on_event("rang")
        async def _open(self, times: int) -> None:
            opened.set()

    skill = DoorSkill()
    attach(skill, SkillContext(tmp_path, local))
    async with SkillRunner([expose(skill)[0]], sink=local), asyncio.timeout(10):
        skill.emit("rang", "often")
        skill.emit("rang", 2)
        await opened.wait()
    assert "test_triggers.py, line " in caplog.text
    assert "times" in caplog.text


async def test_what_finds_a_device_offline_is_run_again_before_its_interval(local, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "OFFLINE_AGAIN_S", 0.01)
    done = asyncio.Event()
    tries = []

    class PumpSkill(Skill):
        @every("1h")
        async def _fill(self) -> None:
            tries.append(1)
            if len(tries) < 3:
                raise CallError(ErrorCode.OFFLINE, "the yard is offline")
            done.set()

    skill = PumpSkill()
    attach(skill, SkillContext(tmp_path, local))
    async with SkillRunner([expose(skill)[0]], sink=local), asyncio.timeout(10):
        await done.wait()
    assert len(tries) == 3


def test_a_time_of_day_is_that_of_the_home_also_when_the_clocks_change():
    zone = ZoneInfo("Europe/Berlin")
    before = datetime(2026, 10, 24, 12, tzinfo=zone)
    found = next_of([time(7, 30), time(19)], before)
    assert found == datetime(2026, 10, 24, 19, tzinfo=zone)
    # Summer time ends in that night, so that it is an hour longer.
    assert next_of([time(7, 30)], found).timestamp() - found.timestamp() == 13.5 * 3_600


def test_a_clock_that_is_set_back_a_little_comes_to_no_time_twice():
    seven = datetime(2026, 11, 28, 7, tzinfo=UTC)
    before = seven - timedelta(seconds=20)
    assert next_of([time(7)], before) == seven
    assert next_of([time(7)], before, last=seven) == seven + timedelta(days=1)
    # A clock that was wrong by days would otherwise stop all until then.
    assert next_of([time(7)], before, last=seven + timedelta(days=30)) == seven


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: every("soon"),
        lambda: every(30),  # type: ignore[arg-type]
        lambda: every("0.1s"),
        lambda: on_value("soil"),
        lambda: on_value("devices/yard.soil"),
        lambda: on_event("devices/yard/rang"),
    ],
)
def test_a_mistake_is_one_when_the_skill_loads(wrong):
    with pytest.raises(Exception, match=r"soon|30|at least 1s|soil|cannot be a name"):
        wrong()
