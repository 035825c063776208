"""Skills that cannot be used are registered with their reason."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent

import pytest

from agent_core.search.catalogue import FailingSkill, SearchPage
from agent_core.skills.availability import SkillUnavailable, shown_reason, unavailable
from agent_core.skills.home import PRESENT_CALL, PresentCall
from agent_core.skills.running.runner import RunnerSettings, SkillRunner
from agent_core.skills.skill import Skill
from agent_core.tools.output import search_text
from contracts.devices.registration import Unavailable
from contracts.errors import CallError


def test_what_does_not_load_is_unavailable_under_the_names_that_it_declares(write, load):
    write("cow.py", "import cowsay\nclass CowSkill(Skill): ...\nclass Helper: ...\n")
    write("old-pump.py", "def oops(:\n")
    write(
        "lamp.py",
        "class LampSkill:\n    def __init__(self): raise OSError('no lamp')\n    def on(self): ...\n",
    )
    write("pump.py", "class PumpSkill:\n    def __init__(self): ...\n    def on(self): ...\n")
    write("pump_2.py", "import nothing_there\nclass PumpSkill: ...\n")
    found = load()
    assert {name: why.text for name, why in found.unavailable.items()} == {
        "CowSkill": "a package is missing: cow.py, line 1: ModuleNotFoundError: No module named 'cowsay'",
        "OldPumpSkill": "it did not load: old-pump.py, line 1: invalid syntax",
        "LampSkill": "it did not load: lamp.py, line 2: OSError: no lamp",
    }
    assert [skill.name for skill in found.skills] == ["PumpSkill"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no file '/home/ann/.keys/pump.pem' or C:\\Users\\ann\\x.txt", "no file 'pump.pem' or x.txt"),
        ("403 for https://ann:hunter2@api.example/v1/now?q=Ulm&appid=abc12&x=1",
         "403 for https://…@api.example/v1/now?q=Ulm&appid=…&x=1"),
        ("KeyError: 'token'", "KeyError: 'token'"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("sk-0123456789abcdef0123456789abcdef is wrong", "… is wrong"),
        ("one\ntwo\x1b[31m", "one two\\u001b[31m"),
    ],
)  # fmt: skip
def test_a_reason_has_no_path_and_no_secret(text: str, shown: str):
    assert shown_reason(text) == shown


def test_a_skill_says_itself_what_it_lacks():
    why = unavailable("setup", SkillUnavailable("set the key hunter2", kind="settings"), secrets=["hunter2"])
    assert why.text == "a setting is missing: set the key …"
    assert len(shown_reason("x " * 5_000)) <= 300


HEAD = (
    "import asyncio, threading; from agent_core.skills.skill import Skill; "
    "from agent_core.skills.home import PRESENT_CALL"
)
QUICK = RunnerSettings(retry_s=(0.01, 0.02), steady_s=0.2, blocked_s=0.3, stop_grace_s=0.1)


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not happened():  # noqa: ASYNC110 - the runner changes by itself
            await asyncio.sleep(0.01)


async def test_a_set_up_that_fails_is_tried_until_it_works_and_logged_once(write, load, caplog):
    write("pump.py", HEAD + dedent("""
        class PumpSkill(Skill):
            tries = 0
            async def setup(self):
                self.tries += 1
                self.task(self.watch)
                if self.tries < 4:
                    raise OSError("no such pump at 10.0.0.5")
            async def watch(self):
                self.state("tries", self.tries)
                await asyncio.sleep(99)
            def tried(self) -> int:
                return self.tries
    """))  # fmt: skip
    told: list[str] = []
    async with SkillRunner(load().skills, settings=QUICK) as runner:
        runner.life.changed = lambda: told.append("changed")
        why = runner.unavailable["PumpSkill"].text
        assert why == "its set-up failed: pump.py, line 8: OSError: no such pump at 10.0.0.5"
        await until(lambda: told)
        assert await runner.run("PumpSkill", "tried") == 4
    assert [each.levelname for each in caplog.records] == ["WARNING"]


async def test_a_task_that_fails_is_shown_and_starts_again_and_ends_with_the_skill(write, load, sink, caplog):
    write("plants.py", HEAD + dedent("""
        class PlantsSkill(Skill):
            rounds = 0
            async def setup(self):
                self.task(self.water, "ficus")
            async def water(self, plant):
                self.rounds += 1
                if self.rounds < 3:
                    raise RuntimeError("the pump is dry")
                try:
                    await asyncio.sleep(99)
                finally:
                    self.emit("ended")
            def level(self) -> int:
                return self.rounds
            async def begin(self) -> None:
                self.task(self._tell)
            async def _tell(self) -> None:
                self.emit("within", PRESENT_CALL.get().id)
    """))  # fmt: skip
    seen: list[str] = []
    runner = SkillRunner(load().skills, settings=QUICK)
    runner.life.changed = lambda: seen.extend(why.text for why in runner.life.reasons.values())
    async with runner:
        await until(lambda: seen)
        assert (
            seen[0] == "its background task failed: water: plants.py, line 9: RuntimeError: the pump is dry"
        )
        assert await runner.run("PlantsSkill", "level") >= 1, "its methods work"
        await until(lambda: not runner.life.reasons)
        assert await runner.run("PlantsSkill", "level") == 3
        PRESENT_CALL.set(PresentCall("a call, whose rights end with it"))
        await runner.run("PlantsSkill", "begin")
        await until(lambda: sink.events)
    assert [(name, payload) for _, name, payload in sink.events] == [("within", None), ("ended", None)]
    assert "plants.py, line 9" in caplog.text


async def test_a_task_is_a_function_and_needs_a_host(host):
    class PlantsSkill(Skill):
        async def water(self) -> None: ...

    skill = PlantsSkill()
    with pytest.raises(RuntimeError, match="not hosted"):
        skill.task(skill.water)
    async with SkillRunner([host(skill)]) as runner:
        with pytest.raises(TypeError, match="pass the function"):
            skill.task(skill.water())  # type: ignore[arg-type]
        skill.task(skill.water, "too much")
        await until(lambda: runner.life.reasons)
        assert "positional argument" in runner.life.reasons["PlantsSkill"].reason


async def test_what_blocks_is_named_and_stops_no_other_skill(write, load, caplog):
    write("stuck.py", HEAD + dedent("""
        class StuckSkill(Skill):
            free = threading.Event()
            async def wait(self) -> str:
                self.free.wait()
                return "free"
            def release(self) -> None:
                self.free.set()
        class FineSkill(Skill):
            async def ping(self) -> str:
                return "pong"
    """))  # fmt: skip
    loaded = load().skills
    async with SkillRunner(loaded, settings=QUICK) as runner:
        free = loaded[0].instance.free
        stuck = asyncio.get_running_loop().create_task(runner.run("StuckSkill", "wait"))
        assert await runner.run("FineSkill", "ping") == "pong"
        await until(lambda: runner.unavailable)
        why = runner.unavailable["StuckSkill"].text
        assert why == "it does not answer: stuck.py, line 5: self.free.wait()"
        assert "StuckSkill blocks its event loop: stuck.py, line 5" in caplog.text
        with pytest.raises(CallError, match="unavailable"):
            await runner.run("StuckSkill", "wait")
        assert await runner.run("FineSkill", "ping") == "pong"
        free.set()
        assert await stuck == "free"
        await until(lambda: not runner.unavailable)


async def test_a_set_up_that_never_ends_holds_up_no_other_skill(write, load):
    write("slow.py", HEAD + dedent("""
        class SlowSkill(Skill):
            async def setup(self):
                threading.Event().wait()
            def ping(self) -> str:
                return "pong"
        class QuickSkill(Skill):
            async def setup(self):
                raise SystemExit(3)
            def ping(self) -> str:
                return "pong"
    """))  # fmt: skip
    settings = replace(QUICK, start_wait_s=0.1, setup_timeout_s=0.5)
    async with SkillRunner(load().skills, settings=settings) as runner:
        assert runner.unavailable["SlowSkill"].text.endswith("not finished after 0.1 s; it goes on")
        await until(lambda: "took longer" in runner.unavailable["SlowSkill"].text)
        assert "slow.py, line 4: threading.Event().wait()" in runner.unavailable["SlowSkill"].text
        assert "it raised SystemExit" in runner.unavailable["QuickSkill"].text


def test_a_model_that_searches_is_told_of_skills_that_fail_within_its_limit():
    def text(*failing: FailingSkill) -> str:
        return str(search_text(SearchPage((), 0, failing), "cow", 1_000))

    assert "No skill matches" in text()
    cow = FailingSkill("vm", "CowSkill", "a package is missing: cow.py, line 1")
    assert '{"skill": "CowSkill", "device": "vm", "problem": "a package is missing: cow.py, line 1"}' in text(
        cow
    )
    assert len(text(*[cow] * 100)) < 1_000


def test_a_skill_whose_last_good_version_runs_can_be_called():
    assert Unavailable(kind="saved", reason="kettle.py, line 1").is_callable
    assert not Unavailable(kind="setup").is_callable
