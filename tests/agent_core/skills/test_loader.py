"""Skills in folders, in every layout, whole and broken."""

import sys

import pytest

from tests.agent_core.house import load_skills

SKILL = """
    from agent_core.skills.skill import Skill

    class LampSkill(Skill):
        def turn_on(self) -> str:
            return "on"
"""

HOOKED = "from agent_core.skills.skill import Skill\nclass BadSkill(Skill):\n    def m(self): ...\n   "

TOO_MANY = """
    attributes = {f"m{i}": (lambda self: 1) for i in range(300)} | {"__module__": __name__}
    BadSkill = type("BadSkill", (), attributes)
"""


@pytest.mark.parametrize(
    "path",
    [
        "lamp.py",
        "Lamp/__init__.py",
        "Lamp/lamp.py",
        "LampSkill/lamp_skill.py",
        "LampSkill/lamp.py",
        "Lamp/skill.py",
        "Lamp/main.py",
    ],
)
def test_every_layout_loads(path, write, load):
    write(path, SKILL)
    found = load()
    assert found.problems == []
    assert [skill.name for skill in found.skills] == ["LampSkill"]
    assert found.skills[0].methods["turn_on"].function() == "on"


def test_a_plain_class_whose_name_ends_in_skill_loads(write, load):
    write("radio.py", "class RadioSkill:\n    def tune(self): ...\nclass Helper:\n    def help(self): ...\n")
    assert [skill.name for skill in load().skills] == ["RadioSkill"]


def test_an_empty_init_beside_the_file_does_not_hide_the_skill(write, load):
    write("Lamp/__init__.py", "")
    write("Lamp/lamp.py", SKILL)
    assert [skill.name for skill in load().skills] == ["LampSkill"]


def test_relative_imports_work_inside_a_folder_with_and_without_an_init(write, load):
    for folder in ("One", "Two"):
        write(f"{folder}/words.py", f"WORD = {folder!r}")
        name = "__init__" if folder == "One" else "skill"
        write(
            f"{folder}/{name}.py",
            f"""
            from .words import WORD
            class {folder}Skill:
                def word(self) -> str:
                    return WORD
            """,
        )
    assert {skill.name: skill.methods["word"].function() for skill in load().skills} == {
        "OneSkill": "One",
        "TwoSkill": "Two",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def broken(:\n", "line 1"),
        ("import no_such_module_anywhere\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit"),
        (
            "class BadSkill:\n    def __init__(self): raise OSError('no GPIO')\n    def m(self): ...\n",
            "no GPIO",
        ),
        ("class BadSkill:\n    def __init__(self, port): ...\n    def m(self): ...\n", "port"),
        ("class MemorySkill:\n    def m(self): ...\n", "skill of the hub"),
        ("class BadSkill:\n    pass\n", "has no public method"),
        ("class ÄpfelSkill:\n    def m(self): ...\n", "cannot be the name"),
        ("x = 1\n", "defines no skill"),
        (TOO_MANY, "300 methods"),
        ("class BadSkill:\n    area = 7\n    def m(self): ...\n", "area"),
        (f"{HOOKED} def close(self): ...\n", "when the skill stops"),
        (f"{HOOKED} async def close(self, slowly: bool) -> None: ...\n", "when the skill stops"),
        (f"{HOOKED} async def setup(self) -> int: ...\n", "when the skill starts"),
    ],
)
def test_a_broken_file_is_reported_and_the_others_load(text, message, write, load):
    path = write("broken.py", text)
    write("lamp.py", SKILL)
    found = load()
    assert [skill.name for skill in found.skills] == ["LampSkill"]
    (problem,) = found.problems
    assert problem.path == str(path)
    assert message in problem.message
    assert "\n" not in problem.message


def test_the_second_class_of_a_name_is_reported_with_the_place_of_the_first(write, load):
    first = write("a.py", SKILL)
    second = write("b.py", SKILL)
    found = load()
    assert len(found.skills) == 1
    assert [problem.path for problem in found.problems] == [str(second)]
    assert str(first) in found.problems[0].message


def test_a_sentence_that_cannot_be_used_is_reported_and_its_method_loads(write, load):
    write(
        "lamp.py",
        """
        from agent_core.skills.skill import Skill, skill_method
        class LampSkill(Skill):
            @skill_method(sentences={"en": ["lamp", "turn on the lamp"]})
            def turn_on(self) -> None: ...
        """,
    )
    found = load()
    assert list(found.skills[0].methods) == ["turn_on"]
    (problem,) = found.problems
    assert problem.path.endswith("lamp.py: LampSkill.turn_on")
    assert problem.message == "the sentence 'lamp': at least 2 words outside slots and brackets are needed"


