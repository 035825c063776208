"""The memory that services may have, and what the doctor says of it."""

import json
import os
from pathlib import Path

import pytest

from deploy.service.memory import HUB_SANDBOXES, SPOKE_SANDBOXES, cap, needed_mb, size_mb
from deploy.service.plan import KINDS
from hub_agent.settings import SandboxSettings
from spoke.chat.local_turn import SANDBOXES
from tests.deploy.strawberry import environment_of, run

_MODEL = '[[models]]\nname = "small"\nprovider = "ollama"\nmodel = "qwen3:4b"\n'
_SYSTEMCTL = """#!/bin/sh
case "$*" in
  *--property=Version*) echo 252;;
  *show*) printf 'ActiveState=active\\nStatusText=pi offers LampSkill.\\nMemoryMax=%s\\n' "$CAP";;
esac
"""


class Pi:
    """A machine with a spoke that has joined, and a systemd that says what it is told to."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.home = directory, directory / "home"
        (self.home / "spoke").mkdir(parents=True, mode=0o700)
        (self.home / "spoke" / "enrolment.json").write_text("{}")
        (directory / "bin").mkdir()
        for name, text in {
            "systemctl": _SYSTEMCTL,
            "systemd-run": "#!/bin/sh\n",
            "loginctl": "#!/bin/sh\n",
        }.items():
            (directory / "bin" / name).write_text(text)
            (directory / "bin" / name).chmod(0o755)

    @property
    def unit_file(self) -> Path:
        return self.directory / "config" / "systemd" / "user" / "strawberry-spoke.service"

    @property
    def unit(self) -> str:
        return self.unit_file.read_text()

    def install(self, *words: str) -> list[str]:
        """Install it, and give the notes."""
        done = run(self._environment("0"), "service", "install", "spoke", "--json", *words)
        assert done.returncode == 0, done.stderr
        notes: list[str] = json.loads(done.stdout)["notes"]
        return notes

    def set_up(self, *words: str) -> str:
        """Add a model, and give what is said then."""
        done = run(self._environment("0"), "setup", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def doctor(self, *, cap_mb: int, check: str = "memory of service spoke") -> dict[str, object]:
        """What the doctor says of the memory of the service, or of something else."""
        done = run(self._environment(str(cap_mb * 1024**2)), "doctor", "--json")
        checks = {row["check"]: row for row in json.loads(done.stdout)}
        found: dict[str, object] = checks[check]
        return found

    def _environment(self, cap_bytes: str) -> dict[str, str]:
        path = f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        config = str(self.directory / "config")
        return environment_of(self.home, PATH=path, XDG_CONFIG_HOME=config, CAP=cap_bytes)


@pytest.fixture
def pi(tmp_path: Path) -> Pi:
    return Pi(tmp_path)


def test_a_cap_holds_all_sandboxes_at_their_largest_and_something_for_skills() -> None:
    for kind in KINDS:
        for models in (False, True):
            capped = size_mb(cap(kind, models=models))
            assert capped is not None
            assert capped - needed_mb(kind, models=models) >= 300
    assert needed_mb("spoke", models=False) == 80
    assert needed_mb("hub", models=True) >= HUB_SANDBOXES * 450 + 200
    assert needed_mb("spoke", models=True) >= SPOKE_SANDBOXES * 450 + 80


def test_it_is_reckoned_with_as_many_sandboxes_as_there_may_be() -> None:
    assert SandboxSettings().processes + SandboxSettings().spares == HUB_SANDBOXES
    assert SANDBOXES == SPOKE_SANDBOXES


@pytest.mark.parametrize(
    ("text", "size"), [("512M", 512), ("2G", 2048), ("2048K", 2), ("much", None), ("0M", None)]
)
def test_sizes_are_read_as_systemd_writes_them(text: str, size: int | None) -> None:
    assert size_mb(text) == size


def test_a_spoke_gets_a_small_cap_and_one_that_answers_by_itself_a_larger_one(pi: Pi) -> None:
    pi.install()
    assert f"MemoryMax={cap('spoke', models=False)}\n" in pi.unit
    (pi.home / "strawberry.toml").write_text(_MODEL)
    pi.install()
    assert f"MemoryMax={cap('spoke', models=True)}\n" in pi.unit
    pi.install("--memory", "2G")
    assert "MemoryMax=2G\n" in pi.unit


def test_a_chosen_cap_that_is_too_small_is_taken_with_a_word(pi: Pi) -> None:
    (pi.home / "strawberry.toml").write_text(_MODEL)
    assert any("512M is little" in note for note in pi.install("--memory", "512M"))
    assert not any("is little" in note for note in pi.install("--memory", "1G"))


def test_a_chosen_cap_is_not_taken_where_the_settings_cannot_be_read(pi: Pi) -> None:
    (pi.home / "strawberry.toml").write_text("[[models]\n")
    with pytest.raises(AssertionError, match=r"strawberry\.toml"):
        pi.install("--memory", "512M")
    assert not pi.unit_file.exists()


def test_a_unit_that_does_not_say_how_it_was_set_up_gives_no_command(pi: Pi) -> None:
    pi.install()
    pi.unit_file.write_text(pi.unit.split("\n", 1)[1])
    told = pi.set_up(
        "--provider", "openai", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--no-test"
    )
    assert "systemctl" not in told


def test_a_model_that_comes_later_is_told_to_the_service_with_its_memory(pi: Pi) -> None:
    pi.install("--samples")
    told = pi.set_up(
        "--provider", "openai", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--no-test"
    )
    assert "strawberry service install spoke --samples && systemctl --user restart strawberry-spoke\n" in told


def test_the_doctor_tells_when_models_came_after_the_cap_and_the_command_that_mends_it(pi: Pi) -> None:
    skills = pi.directory / "my skills"
    skills.mkdir()
    pi.install("--skills", str(skills))
    small = size_mb(cap("spoke", models=False))
    assert small is not None
    assert pi.doctor(cap_mb=small)["ok"]
    (pi.home / "strawberry.toml").write_text(_MODEL)
    told = pi.doctor(cap_mb=small)
    assert not told["ok"]
    assert f"strawberry service install spoke '--skills={skills}' --now" in str(told["hint"])
    enough = size_mb(cap("spoke", models=True))
    assert enough is not None
    assert pi.doctor(cap_mb=enough)["ok"]


def test_the_doctor_looks_for_sound_in_the_folders_of_the_service(pi: Pi) -> None:
    skills = pi.directory / "my skills"
    skills.mkdir()
    (skills / "chime.py").write_text("import sounddevice\n")
    assert "not needed" in str(pi.doctor(cap_mb=512, check="sound")["detail"])
    pi.install("--skills", str(skills))
    assert "chime.py" in str(pi.doctor(cap_mb=512, check="sound")["detail"])
