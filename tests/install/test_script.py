"""install.sh and `strawberry update`: an installation without a checkout, brought forward and back."""

import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.update.installation import (
    PACKAGE,
    SCRIPT,
    Installation,
    Kind,
    find_installation,
    fitting,
    is_newer,
)
from tests.install.conftest import ROOT
from tests.requirements import require

pytestmark = pytest.mark.slow

_SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$CALLS"
state="$CALLS.state" database="$STRAWBERRY_HOME/spoke/some.db"
case "$*" in
  *is-active*spoke) ! grep -q inactive "$state" 2>/dev/null;;
  *is-active*) exit 3;;
  *show*) echo "OTHER=1 STRAWBERRY_HOME=$STRAWBERRY_HOME";;
  # Ctrl-C while services are stopped: the update goes on to its end.
  *stop*) kill -INT 0; echo inactive > "$state";;
  *reset-failed*) ;;
  # The new version changes the database and does not start; the one before starts with its own alone.
  # With $NEWER it is the new one that starts, and no other.
  *start*)
    good=0.1.0 wanted=old
    [ ! -e "$NEWER" ] || good=0.2.0 wanted=
    if [ ! -e "$BROKEN" ] && grep -q "$wanted" "$database" &&
        "$HOME/.local/bin/strawberry" --version | grep -q "$good"
    then echo active > "$state"
    else echo new > "$database"; touch "$database-wal"; exit 1
    fi;;
esac
"""


@dataclass
class Machine:
    """A machine of a user: a home, and a package index on loopback."""

    directory: Path
    environment: dict[str, str]

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command and give what it printed; it has to end with this code."""
        done = subprocess.run(
            words,
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def strawberry(self, *words: str, code: int = 0) -> str:
        return self.run(str(self.directory / ".local" / "bin" / "strawberry"), *words, code=code)

    @property
    def root(self) -> Path:
        return self.directory / ".local" / "share" / "strawberry"

    @property
    def versions(self) -> list[Path]:
        return list((self.root / "versions").iterdir())


@pytest.fixture
def machine(tmp_path: Path, built: list[Path], index: str) -> Machine:
    # What the package depends on comes from this environment: the tests install the package alone.
    dependencies = tmp_path / "dependencies"
    dependencies.mkdir()
    for each in Path(pytest.__file__).parents[1].iterdir():
        if "strawberry" not in each.name:
            (dependencies / each.name).symlink_to(each)
    (tmp_path / "bin").mkdir()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("STRAWBERRY", "PYTHON"))
    }
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / ".local" / "share"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "STRAWBERRY_ROOT": str(tmp_path / ".local" / "share" / "strawberry"),
        "STRAWBERRY_BIN": str(tmp_path / ".local" / "bin"),
        "STRAWBERRY_HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PYTHONPATH": str(dependencies),
        "PIP_NO_DEPS": "1",
        "PIP_NO_COMPILE": "0",  # pip reads it so: nothing is compiled that is not run
        "PIP_INDEX_URL": index,
        "CALLS": str(tmp_path / "calls"),
        "BROKEN": str(tmp_path / "broken"),
        "NEWER": str(tmp_path / "newer"),
    }
    made = Machine(tmp_path, environment)
    assert "strawberry 0.1.0" in made.run("sh", str(SCRIPT), "--from", str(built[0]))
    return made


def with_version(wheel: Path, version: str, folder: Path, *, entry: str = "deploy.cli.main") -> Path:
    """Make another release out of a wheel."""
    made = folder / wheel.name.replace("0.1.0", version)
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(("METADATA", "RECORD", "entry_points.txt")):
                content = content.replace(b"Version: 0.1.0", f"Version: {version}".encode())
                content = content.replace(b"home-0.1.0.dist", f"home-{version}.dist".encode())
                content = content.replace(b"deploy.cli.main", entry.encode())
            new.writestr(name.replace("0.1.0", version), content)
    return made


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index that knows of version 0.3.0 and, withdrawn, 0.4.0."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/simple/strawberry-home/"
            files = [
                {
                    "filename": f"strawberry_home-{version}-py3-none-any.whl",
                    "yanked": yanked,
                    "url": "x",
                    "hashes": {},
                }
                for version, yanked in {"0.1.0": False, "0.3.0": False, "0.4.0": True}.items()
            ]
            body = json.dumps({"meta": {"api-version": "1.0"}, "name": "strawberry-home", "files": files})
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def test_an_update_that_does_not_start_changes_nothing_and_another_keeps_the_version_before(
    machine: Machine, built: list[Path], tmp_path: Path
) -> None:
    unit = machine.strawberry("service", "install", "up", "--print")
    assert f'ExecStart="{machine.directory}/.local/share/strawberry/current/bin/strawberry" "up"' in unit
    broken = with_version(built[0], "0.2.0", tmp_path, entry="deploy.cli.nothing")
    assert "Nothing was changed" in machine.strawberry("update", "--from", str(broken), code=1)
    assert "there is no file" in machine.strawberry("update", "--from", "nothing.whl", code=1)
    assert "not said what to install" in machine.strawberry("update", code=1)
    (machine.root / "lock").mkdir()
    assert "another update" in machine.strawberry("update", "--from", str(broken), code=1)
    assert (machine.root / "lock").exists()
    (machine.root / "lock").rmdir()
    assert "0.1.0" in machine.strawberry("--version")
    assert len(machine.versions) == 1
    assert "no earlier version" in machine.strawberry("update", "--rollback", code=1)
    newer = with_version(built[0], "0.2.0", tmp_path)
    # Left by an update that was killed.
    (machine.root / "current.new").symlink_to("nothing")
    assert "strawberry 0.2.0" in machine.strawberry("update", "--from", newer.name)
    assert "strawberry 0.1.0" in machine.strawberry("update", "--rollback")
    assert "strawberry 0.2.0" in machine.strawberry("update", "--rollback")
    # Of three versions the oldest is removed.
    assert "strawberry 0.1.0" in machine.strawberry("update", "--from", str(built[0]))
    assert len(machine.versions) == 2
    assert "0.3.0 is available, this is 0.1.0" in machine.strawberry("update", "--check")