def test_one_method_that_cannot_be_described_does_not_take_the_others_along(write, load):
    write(
        "lamp.py",
        """
        import socket
        class LampSkill:
            def good(self, level: int = 3) -> None: ...
            def many(self, *levels: int): ...
            def named(self, **levels: int): ...
            def strange(self, where: socket.socket): ...
            def missing(self, where: "Nowhere"): ...
        """,
    )
    found = load()
    assert list(found.skills[0].methods) == ["good"]
    assert [problem.path.rpartition(".")[2] for problem in found.problems] == [
        "many",
        "named",
        "strange",
        "missing",
    ]
    left_out = found.skills[0].registration.unavailable
    assert left_out is not None
    assert left_out.is_callable
    assert "many: " in left_out.text
    assert "missing: " in left_out.text


def test_only_the_public_methods_of_the_class_itself_are_offered(write, load):
    write(
        "lamp.py",
        """
        import functools
        from agent_core.skills.skill import Skill
        class _Base(Skill):
            def inherited(self): ...
            def offered_again(self): ...
        class LampSkill(_Base):
            level = 3
            async def setup(self): ...
            async def close(self) -> None: ...
            def _private(self): ...
            def on(self): ...
            async def async_on(self): ...
            @staticmethod
            def static(x: int) -> int: return x
            @classmethod
            def of_class(cls) -> str: return cls.__name__
            @functools.lru_cache
            def cached(self, x: int) -> int: return x
            @property
            def shown(self): return 1
            class Inner: ...
            offered_again = _Base.offered_again
        """,
    )
    (skill,) = load().skills
    assert list(skill.methods) == ["on", "async_on", "static", "of_class", "cached", "offered_again"]


def test_a_method_that_hides_the_framework_is_reported(write, load):
    write("lamp.py", SKILL + "        def emit(self): ...\n")
    found = load()
    assert list(found.skills[0].methods) == ["turn_on"]
    assert found.problems[0].message == "hides Skill.emit"


def test_a_constructor_has_its_folder_without_passing_anything_on(write, load, tmp_path):
    write(
        "notes.py",
        """
        from agent_core.skills.skill import Skill
        class NotesSkill(Skill):
            def __init__(self):
                self.file = self.data_dir / "notes.txt"
            def where(self) -> str:
                return str(self.file)
        """,
    )
    (skill,) = load().skills
    assert skill.methods["where"].function() == str(tmp_path / "data" / "NotesSkill" / "notes.txt")
    assert (tmp_path / "data" / "NotesSkill").stat().st_mode & 0o077 == 0


def test_loading_again_picks_up_what_changed(write, load):
    write("Lamp/level.py", "LEVEL = 1\n")
    write(
        "Lamp/skill.py",
        "from .level import LEVEL\nclass LampSkill:\n    def level(self) -> int:\n        return LEVEL\n",
    )
    assert load().skills[0].methods["level"].function() == 1
    write("Lamp/level.py", "LEVEL = 20\n")
    assert load().skills[0].methods["level"].function() == 20


def test_folders_with_files_of_the_same_name_do_not_mix(tmp_path, make_context):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lamp.py").write_text(f"class {name.title()}Skill:\n    def m(self): ...\n")
    found = load_skills([tmp_path / "one", tmp_path / "two", tmp_path / "none"], make_context=make_context)
    assert [skill.name for skill in found.skills] == ["OneSkill", "TwoSkill"]
    assert [problem.message for problem in found.problems] == ["there is no such folder"]


def test_a_file_that_failed_leaves_no_module_behind(write, load):
    write("broken.py", "import os\nraise ValueError\n")
    before = set(sys.modules)
    load()
    assert not {name for name in set(sys.modules) - before if name.startswith("_skill_")}


def test_hidden_and_foreign_files_are_left_alone(write, load):
    write("_helper.py", "raise ValueError")
    write(".hidden.py", "raise ValueError")
    write("README.md", "text")
    write("pictures/cat.txt", "text")
    write("__pycache__/lamp.py", "raise ValueError")
    assert load().problems == []


def test_the_folder_of_a_repository_need_not_be_called_like_its_file(write, load):
    write("strawberry-vacuum/setup.py", "raise SystemExit('not a skill')")
    write("strawberry-vacuum/vacuum.py", "class VacuumSkill:\n    def clean(self): ...\n")
    assert [skill.name for skill in load().skills] == ["VacuumSkill"]
