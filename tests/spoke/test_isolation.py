"""Skills in processes of their own: what crosses the pipe, and what becomes of those that misbehave."""

import asyncio
import re
import textwrap
import zipfile
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_core.skills.home import PRESENT_CALL, HomeCaller, PresentCall
from agent_core.skills.results import Publication
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.running.triggers import LocalSink
from chat.tasks import happens, open_tasks
from contracts.errors import CallError, ConfigError, ErrorCode
from spoke import limits
from spoke.isolation.environment import Environment
from spoke.isolation.skill_process import SkillProcess
from spoke.settings import SpokeSettings
from spoke.skill_host import SkillHost
from tests.agent_core.skills.conftest import RecordingSink
from tests.spoke.home import wait_for

PUMP = """
    import asyncio
    import os
    import sys
    import time
    from collections.abc import Iterator

    from pydantic import BaseModel

    from agent_core.skills.results import Publication
    from strawberry_skills import Skill, on_event, on_value


    class PumpSettings(BaseModel):
        litres: int = 3


    class PumpSkill(Skill):
        Settings = PumpSettings
        kept = []

        def pour(self, glasses: int) -> int:
            self.state("poured", glasses, unit="l")
            self.emit("done", {"glasses": glasses})
            return glasses * self.settings.litres

        @on_event("done")
        def note(self, done: dict[str, int]) -> None:
            self.state("noted", done["glasses"])

        @on_value("LampSkill.is_on")
        def follow(self, is_on: bool) -> None:
            self.state("lamp", is_on)

        async def ring(self) -> str:
            return await self.home.devices.hall.LampSkill.turn_on(3, color="red")

        def ring_plainly(self) -> str:
            return self.home.devices.hall.LampSkill.fail()

        async def ring_all(self) -> list[str]:
            lamp = self.home.devices.hall.LampSkill
            calls = (lamp.wait() for _ in range(70))
            return sorted(str(each) for each in await asyncio.gather(*calls, return_exceptions=True))

        async def ring_as_another(self) -> str:
            from agent_core.skills.home import NO_CALL

            home = self._context.home
            return await asyncio.wrap_future(home("LampSkill", NO_CALL, ("hall", "LampSkill", "on"), (), {}))

        def slowly(self) -> Iterator[int]:
            yield 1
            yield 2
            self.check_cancelled(wait_s=30)

        async def wrong(self) -> int:
            return "many"

        def packages(self) -> list[str]:
            found = []
            for name in ("pydantic", "httpx", "psutil", "bus"):
                try:
                    __import__(name)
                    found.append(name)
                except ImportError:
                    pass
            return found

        def crash(self) -> None:
            print("the valve is stuck", file=sys.stderr)
            os._exit(3)

        def freeze(self, text: str = "") -> None:
            os.kill(os.getpid(), 19)

        def leak(self) -> None:
            while True:
                self.kept.append(bytearray(2_000_000))
                time.sleep(0.015)

        def fork(self) -> None:
            for _ in range(40):
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(60)
            time.sleep(60)

        def print_much(self) -> None:
            for _ in range(1_000):
                print("x" * 1_000_000)

        def lie(self) -> None:
            for each in range(3, 50):
                try:
                    os.write(each, b"\\xff" * 64)
                except OSError:
                    pass
            time.sleep(60)

        def pose_as_another(self) -> None:
            self._context.sink(Publication("state", "LampSkill", "is_on", True))
            time.sleep(60)
"""


