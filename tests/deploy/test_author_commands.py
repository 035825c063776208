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


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_of(tmp_path / "home")


def test_a_new_skill_passes_its_tests_and_the_lint(environment: dict[str, str], tmp_path: Path) -> None:
    assert "GardenPumpSkill is in" in run(environment, "skills", "new", "garden_pump").stdout
    skill = tmp_path / "home" / "skills" / "garden_pump"
    assert {each.name for each in skill.iterdir()} == {"garden_pump.py", "test_garden_pump.py", "README.md"}
    for path in ((), ("garden_pump",), (str(skill),)):
        done = run(environment, "skills", "test", *path)
        assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "Nothing to improve: GardenPumpSkill" in run(environment, "skills", "lint", "garden_pump").stdout
    (skill / "garden_pump.py").write_text((skill / "garden_pump.py").read_text().replace("+= cups", "+= 1"))
    done = run(environment, "skills", "test", "garden_pump", "--", "-k", "counts")
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
