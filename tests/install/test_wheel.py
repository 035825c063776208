"""What `make dist` builds is complete, and is all that a machine needs."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.e2e.house import wait_for
from tests.install.conftest import ROOT, build
from tests.model_server import Says, ScriptedModel

_PACKAGES = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["root_packages"]
)
_FOLDERS = tuple(f"{package}/" for package in _PACKAGES)


@pytest.mark.slow
def test_the_same_commit_gives_the_same_bytes(built: list[Path], tmp_path: Path) -> None:
    (tmp_path / "strawberry_home-0.0.1-py3-none-any.whl").touch()
    assert [each.read_bytes() for each in build(tmp_path)] == [each.read_bytes() for each in built]


@pytest.mark.slow
def test_wheel_and_source_archive_have_the_files_of_the_packages_and_no_others(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True)
    tracked = listed.stdout.splitlines()
    for name in tracked:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "tree" / name)
    # What running it leaves in a checkout, with the password of the broker.
    (tmp_path / "tree" / "deploy" / "container" / ".env").write_text("STRAWBERRY_BROKER_PASSWORD=secret")
    (tmp_path / "tree" / "deploy" / "container" / "left.pyc").touch()
    wheel, archive = build(tmp_path / "dist", tree=tmp_path / "tree")
    expected = {name for name in tracked if name.startswith(_FOLDERS)}
    assert {each for each in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in each} == expected
    with tarfile.open(archive) as opened:
        names = {each.name.partition("/")[2] for each in opened if each.isfile()}
    assert {each for each in names if each.startswith(_FOLDERS)} == expected


@pytest.mark.slow
def test_an_empty_venv_needs_the_wheel_alone(built: list[Path], elsewhere: Path) -> None:
    """The first minute, with neither TensorZero nor Deno: sentences, and a model that is asked directly."""
    venv = elsewhere / "venv"
    strawberry = str(venv / "bin" / "strawberry")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    install = [str(venv / "bin" / "pip"), "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*install, str(built[0])], check=True)

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([strawberry, *words], capture_output=True, text=True, timeout=120, check=False)

    with ScriptedModel(lambda _: Says(text="Here.")) as model, (elsewhere / "up.log").open("w+") as log:
        (elsewhere / "home").mkdir()
        (elsewhere / "home" / "strawberry.toml").write_text(
            f'[[models]]\nname = "house"\nprovider = "openai"\nmodel = "m"\nbase_url = "{model.base_url}"\n'
        )
        ports = ("--http-port", "0", "--mqtt-port", "0")
        with subprocess.Popen([strawberry, "up", *ports], stdout=log, stderr=log) as up:
            try:
                said = lambda: Path(log.name).read_text("utf-8")  # noqa: E731
                wait_for(lambda: "Ready" in said() or up.poll() is not None, what="strawberry up")
                assert "strawberry-home[sandbox]" in said()
                assert run("chat", "turn on the lamp").stdout.strip() == "The lamp is on."
                assert run("chat", "what is the meaning of it?").stdout.strip() == "Here."
                assert "strawberry-home[sandbox]" in run("exec", "6 * 7").stderr
                up.send_signal(2)
                assert up.wait(60) == 0, said()
            finally:
                up.kill()
    kept = run("--version").stdout.split()
    assert kept[0] == "strawberry"


@pytest.mark.slow
def test_uv_installs_it_as_a_tool(
    built: list[Path], elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_TOOL_DIR", str(elsewhere / "tools"))
    monkeypatch.setenv("UV_TOOL_BIN_DIR", str(elsewhere / "bin"))
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "tool", "install", "--quiet", "--python", sys.executable, "--constraints"]
    subprocess.run([*command, str(ROOT / "constraints.txt"), str(built[0])], check=True)
    asked = [str(elsewhere / "bin" / "strawberry"), "devices", "list"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no hub is running" in done.stderr
    told = subprocess.run(
        [asked[0], "update", "--from", "new.whl"], capture_output=True, text=True, check=True
    )
    assert f"uv tool install --force {elsewhere / 'new.whl'}" in told.stdout