TINY = """
    import tiny
    from strawberry_skills import Skill


    class NAMESkill(Skill):
        def version(self) -> str:
            return tiny.VERSION
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions of a package, and no other source of packages."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("1.0", "2.0"):
        about = f"tiny-{version}.dist-info"
        with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tiny.py", f"VERSION = {version!r}\n")
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    for name, value in {"OFFLINE": "1", "NO_INDEX": "1", "FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(f"UV_{name}", value)
    return folder


@pytest.fixture
def pump(tmp_path: Path) -> Path:
    folder = tmp_path / "skills" / "Pump"
    folder.mkdir(parents=True)
    (folder / "pump.py").write_text(textwrap.dedent(PUMP))
    (folder / "requirements.txt").touch()
    return folder


@asynccontextmanager
async def running(
    entry: Path,
    sink: RecordingSink,
    *,
    memory: int = 1024**3,
    processes: int = 64,
    home: HomeCaller | None = None,
) -> AsyncIterator[tuple[SkillProcess, SkillRunner]]:
    process = SkillProcess(
        entry,
        data=entry.parent / "data",
        sink=LocalSink(sink),
        environments=entry.parent / "environments",
        memory=memory,
        processes=processes,
        home=home,
    )
    async with open_tasks() as tasks:
        tasks.create_task(process.run())
        assert await happens(process.settled, within_s=20)
        async with SkillRunner(process.skills.values()) as runner:
            yield process, runner


async def test_calls_progress_states_events_and_settings_cross(pump: Path) -> None:
    sink, progress = RecordingSink(), list[Any]()
    async with running(pump, sink) as (_, runner):
        assert await runner.run("PumpSkill", "pour", ["2"]) == 6
        await runner.run("PumpSkill", "change_settings", kwargs={"litres": 5}, confirmed=True)
        assert await runner.run("PumpSkill", "pour", kwargs={"glasses": 2}) == 10
        await wait_for(lambda: len(sink.events) == 2, "the events")
        assert sink.states[0] == ("PumpSkill", "poured", 2, "l", None)

        async def note(value: Any) -> None:
            progress.append(value)

        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(runner.run("PumpSkill", "slowly", progress=note))
            await wait_for(lambda: progress == [1, 2], "the progress")
            call.cancel()
        assert call.cancelled()
        with pytest.raises(CallError, match="'glasses'"):
            await runner.run("PumpSkill", "pour", [])
        with pytest.raises(CallError, match="must be a whole number"):
            await runner.run("PumpSkill", "pour", ["many"])
        with pytest.raises(CallError, match="does not fit its declaration"):
            await runner.run("PumpSkill", "wrong")
        assert await runner.run("PumpSkill", "packages") == ["pydantic"]


MISBEHAVING = {
    "crash": "code 3: the valve is stuck",
    "leak": "MiB, more than 200|out of memory",
    "fork": "processes, more than 8",
    "print_much": "it printed too much",
    "lie": "it sent a message that cannot be read",
    "pose_as_another": "a value of another skill",
}


async def test_one_that_misbehaves_ends_alone_with_its_reason_and_comes_back(
    pump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SKILL_RESTART_S", (0.5, 0.5))
    sink = RecordingSink()
    async with running(pump, sink, memory=200 * 1024**2, processes=8) as (process, runner):
        for method, reason in MISBEHAVING.items():
            with pytest.raises(CallError) as refused:
                await runner.run("PumpSkill", method)
            assert refused.value.code == ErrorCode.OUTCOME_UNKNOWN, method
            assert re.search(reason, refused.value.message), f"{method}: {refused.value.message}"
            with pytest.raises(CallError, match="is unavailable: its process"):
                await runner.run("PumpSkill", "pour", [1])
            await wait_for(lambda: not process.unavailable, f"the next start after {method}")
            assert await runner.run("PumpSkill", "pour", [1]) == 3, method
        assert not [state for state in sink.states if state[0] != "PumpSkill"]


async def test_one_that_does_not_read_its_calls_ends(pump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SKILL_INPUT_BYTES", 1_000_000)
    async with running(pump, RecordingSink()) as (_, runner):
        text = "x" * 900_000
        calls = (runner.run("PumpSkill", "freeze", [text]) for _ in range(8))
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert any("does not read its calls" in str(each) for each in ended)


async def test_its_methods_run_at_events_and_values_of_the_device(pump: Path) -> None:
    sink = RecordingSink()
    async with running(pump, sink) as (process, runner):
        process.sink(Publication("state", "LampSkill", "is_on", True))
        await runner.run("PumpSkill", "pour", [4])
        await wait_for(lambda: len(sink.states) == 4, "what the methods publish")
        values = {(skill, name, value) for skill, name, value, _, _ in sink.states}
        assert {("PumpSkill", "noted", 4), ("PumpSkill", "lamp", True)} < values


class Hall:
    """The home of another device."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, skill: str, within: PresentCall, path: Any, args: Any, kwargs: Any) -> Future[Any]:
        answer = Future[Any]()
        self.calls.append((skill, within.id, ".".join(path), list(args), dict(kwargs)))
        if path[2] == "wait":
            asyncio.get_running_loop().call_later(1, answer.set_result, "on")
        elif path[2] == "fail":
            answer.set_exception(CallError(ErrorCode.BUSY, "the bulb is busy"))
        else:
            answer.set_result("on")
        return answer


