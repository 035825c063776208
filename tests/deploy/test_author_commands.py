"""What an author of skills does at a terminal, without a home."""

import json
from pathlib import Path

import pytest

from tests.deploy.strawberry import environment_of, run

VAGUE = '''
class PowerSkill:
    def process(self, data):
        return data

    def delete_room(self) -> None:
        """Delete a room."""

    def list_rooms(self) -> list[str]:
        """List rooms."""
        self.rooms = []
        return self.rooms

    def pour(self, *cups) -> None: ...
'''

ALONE = '''
from strawberry_skills import Skill, every


class PowerSkill(Skill):
    """Power."""

    @every("1h")
    def tick(self) -> None:
        self.emit("ticked")
'''


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_of(tmp_path / "home")


@pytest.mark.slow
def test_a_new_skill_passes_its_tests_and_the_lint(environment: dict[str, str], tmp_path: Path) -> None:
    assert "GardenPumpSkill is in" in run(environment, "skills", "new", "garden_pump").stdout
    skill = tmp_path / "home" / "skills" / "garden_pump"
    assert {each.name for each in skill.iterdir()} == {"garden_pump.py", "test_garden_pump.py", "README.md"}
    for path in ((), ("garden_pump",), (str(skill),)):
        done = run(environment, "skills", "test", *path)
        assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "Nothing to improve: GardenPumpSkill" in run(environment, "skills", "lint", "garden_pump").stdout
    (skill / "garden_pump.py").write_text(
        (skill / "garden_pump.py").read_text().replace("+= minutes", "+= 1")
    )
    done = run(environment, "skills", "test", "garden_pump", "--", "-k", "adds_up")
    assert (done.returncode, "1 failed, 1 deselected" in done.stdout) == (1, True)
    again = run(environment, "skills", "new", "garden_pump")
    assert (again.returncode, "is there already" in again.stderr) == (1, True)


def test_the_lint_names_what_a_model_or_a_person_stumbles_over(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "power.py").write_text(VAGUE)
    done = run(environment, "skills", "lint", str(tmp_path / "power.py"), "--json")
    assert done.returncode == 1
    found = {(each["where"].rpartition(": ")[2], each["problem"]) for each in json.loads(done.stdout)}
    assert {
        ("PowerSkill", "has no docstring"),
        ("PowerSkill.process", "has no docstring"),
        ("PowerSkill.process", "has a name that says nothing"),
        ("PowerSkill.process", "the argument data has no type"),
        ("PowerSkill.process", "the name of its argument data says nothing"),
        ("PowerSkill.process", "has no type for its result"),
        ("PowerSkill.process", "does not declare what it may do, so each call is asked about"),
        ("PowerSkill.delete_room", "its name says delete, and it asks nobody"),
        ("PowerSkill.list_rooms", "may return a list of any length"),
    } <= found
    assert any(where == "PowerSkill.pour" and problem.startswith("not loaded") for where, problem in found)


def test_what_is_not_there_is_said(environment: dict[str, str], tmp_path: Path) -> None:
    for words, said in (
        (("skills", "test"), "there is no folder"),
        (("skills", "lint", "cofee"), "no skill cofee"),
        (("skills", "new", "Coffee Maker"), "cannot be the name"),
    ):
        done = run(environment, *words)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr


def test_a_program_can_be_the_model(environment: dict[str, str], tmp_path: Path, sandbox_files: Path) -> None:
    skills = tmp_path / "home" / "skills"
    skills.mkdir(parents=True)
    (tmp_path / "home" / "sandbox").symlink_to(sandbox_files, target_is_directory=True)
    (skills / "power.py").write_text(VAGUE)
    delete = "device.PowerSkill.delete_room()"
    given: list[dict[str, object]] = [
        {"tool": "search_skills", "arguments": {"query": "rooms"}},
        {"tool": "python_exec", "arguments": {"code": f"print({delete})"}},
        {"yes": True},
        {"tool": "python_exec", "arguments": {"code": delete}},
        {"yes": False},
        {"tool": "nothing_such", "arguments": {}},
        {"tools": "nothing"},
    ]
    text = "".join(f"{json.dumps(each)}\n" for each in given)
    done = run(environment, "skills", "try", "power", "--json-lines", text=text)
    assert done.returncode == 0, done.stderr
    begin, found, question, ran, _, refused, unknown, unread = map(json.loads, done.stdout.splitlines())
    assert "You are Strawberry" in begin["prompt"][0]["text"]
    assert [each["name"] for each in begin["tools"]] == ["search_skills", "describe_function", "python_exec"]
    assert "devices.this_device.PowerSkill.list_rooms" in found["text"]
    assert (found["ok"], found["characters"]) == (True, len(found["text"]))
    assert (question["confirm"], ran["ok"]) == ("PowerSkill.delete_room", True)
    assert (refused["ok"], "did not confirm" in refused["text"]) == (False, True)
    assert (unknown["ok"], "there is no tool" in unknown["text"]) == (False, True)
    assert "search_skills" in unread["problem"]
    typed = run(
        environment, "skills", "try", "power", text="describe PowerSkill\nfor n in (1, 2):\n  print(n)\n\n"
    )
    assert "def delete_room() -> None" in typed.stdout
    assert "1\n2\n" in typed.stdout
    assert "tokens" in typed.stdout


def test_what_a_skill_does_of_itself_is_tried_only_when_asked(
    environment: dict[str, str], tmp_path: Path, sandbox_files: Path
) -> None:
    skills = tmp_path / "home" / "skills"
    skills.mkdir(parents=True)
    (tmp_path / "home" / "sandbox").symlink_to(sandbox_files, target_is_directory=True)
    (skills / "power.py").write_text(ALONE)
    begun = '{"tool": "python_exec", "arguments": {"code": "devices.this_device.PowerSkill.wait()"}}\n'
    for options, ticked in (((), False), (("--triggers",), True)):
        done = run(environment, "skills", "try", "power", "--json-lines", *options, text=begun)
        assert done.returncode == 0, done.stderr
        assert ("ticked" in done.stdout) is ticked
