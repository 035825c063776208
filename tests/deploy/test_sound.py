"""What the doctor says of sound: a fault only where a skill needs what is not there."""

from pathlib import Path

import pytest

from deploy.doctor.checks import Check
from deploy.doctor.sound import check_sound

_CARD = (
    " 0 [Headphones     ]: bcm2835_headpho - bcm2835 Headphones\n                      bcm2835 Headphones\n"
)
_PLAYER = """
import subprocess


class ChimeSkill:
    def ring(self):
        subprocess.run(["aplay", "chime.wav"])
"""


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    (tmp_path / "skills" / "chime").mkdir(parents=True)
    return tmp_path / "skills"


def _look(skills: Path, *, card: bool, devices: bool = False) -> Check:
    cards, snd = skills.parent / "cards", skills.parent / "snd"
    if card:
        cards.write_text(_CARD)
    snd.mkdir()
    if devices:
        (snd / "controlC0").touch()
    [check] = check_sound([skills, skills.parent / "absent"], cards=cards, devices=snd)
    return check


def test_a_machine_whose_skills_make_no_sound_needs_no_card(skills: Path) -> None:
    (skills / "lamp.py").write_text("class LampSkill:\n    def on(self):\n        return True\n")
    check = _look(skills, card=False)
    assert (check.ok, check.hint) == (True, "")
    assert "not needed" in check.detail


def test_a_skill_that_plays_needs_a_card(skills: Path) -> None:
    (skills / "chime" / "chime.py").write_text(_PLAYER)
    check = _look(skills, card=False)
    assert not check.ok
    assert "chime/chime.py needs one" in check.detail
    assert "dtparam=audio=on" in check.hint


def test_a_card_that_this_user_may_not_open_is_told_with_its_command(skills: Path) -> None:
    (skills / "chime" / "chime.py").write_text(_PLAYER)
    check = _look(skills, card=True)
    assert not check.ok
    assert "usermod -aG audio" in check.hint


def test_a_card_that_can_be_used_is_named_with_who_uses_it(skills: Path) -> None:
    (skills / "chime" / "chime.py").write_text(_PLAYER)
    check = _look(skills, card=True, devices=True)
    assert (check.ok, check.hint) == (True, "")
    assert check.detail == "bcm2835_headpho - bcm2835 Headphones, for chime/chime.py"
