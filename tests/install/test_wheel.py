"""What `make dist` builds is complete, and is all that a machine needs."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.cli.commands import COMMANDS
from tests.docs.test_documents import blocks_of
from tests.e2e.house import PATIENCE_S, wait_for
from tests.install.conftest import ROOT, build
from tests.model_server import Says, ScriptedModel

_PACKAGES = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["root_packages"]
)
_FOLDERS = tuple(f"{package}/" for package in _PACKAGES)
_PATIENT_S = 4 * PATIENCE_S
"""Nothing is compiled yet in an environment that was just made."""


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_copy_gives_the_same_bytes_with_the_files_of_the_packages_and_no_others(
    built: list[Path], tmp_path: Path
) -> None:
    tracked = _git("ls-files", "--cached", "--others", "--exclude-standard")
    for name in tracked:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "tree" / name)
    # What running it leaves in a checkout, with the password of the broker.
    (tmp_path / "tree" / "deploy" / "container" / ".env").write_text("STRAWBERRY_BROKER_PASSWORD=secret")
    (tmp_path / "tree" / "deploy" / "container" / "left.pyc").touch()
    target, (committed,) = tmp_path / "dist", _git("log", "-1", "--format=%ct")
    target.mkdir()
    (target / "strawberry_home-0.0.1-py3-none-any.whl").touch()
    made = build(target, tree=tmp_path / "tree", SOURCE_DATE_EPOCH=committed)
    assert [each.read_bytes() for each in made] == [each.read_bytes() for each in built]
    wheel, _, archive = made
    expected = {name for name in tracked if name.startswith(_FOLDERS)}
    files = {each for each in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in each}
    manual = {each for each in files if ".data/data/share/man/man1/strawberry" in each}
    assert files - manual == expected
    assert len(manual) == len(COMMANDS) + 1
    with tarfile.open(archive) as opened:
        names = {each.name.partition("/")[2] for each in opened if each.isfile()}
    assert {each for each in names if each.startswith(_FOLDERS)} == expected


def installed(folder: Path, *packages: str) -> Path:
    """Make an environment of these packages: by uv, which compiles nothing that is not run."""
    uv, venv = str(Path(sys.executable).with_name("uv")), folder / "venv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(venv), "--constraints"]
    subprocess.run([*install, str(ROOT / "constraints.txt"), *packages], check=True)
    return venv


@dataclass
class Tried:
    """A wheel that is installed and runs.

    Attributes:
        said: Returns what `strawberry up` has printed.
    """

    programs: Path
    said: Callable[[], str]

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        path = {"PATH": f"{self.programs}:{os.environ['PATH']}"}
        return subprocess.run(
            words, env=os.environ | path, capture_output=True, text=True, timeout=_PATIENT_S, check=False
        )

    def is_answered(self) -> bool:
        """Whether the model answers; its spoke waits a few seconds for a hub that is still being compiled."""
        return self.run("strawberry", "chat", "what is the meaning of it?").stdout.strip() == "Here."


@contextmanager
def running(venv: Path) -> Iterator[Tried]:
    """Run `strawberry up` of an environment, with a model, until the block ends."""
    folder = venv.parent
    (folder / "home").mkdir()
    with ScriptedModel(lambda _: Says(text="Here.")) as model, (folder / "up.log").open("w+") as log:
        (folder / "home" / "strawberry.toml").write_text(
            f'[[models]]\nname = "house"\nprovider = "openai"\nmodel = "m"\nbase_url = "{model.base_url}"\n'
        )
        command = [str(venv / "bin" / "strawberry"), "up", "--http-port", "0", "--mqtt-port", "0"]
        with subprocess.Popen(command, stdout=log, stderr=log) as up:
            try:
                said = lambda: Path(log.name).read_text("utf-8")  # noqa: E731
                ready = lambda: "Ready" in said() or up.poll() is not None  # noqa: E731
                wait_for(ready, what="strawberry up", patience=_PATIENT_S)
                yield Tried(venv / "bin", said)
                up.send_signal(2)
                assert up.wait(_PATIENT_S) == 0, said()
            finally:
                up.kill()


@pytest.mark.slow
def test_an_empty_venv_needs_the_wheel_alone(built: list[Path], elsewhere: Path) -> None:
    """Sentences, and a model that is asked directly, with neither TensorZero nor Deno."""
    venv = installed(elsewhere, str(built[0]))
    with running(venv) as tried:
        assert "strawberry-home[sandbox]" in tried.said()
        assert tried.run("strawberry", "chat", "turn on the lamp").stdout.strip() == "The lamp is on."
        wait_for(tried.is_answered, what="the answer")
        assert "[sandbox]" in tried.run("strawberry", "exec", "6 * 7").stderr


@pytest.mark.slow
def test_the_wheel_for_authors_is_enough_for_a_skill_and_its_types(
    built: list[Path], elsewhere: Path
) -> None:
    venv = installed(elsewhere, str(built[1]), "mypy", "pytest")
    blocks = blocks_of(ROOT / "docs" / "skills.md", "python")
    skill, test = blocks[0], next(each for each in blocks if "def test_" in each)
    (elsewhere / "test_coffee.py").write_text(test)
    (elsewhere / "coffee.py").write_text(
        f"{skill}\n\nassert CoffeeSkill().brew(2) == 2\nCoffeeSkill().brew('x')\n"
    )
    ran = subprocess.run(
        [str(venv / "bin" / "python"), "coffee.py"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    checked = subprocess.run(
        [str(venv / "bin" / "mypy"), "coffee.py"], capture_output=True, text=True, check=False
    )
    assert "arg-type" in checked.stdout
    assert "Found 1 error" in checked.stdout
    (elsewhere / "coffee.py").write_text(skill)
    tested = subprocess.run([str(venv / "bin" / "pytest")], capture_output=True, text=True, check=False)
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


@pytest.mark.slow
def test_the_wheel_with_the_hub_runs_the_first_minute_of_the_readme(
    built: list[Path], elsewhere: Path
) -> None:
    """All its commands, with the sandbox that it fetches, and a model by TensorZero."""
    venv = installed(elsewhere, f"{built[0]}[hub]")
    commands = [line[2:] for line in blocks_of(ROOT / "README.md", "console")[0].splitlines()]
    with running(venv) as tried:
        for command in (*commands, 'strawberry exec "print(6 * 7)"'):
            done = tried.run("bash", "-euc", command)
            assert (done.returncode, bool(done.stdout)) == (0, True), f"{command}: {done.stderr}"
        wait_for(tried.is_answered, what="the answer")
        with urllib.request.urlopen(re.findall(r"http://\S+", tried.said())[0]) as page:
            assert b"Strawberry" in page.read()


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv tool", "pipx"])
def test_a_tool_installs_it_and_its_update_names_the_tool(
    built: list[Path], elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    places = {"UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin", "PIPX_HOME": "tools", "PIPX_BIN_DIR": "bin"}
    for name, folder in places.items():
        monkeypatch.setenv(name, str(elsewhere / folder))
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")  # pipx installs by a uv that it finds
    monkeypatch.setenv("UV_CONSTRAINT", str(ROOT / "constraints.txt"))
    command = [*tool.split(), "install", "--quiet", "--python", sys.executable, str(built[0])]
    subprocess.run(command, check=True)
    asked = [str(elsewhere / "bin" / "strawberry"), "devices", "list"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no hub is running" in done.stderr
    told = subprocess.run(
        [asked[0], "update", "--from", "new.whl"], capture_output=True, text=True, check=True
    )
    assert f"{tool} install --force {elsewhere / 'new.whl'}" in told.stdout