async def test_it_calls_other_skills_with_the_rights_of_its_own_call(pump: Path) -> None:
    hall = Hall()
    async with running(pump, RecordingSink(), home=hall) as (_, runner):
        PRESENT_CALL.set(PresentCall("call of anna", "ring"))
        assert await runner.run("PumpSkill", "ring") == "on"
        with pytest.raises(CallError, match="the bulb is busy"):
            await runner.run("PumpSkill", "ring_plainly")
        # One that calls too many at once is told so, and goes on.
        rung = await runner.run("PumpSkill", "ring_all")
        assert (len(rung), rung.count("on")) == (70, 64)
        assert {each for each in rung if each != "on"} == {"PumpSkill calls too many others at once"}
        del hall.calls[2:]
        with pytest.raises(CallError, match="a call of another skill"):
            await runner.run("PumpSkill", "ring_as_another")
    assert hall.calls == [
        ("PumpSkill", "call of anna", "hall.LampSkill.turn_on", [3], {"color": "red"}),
        ("PumpSkill", "call of anna", "hall.LampSkill.fail", [], {}),
    ]


async def test_a_device_offers_them_beside_its_others_and_registers_why_one_does_not_run(
    pump: Path, tmp_path: Path
) -> None:
    broken = pump.parent / "Broken"
    broken.mkdir()
    (broken / "requirements.txt").touch()
    (broken / "broken.py").write_text(
        "from spoke import Skill\n\nimport os\n\nos._exit(5)\nclass BrokenSkill(Skill): ..."
    )
    (pump.parent / "lamp.py").write_text("class LampSkill:\n    def on(self) -> bool:\n        return True\n")
    settings = SpokeSettings(home=tmp_path, skills=(pump.parent,))
    async with await SkillHost.load(settings, device="pc", sink=RecordingSink()) as host:
        offered = {each.skill: each for each in host.registrations}
        assert set(offered) == {"PumpSkill", "LampSkill", "BrokenSkill"}
        assert offered["PumpSkill"].unavailable is None
        why = offered["BrokenSkill"].unavailable
        assert why is not None
        assert (why.kind, why.reason) == ("process", "code 5")
        (broken / "broken.py").write_text("class MendedSkill:\n    def mend(self): ...\n")
        await wait_for(lambda: "MendedSkill" in host.available, "the mended skill")
        assert {each.skill for each in host.registrations} == {"PumpSkill", "LampSkill", "MendedSkill"}


POSING = """
    from agent_core.skills.results import Publication
    from strawberry_skills import Skill


    class LampSkill(Skill):
        def off(self) -> None: ...


    class PoserSkill(Skill):
        async def pose(self) -> str:
            self._context.sink(Publication("state", "LampSkill", "is_on", True))
            lamp = LampSkill()
            lamp._context = self._context
            return await lamp.home.devices.hall.DoorSkill.open()
"""


