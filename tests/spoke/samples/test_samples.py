"""What the sample skills do for a user."""

import re
import shutil
import textwrap
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import spoke
from agent_core.search.directory import RegisteredSkill
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.skill import SkillContext
from contracts.devices.registration import Registration
from contracts.errors import CallError, ErrorCode
from hub_registry.devices.review import SAMPLES, definition_digest
from spoke.samples import system
from tests.agent_core.house import load_skills
from tests.hub_registry.spokes import eventually

EVERYDAY = {
    "TimeSkill": {"time", "date"},
    "SystemSkill": {"load", "memory", "disk", "uptime"},
    "NotesSkill": {"list_notes"},
    "MediaSkill": {"play", "pause", "next_track", "previous_track", "now_playing", "set_volume"},
    "LampSkill": {"turn_on", "turn_off", "set_brightness", "status"},
}


async def error_of(call) -> CallError:
    with pytest.raises(CallError) as caught:
        await call
    return caught.value


async def test_the_hub_knows_every_sample_by_its_definition(runner):
    for skill in runner.skills.values():
        sent = Registration.model_validate_json(skill.registration.model_dump_json())
        digest = definition_digest(RegisteredSkill.of(sent, ""))
        assert digest in SAMPLES.get(skill.name, ()), f"add {digest} for {skill.name} to SAMPLES"


async def test_every_sample_is_documented_and_speaks_english_and_german(runner):
    names = {"TimeSkill", "CalculatorSkill", "SystemSkill", "NotesSkill", "MediaSkill", "LampSkill"}
    assert set(runner.skills) == names
    for skill in runner.skills.values():
        assert skill.registration.doc
        for method in skill.registration.methods:
            assert method.summary.endswith((".", "``."))
            for name in method.parameters["properties"]:
                assert f"{name}:" in method.doc, f"{skill.name}.{method.name} does not describe {name}"
            if method.name in EVERYDAY.get(skill.name, ()):
                assert set(method.sentences) == {"en", "de"}


async def test_every_sentence_has_two_literal_words(runner):
    for skill in runner.skills.values():
        for method in skill.registration.methods:
            for template in (each for some in method.sentences.values() for each in some):
                without_options = re.sub(r"\[[^\]]*\]|\{[^}]*\}", " ", template)
                one_of_each = re.sub(r"\(([^)|]*)(\|[^)]*)*\)", r"\1", without_options)
                assert len(re.findall(r"\w+", one_of_each)) >= 2, template


async def test_the_time_is_told_here_and_elsewhere(call):
    assert abs(datetime.fromisoformat(await call("TimeSkill.now")) - datetime.now().astimezone()) < timedelta(
        minutes=1
    )
    berlin = datetime.fromisoformat(await call("TimeSkill.now", time_zone="Asia/Kolkata"))
    assert berlin.utcoffset() == timedelta(hours=5, minutes=30)
    assert re.fullmatch(r"\d\d:\d\d", await call("TimeSkill.time"))
    assert re.fullmatch(r"\w+day, \d{4}-\d\d-\d\d", await call("TimeSkill.date", time_zone="UTC"))
    assert "America/New_York" in await call("TimeSkill.find_time_zones", containing="new york")
    assert (await call("TimeSkill.until", moment="2020-01-01T00:00:00Z")).startswith("-P")


@pytest.mark.parametrize("zone", ["Nowhere/Land", "../../etc/passwd", "", "/etc/localtime"])
async def test_an_unknown_time_zone_is_an_error_that_helps(zone, call):
    error = await error_of(call("TimeSkill.now", time_zone=zone))
    assert error.code is ErrorCode.SKILL_ERROR
    assert error.hint == "Name one as Europe/Berlin."


ARITHMETIC = [
    ("1 + 1", 2),
    ("(3 + 4) * 2", 14),
    ("2 ^ 10", 1024),
    ("7 // 2 - 7 % 4", 0),
    ("-2 ** 2", -4),
    ("6 ÷ 4", 1.5),
    ("sqrt(16) + round(pi, 2)", 7.14),
    ("max(1, 2.5, 2)", 2.5),
    ("factorial(20) / 1", 2432902008176640000.0),
    ("1 ** 9 ** 9", 1),
    ("10 ** -3", 0.001),
]


