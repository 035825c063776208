"""Services as 'strawberry service install' sets them up, under a real systemd: of the machine, of a user."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.house import PATIENCE_S, House, Spoke, wait_for
from tests.e2e.own_systemd import OwnSystemd, own_systemd
from tests.forkserver import COMMAND
from tests.spoke.nodes.test_nodes import add_node

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_WATCHDOG_S = 10
"""Less than the unit's, so that a test does not wait for it; more than a busy machine holds a process up."""
_MANY_S = 180.0
"""For a start with everything, on a machine that is busy with other tests."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[OwnSystemd]:
    (tmp_path / "machine").mkdir()
    visible = (tmp_path / "house", Path(sys.prefix), _ROOT)
    for path in visible:
        path.mkdir(exist_ok=True)
    with own_systemd(tmp_path / "machine", visible=visible) as machine:
        yield machine


class Service:
    """A service of that machine, driven as a person would."""

    def __init__(self, machine: OwnSystemd, kind: str, *, home: Path, system: bool) -> None:
        self.machine, self.kind, self.home, self.system = machine, kind, home, system

    @property
    def unit(self) -> str:
        return f"strawberry-{self.kind}"

    def strawberry(self, *words: str) -> str:
        done = self.machine.run(*COMMAND, *words, STRAWBERRY_HOME=str(self.home), PYTHONPATH=str(_ROOT))
        # Some say with 1 that something does not run; what they print is complete.
        assert done.returncode == 0 or (done.returncode == 1 and done.stdout), done.stderr
        return done.stdout

    def install(self, *words: str) -> dict[str, Any]:
        """Install and start it; returns once it has said that it is ready."""
        said = self.strawberry("service", "install", self.kind, *self._scope, "--now", "--json", *words)
        done: dict[str, Any] = json.loads(said)
        return done

    def state(self) -> dict[str, Any]:
        [row] = json.loads(self.strawberry("service", "status", self.kind, *self._scope, "--json"))
        state: dict[str, Any] = row
        return state

    def logs(self) -> str:
        return self.strawberry("service", "logs", self.kind, *self._scope, "-n", "1000")

    def send(self, signal: str) -> None:
        """Send a signal to its main process."""
        self._systemctl("kill", "--kill-whom=main", f"--signal={signal}", self.unit)

    def is_back(self, gone: int) -> bool:
        """Whether it runs, as another process than one that is gone."""
        return self.shown("ActiveState") == "active" and int(self.shown("MainPID")) not in (0, gone)

    def shown(self, name: str) -> str:
        """What systemd itself says of one of its properties."""
        return self._systemctl("show", self.unit, f"--property={name}", "--value").strip()

    def everything_logged(self) -> str:
        """What it wrote, and what systemd wrote about it."""
        unit = f"--{'' if self.system else 'user-'}unit={self.unit}"
        return self.machine.run("journalctl", "--no-pager", unit).stdout

    def last_logged(self) -> str:
        """What was logged since it was last told to stop."""
        return self.everything_logged().rpartition("Stopping")[2]

    def units(self, pattern: str) -> str:
        """Which units of this manager run, by a pattern of their names."""
        return self._systemctl("list-units", "--plain", "--no-legend", pattern)

    def remove(self) -> None:
        """Stop it and take it away."""
        said = self.strawberry("service", "remove", self.kind, *self._scope)
        assert "is gone" in said, said

    @property
    def _scope(self) -> tuple[str, ...]:
        return ("--system",) if self.system else ()

    def _systemctl(self, *words: str) -> str:
        done = self.machine.run("systemctl", *([] if self.system else ["--user"]), *words)
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_a_home_is_a_service_of_the_machine_that_comes_back_when_it_is_killed(
    tmp_path: Path, sandbox_files: Path, machine: OwnSystemd
) -> None:
    with House(tmp_path / "house" / "main") as home:
        # What other tests run from it comes and goes meanwhile.
        ignored = shutil.ignore_patterns("processes")
        shutil.copytree(sandbox_files, home.home / "sandbox", ignore=ignored)
        home.home.chmod(0o700)
        up = Service(machine, "up", home=home.home, system=True)
        machine.let_see(up.unit, system=True)
        ports = ("--http-port", str(home.http_port), "--mqtt-port", str(home.mqtt_port))
        assert up.install("--run-as", "root", *ports)["changed"]
        assert home.healthy(), "systemd goes on once it is ready"
        first = up.state()
        assert (first["state"], first["enabled"], first["restarts"]) == ("active", True, 0)
        assert home.url in first["detail"]
        assert up.shown("MemoryMax").isdigit()
        assert (up.shown("ProtectSystem"), up.shown("CapabilityBoundingSet")) == ("strict", "")
        assert json.loads(up.strawberry("exec", "6 * 7", "--json"))["value"] == 42

        up.send("SIGKILL")
        wait_for(lambda: up.is_back(first["pid"]), what="it to be back", patience=_MANY_S)
        assert json.loads(up.strawberry("exec", "6 * 7", "--json"))["value"] == 42

        up.remove()
        assert not home.healthy()
        assert "status=9/KILL" in up.everything_logged()
        wait_for(lambda: "Deactivated successfully" in up.last_logged(), what="an end in its time")


def test_a_hub_alone_serves_without_devices_and_without_the_homes_of_people(
    tmp_path: Path, sandbox_files: Path, machine: OwnSystemd
) -> None:
    with House(tmp_path / "house" / "main") as home:
        shutil.copytree(sandbox_files, home.home / "sandbox", ignore=shutil.ignore_patterns("processes"))
        hub = Service(machine, "hub", home=home.home, system=True)
        machine.let_see(hub.unit, system=True)
        ports = ("--http-port", str(home.http_port), "--broker", f"mqtt://127.0.0.1:{home.mqtt_port}")
        hub.install("--run-as", "root", *ports)
        assert hub.state()["state"] == "active"
        assert json.loads(hub.strawberry("exec", "6 * 7", "--json"))["value"] == 42
        assert (hub.shown("ProtectHome"), hub.shown("PrivateDevices")) == ("tmpfs", "yes")
        inside = ("nsenter", "--mount", f"--target={hub.state()['pid']}")
        devices = machine.run(*inside, "ls", "/dev").stdout.split()
        assert "null" in devices
        assert "kmsg" not in devices
        assert machine.run(*inside, "stat", "--file-system", "--format=%T", "/home").stdout == "tmpfs\n"
        hub.remove()


def test_a_spoke_is_a_service_of_its_user_that_is_watched_and_lets_its_skills_finish(
    tmp_path: Path, house: House, machine: OwnSystemd, journal: dict[str, str]
) -> None:
    add_node(house.directory / "kitchen_pi", "camera")
    pi = house.add_spoke("Kitchen Pi", journal)
    house.kill(pi.id)
    service = Service(machine, "spoke", home=pi.home, system=False)
    machine.let_see(service.unit, system=False, watchdog_s=_WATCHDOG_S)
    done = service.install("--skills", str(pi.skills))
    unit = Path(done["path"]).read_text()
    assert ("ProtectSystem=strict" in unit) != any("namespaces" in note for note in done["notes"])

    hanging = service.state()["pid"]
    service.send("SIGSTOP")
    wait_for(lambda: service.is_back(hanging), what="the watchdog to start it again", patience=_MANY_S)
    assert "Watchdog timeout" in service.everything_logged()

    wait_for(lambda: _answers(house, pi), what="its skills to be there again")
    wait_for(lambda: "JournalSkill" in service.state()["detail"], what="its state")
    wait_for(lambda: "JournalSkill" in service.logs(), what="its logs")
    told = {row["check"]: row for row in json.loads(service.strawberry("doctor", "--json"))}
    assert told["service spoke"]["ok"]
    # A node has a scope of its own in the systemd of its user.
    assert house.cli("nodes", "start", "camera").returncode == 0
    # It is begun before its scope is known to systemd.
    wait_for(lambda: "strawberry-node-camera" in service.units("strawberry-node-*.scope"), what="its scope")
    call = house.begin("call", pi.id, "JournalSkill.slowly", "text=job", "seconds=1", "--json")
    wait_for(lambda: "job begun" in pi.journal(), what="the job to begin")
    service.remove()
    out, err = call.communicate(timeout=PATIENCE_S)
    assert (call.returncode, json.loads(out)) == (0, "wrote job"), err
    assert pi.journal()[-1] == "job done"
    assert not Path(done["path"]).exists()
    wait_for(lambda: house.state_of(pi) == "offline", what="the goodbye")


def _answers(house: House, spoke: Spoke) -> bool:
    return house.cli("call", spoke.id, "JournalSkill.look", "seconds=0").returncode == 0