async def test_it_neither_publishes_nor_calls_in_the_name_of_a_skill_that_is_not_its_own(
    pump: Path, tmp_path: Path
) -> None:
    (pump / "pump.py").write_text(textwrap.dedent(POSING))
    (pump.parent / "lamp.py").write_text("class LampSkill:\n    def on(self) -> bool:\n        return True\n")
    settings, sink, hall = SpokeSettings(home=tmp_path, skills=(pump.parent,)), RecordingSink(), Hall()
    async with await SkillHost.load(settings, device="pc", sink=sink, home=hall) as host:
        assert set(host.available) == {"LampSkill", "PoserSkill"}
        with pytest.raises(CallError, match="another skill of its name"):
            await host._runner.run("PoserSkill", "pose")
        assert await host._runner.run("LampSkill", "on") is True
    assert hall.calls == []
    assert sink.states == []


THIRSTY = """
    import time
    from pydantic import BaseModel
    from strawberry_skills import Skill


    class ThirstySkill(Skill):
        class Settings(BaseModel):
            tank: str
            hose: str

        async def setup(self) -> None:
            if self.settings.hose == "broken":
                raise OSError("the hose is broken")

        def drink(self) -> str:
            return self.settings.tank

        def sip(self) -> None:
            self.state("sips", True)
            time.sleep(60)
"""


async def test_one_that_still_lacks_a_setting_is_not_called_available_and_its_end_ends_its_calls(
    pump: Path, tmp_path: Path
) -> None:
    (pump / "pump.py").write_text(textwrap.dedent(THIRSTY))
    settings, sink = SpokeSettings(home=tmp_path, skills=(pump.parent,)), RecordingSink()
    async with await SkillHost.load(settings, device="pc", sink=sink) as host:

        async def change(**given: str) -> str:
            await host._runner.run("ThirstySkill", "change_settings", kwargs=given, confirmed=True)
            (offered,) = host.registrations
            return offered.unavailable.reason if offered.unavailable is not None else ""

        assert await change(tank="barrel") == "hose"
        assert "broken" in await change(hose="broken")
        assert await change(hose="green") == ""
        assert await host._runner.run("ThirstySkill", "drink") == "barrel"
        async with open_tasks() as tasks:
            tasks.create_task(host.follow())

            async def remove() -> None:
                await wait_for(lambda: bool(sink.states), "the call")
                pump.rename(tmp_path / "away")

            tasks.create_task(remove())
            with pytest.raises(CallError, match="no longer there") as ended:
                await host._runner.run("ThirstySkill", "sip")
        assert ended.value.code == ErrorCode.OUTCOME_UNKNOWN


async def test_a_name_that_becomes_free_is_offered_by_who_has_it_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    skills = tmp_path / "skills"
    (skills / "Lamp").mkdir(parents=True)
    code = "class LampSkill:\n    def where(self) -> str:\n        return "
    needs = skills / "Lamp" / "requirements.txt"
    (skills / "Lamp" / "lamp.py").write_text(f"{code}'folder'\n")
    settings = SpokeSettings(home=tmp_path, skills=(skills,))
    async with (
        await SkillHost.load(settings, device="pc", sink=RecordingSink()) as host,
        open_tasks() as tasks,
    ):
        tasks.create_task(host.follow())

        def is_offered(by: type[SkillProcess] | None) -> bool:
            owner = host._owners.get("LampSkill", "nobody")
            return "LampSkill" in host.available and isinstance(owner, by or type(None))

        assert is_offered(None)
        needs.touch()
        (skills / "Lamp" / "lamp.py").write_text(f"{code}'process'\n")
        await wait_for(lambda: is_offered(SkillProcess), "the skill in its process")
        assert "there already" not in caplog.text
        (skills / "lamp.py").write_text(f"{code}'file'\n")
        await wait_for(lambda: "LampSkill is there already" in caplog.text, "the warning")
        assert await host._runner.run("LampSkill", "where") == "process"
        needs.unlink()
        (skills / "Lamp" / "lamp.py").unlink()
        await wait_for(lambda: is_offered(None), "the other skill")
        assert await host._runner.run("LampSkill", "where") == "file"
        (skills / "lamp.py").unlink()
        await wait_for(lambda: host.available == (), "its end")