async def test_arithmetic_is_right(call):
    for expression, value in ARITHMETIC:
        found = await call("CalculatorSkill.calculate", expression=expression)
        assert found == pytest.approx(value), expression


NO_ARITHMETIC = [
    "__import__('os').getcwd()",
    "(1).__class__",
    "[x for x in (1,)]",
    "lambda: 1",
    "'a' * 9",
    "x",
    "True",
    "1 +",
    "",
    "9 ** 9 ** 9",
    "10 ** 5000",
    "factorial(10 ** 9)",
    "round(5, -10 ** 12)",
    "1e308 * 10",
    "1 / 0",
    "sqrt(-1)",
    "(-8) ** 0.5",
    "log(0)",
    "(" * 500 + ")" * 500,
    "1" * 5_000,
    "sqrt(1, 2, 3)",
]


async def test_what_is_no_arithmetic_or_too_much_is_refused(call):
    for expression in NO_ARITHMETIC:
        error = await error_of(call("CalculatorSkill.calculate", expression=expression))
        assert error.code is ErrorCode.SKILL_ERROR, expression


async def test_the_system_describes_itself(call, sink, monkeypatch):
    memory = await call("SystemSkill.memory")
    assert 0 < memory["available"] <= memory["total"]
    disk = await call("SystemSkill.disk", path="/")
    assert 0 <= disk["free"] <= disk["total"]
    load = await call("SystemSkill.load")
    assert load["cores"] >= 1
    assert sink.states["SystemSkill/cpu"] == load["cpu_percent"]
    assert (await call("SystemSkill.uptime")).startswith("P")
    mounts = [SimpleNamespace(mountpoint=mount, fstype="ext4") for mount in ("/", "/there is none")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda: mounts)
    machine = await call("SystemSkill.machine_info")
    assert machine["cores"] == psutil.cpu_count()
    assert machine["system"]
    assert [each["path"] for each in machine["disks"]] == ["/"]


async def test_the_system_publishes_its_states_by_itself(runner, sink, monkeypatch):
    sensors = {"acpitz": [SimpleNamespace(current=90.0)], "coretemp": [SimpleNamespace(current=41.04)]}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: sensors, raising=False)
    await eventually(
        lambda: {"SystemSkill/cpu", "SystemSkill/memory", "SystemSkill/disk"} <= sink.states.keys()
    )
    assert 0 < sink.states["SystemSkill/disk"] <= 100
    assert system._temperature() == 41.0


async def test_processes_are_ordered_and_limited(call):
    processes = await call("SystemSkill.processes", order_by="memory", limit=3)
    memory = [process["memory"] for process in processes]
    assert len(processes) <= 3
    assert memory == sorted(memory, reverse=True)
    assert (await error_of(call("SystemSkill.processes", limit=0))).code is ErrorCode.BAD_ARGUMENTS


async def test_notes_are_written_found_and_read(call, sink):
    await call("NotesSkill.add", title="Shopping", text="Milk\nBread")
    await call("NotesSkill.add", title="Straße & Ärger", text="Call the office")
    assert {note["title"] for note in await call("NotesSkill.list_notes")} == {"Shopping", "Straße & Ärger"}
    assert await call("NotesSkill.read", title="shopping") == "Milk\nBread"
    assert await call("NotesSkill.append", title="Shopping", text="Eggs") == "Milk\nBread\nEggs"
    found = await call("NotesSkill.search", words="EGG milk")
    assert [(note["title"], note["beginning"]) for note in found] == [("Shopping", "Milk")]
    assert sink.events[0] == ("added", {"title": "Shopping"})


async def test_a_note_is_deleted_only_when_somebody_confirmed_it(call):
    await call("NotesSkill.add", title="Diary", text="Dear diary")
    error = await error_of(call("NotesSkill.delete", title="Diary"))
    assert error.code is ErrorCode.NEEDS_CONFIRMATION
    assert await call("NotesSkill.read", title="Diary") == "Dear diary"
    await call("NotesSkill.delete", title="Diary", confirmed=True)
    assert await call("NotesSkill.list_notes") == []


