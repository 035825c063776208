"""Skills that cannot be used are registered with their reason."""

import pytest

from agent_core.skills.availability import SkillUnavailable, shown_reason, unavailable


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
