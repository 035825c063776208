"""What a process of its own costs a call of a skill, beside the same call in the spoke."""

from pathlib import Path
from typing import Final

from agent_core.skills.loading.loader import load_entry
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.running.triggers import LocalSink
from agent_core.skills.skill import SkillContext
from benchmarks.measure import Effort, median_ms
from benchmarks.table import Reach, Row
from chat.tasks import happens, open_tasks
from spoke.isolation.skill_process import SkillProcess
from tests.agent_core.skills.conftest import RecordingSink

_CALLS: Final = 2_000
_START_S: Final = 30.0

_SKILL: Final = """
from strawberry_skills import Skill

class EchoSkill(Skill):
    async def echo(self, text: str) -> str:
        return text
"""


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; the skill lies in the directory."""
    entry, sink, calls = directory / "Echo", RecordingSink(), effort.repeats(_CALLS)
    entry.mkdir()
    (entry / "echo.py").write_text(_SKILL)
    (entry / "requirements.txt").touch()
    here = load_entry(entry, make_context=lambda name: SkillContext(directory / name, sink)).skills
    process = SkillProcess(
        entry, data=directory, environments=directory / "environments", sink=LocalSink(sink)
    )
    async with open_tasks() as tasks:
        tasks.create_task(process.run())
        assert await happens(process.settled, within_s=_START_S)
        async with SkillRunner(here) as spoke, SkillRunner(process.skills.values()) as own:
            inside = await median_ms(lambda: spoke.run("EchoSkill", "echo", ["x"]), repeats=calls, warm_up=20)
            apart = await median_ms(lambda: own.run("EchoSkill", "echo", ["x"]), repeats=calls, warm_up=20)
    return [
        Row("what a process of its own adds to a call of a skill", apart - inside, "ms", Reach(most=1)),
    ]