@pytest.mark.parametrize("title", ["../outside", "/etc/passwd", "a/../../b", "..", "CON", "日本", "#1 list"])
async def test_a_title_never_becomes_a_path(title, call, tmp_path):
    await call("NotesSkill.add", title=title, text="secret")
    assert await call("NotesSkill.read", title=title) == "secret"
    assert {path.parent.name for path in tmp_path.rglob("*") if path.is_file()} == {"NotesSkill"}
    assert not [*tmp_path.rglob("con.md")]


async def test_a_link_in_the_folder_is_no_note(call, tmp_path):
    (tmp_path / "secret.txt").write_text("Secret\n\ntext")
    await call("NotesSkill.add", title="One")
    (tmp_path / "NotesSkill" / "secret.md").symlink_to(tmp_path / "secret.txt")
    assert [note["title"] for note in await call("NotesSkill.list_notes")] == ["One"]
    await call("NotesSkill.add", title="Secret", text="mine")
    assert (tmp_path / "secret.txt").read_text() == "Secret\n\ntext"


async def test_notes_refuse_what_cannot_be_kept(call):
    await call("NotesSkill.add", title="One")
    for arguments, message in [
        ({"title": " one "}, "already"),
        ({"title": "  "}, "1 to 200"),
        ({"title": "x" * 201}, "1 to 200"),
        ({"title": "Long", "text": "x" * 100_001}, "100,000"),
    ]:
        assert message in (await error_of(call("NotesSkill.add", **arguments))).message
    assert (await error_of(call("NotesSkill.read", title="Two"))).hint == "There are: 'One'."


async def test_the_lamp_does_as_it_is_told_and_publishes_it(call, sink):
    assert sink.states["LampSkill/power"] == "off"
    assert await call("LampSkill.turn_on") == "The lamp is on."
    assert sink.states["LampSkill/power"] == "on"
    await call("LampSkill.set_brightness", percent="30")
    status = await call("LampSkill.set_color", color="Red")
    assert status == {"is_on": True, "brightness": 30, "color": "#ff0000"}
    assert sink.states["LampSkill/brightness"] == 30
    await call("LampSkill.turn_off")
    assert (await call("LampSkill.status"))["is_on"] is False
    assert (await error_of(call("LampSkill.set_brightness", percent=101))).code is ErrorCode.BAD_ARGUMENTS
    assert "#rrggbb" in ((await error_of(call("LampSkill.set_color", color="#12"))).hint or "")


async def test_the_page_on_skills_shows_skills_that_work(tmp_path, sink):
    text = (Path(__file__).parents[3] / "docs" / "skills.md").read_text("utf-8")
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    for number, block in enumerate(each for each in blocks if "def test_" not in each):
        (tmp_path / f"block_{number}.py").write_text(textwrap.dedent(block))
    loaded = load_skills([tmp_path], make_context=lambda name: SkillContext(tmp_path / name, sink))
    assert loaded.problems == []
    async with SkillRunner(loaded.skills) as runner:
        assert await runner.run("CoffeeSkill", "brew", ["2"]) == 2
        await runner.run("BoilerSkill", "set_temperature", [60])
        assert await runner.run("BoilerSkill", "temperature") == 60.0
        assert sink.states["BoilerSkill/temperature"] == 60.0
        assert await runner.run("BoilerSkill", "drain", confirmed=True) == 100


def test_authors_import_from_spoke(tmp_path: Path):
    assert set(spoke.__all__) == {"Skill", "SkillCancelled", "Unit", "skill_method"}
    assert issubclass(spoke.SkillCancelled, Exception)
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = spoke.nothing_such


async def test_the_samples_work_from_any_folder_they_are_copied_to(samples_folder, tmp_path, sink):
    shutil.copytree(samples_folder, tmp_path / "skills")
    loaded = load_skills([tmp_path / "skills"], make_context=lambda name: SkillContext(tmp_path / name, sink))
    assert (len(loaded.skills), loaded.problems) == (6, [])