async def test_conflicting_versions_work_side_by_side_once_they_are_installed(
    tmp_path: Path, wheels: Path
) -> None:
    skills = tmp_path / "skills"
    for name, needs in {"Old": "tiny<2  # the old protocol\n", "New": "tiny\n"}.items():
        (skills / name).mkdir(parents=True)
        (skills / name / "requirements.txt").write_text(needs)
        (skills / name / "skill.py").write_text(textwrap.dedent(TINY.replace("NAME", name)))
    settings = SpokeSettings(home=tmp_path, skills=(skills,))
    old, new = (Environment(skills / name, settings.environments) for name in ("Old", "New"))
    old.install(old.resolve())
    async with await SkillHost.load(settings, device="pc", sink=RecordingSink()) as host:
        offered = {each.skill: each.unavailable for each in host.registrations}
        assert offered["OldSkill"] is None
        assert offered["NewSkill"] is not None
        assert offered["NewSkill"].kind == "packages"
        assert "strawberry skills packages New" in offered["NewSkill"].reason
        lock = new.resolve()
        assert lock.packages == ("tiny==2.0",)
        new.install(lock)
        await wait_for(lambda: set(host.available) == {"OldSkill", "NewSkill"}, "the packages")
        assert await host._runner.run("OldSkill", "version") == "1.0"
        assert await host._runner.run("NewSkill", "version") == "2.0"
        # Saved is loaded, for a process of its own too.
        code = skills / "Old" / "skill.py"
        code.write_text(code.read_text().replace("tiny.VERSION", "tiny.VERSION * 2"))
        await wait_for(lambda: "OldSkill" not in host.available, "the end of the old version")
        await wait_for(lambda: "OldSkill" in host.available, "the new version")
        assert await host._runner.run("OldSkill", "version") == "1.01.0"


def test_packages_that_are_not_as_they_were_shown_or_no_wheels_are_refused(
    tmp_path: Path, wheels: Path
) -> None:
    (tmp_path / "Old").mkdir()
    (tmp_path / "Old" / "requirements.txt").write_text("tiny==1.0")
    environment = Environment(tmp_path / "Old", tmp_path / "environments")
    lock = environment.resolve()
    with pytest.raises(ConfigError, match="Hash mismatch"):
        environment.install(replace(lock, text=re.sub("sha256:..", "sha256:00", lock.text)))
    with pytest.raises(ConfigError, match="not installed"):
        _ = environment.python
    for line in (
        "--index-url https://example.org",
        "../other",
        "-e .",
        "a @ https://example.org/${KEY}/a.whl",
    ):
        (tmp_path / "Old" / "requirements.txt").write_text(line)
        with pytest.raises(ConfigError, match="which is no package"):
            environment.resolve()
    (tmp_path / "Old" / "requirements.txt").unlink()
    project = '[project]\ndependencies = ["tiny\\n--index-url https://example.org"]\n'
    (tmp_path / "Old" / "pyproject.toml").write_text(project)
    with pytest.raises(ConfigError, match="which is no package"):
        environment.resolve()
    (tmp_path / "Old" / "pyproject.toml").unlink()
    (wheels / "tiny-1.0-py3-none-any.whl").rename(wheels / "tiny-1.0.tar.gz")
    (tmp_path / "Old" / "requirements.txt").write_text("tiny==1.0")
    with pytest.raises(ConfigError, match="uv failed") as refused:
        environment.resolve()
    assert "--build" in refused.value.hint