def test_a_service_that_does_not_start_again_brings_the_version_before_back(
    machine: Machine, built: list[Path], tmp_path: Path
) -> None:
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text(_SYSTEMCTL)
    systemctl.chmod(0o755)
    database = tmp_path / "home" / "spoke" / "some.db"
    database.parent.mkdir(parents=True)
    database.write_text("old")
    newer = with_version(built[0], "0.2.0", tmp_path)
    assert "version before is in use" in machine.strawberry("update", "--from", str(newer), code=1)
    assert "0.1.0" in machine.strawberry("--version")
    assert [each.name for each in database.parent.iterdir()] == ["some.db"]
    assert (tmp_path / "calls.state").read_text() == "active\n"
    starts = [line for line in (tmp_path / "calls").read_text().splitlines() if " start " in line]
    assert {line.split()[-1] for line in starts} == {"strawberry-spoke"}
    # What does not start is nothing to go back to.
    assert len(machine.versions) == 1
    assert "no earlier version" in machine.strawberry("update", "--rollback", code=1)
    # Neither starts: nothing says that all is well.
    (tmp_path / "broken").touch()
    assert "starts neither with" in machine.strawberry("update", "--from", str(newer), code=1)
    # A version before that does not start with the databases of this one: this one stays.
    (tmp_path / "broken").unlink()
    (tmp_path / "newer").touch()
    (tmp_path / "calls.state").unlink()
    machine.strawberry("update", "--from", str(newer))
    assert "This version is in use again" in machine.strawberry("update", "--rollback", code=1)
    assert "0.2.0" in machine.strawberry("--version")
    assert (tmp_path / "calls.state").read_text() == "active\n"
    assert len(machine.versions) == 2


def test_the_script_is_one_that_every_shell_reads() -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    require(checker.exists(), "shellcheck is not installed: make test")
    done = subprocess.run([str(checker), str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_same_release_is_no_newer_one() -> None:
    assert is_newer("0.1.1", "0.1")
    assert not is_newer("0.1.0", "0.1.0")


def test_each_kind_of_installation_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_installation(tmp_path, {"STRAWBERRY_CONTAINER": "1"}).kind == "container"
    assert find_installation(tmp_path, {"STRAWBERRY_CONTAINER": "app"}).kind == "app"
    assert find_installation(tmp_path, {}).kind == "checkout"
    root = tmp_path / "strawberry"
    (root / "versions" / "1").mkdir(parents=True)
    assert find_installation(root / "versions" / "1", {}).kind == "checkout"
    (root / "current").symlink_to("versions/1")
    assert find_installation(root / "versions" / "1", {}).root == root
    (root / "extras").write_text("sandbox")
    hint = "Install speech: pip install 'strawberry-home[voice]'"
    assert f"-m pip install -e '{ROOT}[voice]'" in fitting(hint, tmp_path)
    monkeypatch.setenv("STRAWBERRY_CONTAINER", "1")
    assert fitting("Run 'strawberry up'.", tmp_path) == "Run 'docker compose exec hub strawberry up'."
    monkeypatch.delenv("STRAWBERRY_CONTAINER")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin" / "strawberry")])
    monkeypatch.setenv("PATH", "")
    assert fitting("Run 'strawberry up'.", tmp_path) == f"Run '{tmp_path}/bin/strawberry up'."
    expected = "Install speech: sh install.sh --from WHEEL --extras sandbox,voice"
    assert fitting(hint, root / "versions" / "1") == expected


@pytest.mark.parametrize(
    ("kind", "from_file", "wheel", "command"),
    [
        ("pipx", False, None, "pipx upgrade strawberry-home"),
        ("pipx", True, None, "pipx install --force './WHEEL[voice]'"),
        ("pipx", True, "$(id).whl", f"pipx install --force '{Path.cwd()}/$(id).whl[voice]'"),
        ("uv", False, PACKAGE, "uv tool upgrade strawberry-home"),
        ("pip", False, None, f"{sys.executable} -m pip install --upgrade 'strawberry-home[voice]'"),
        ("container", False, None, "git pull && docker compose up -d --build"),
    ],
)
def test_each_kind_has_one_command_that_updates_it(
    kind: Kind, from_file: bool, wheel: str | None, command: str, tmp_path: Path
) -> None:
    installed = Installation(kind, from_file=from_file, extras="[voice]")
    assert installed.command(wheel) == command
