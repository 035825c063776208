"""``strawberry service`` as a person types it; programs in place of systemd's write down the calls."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from deploy.service.systemd import Systemd
from tests.deploy.strawberry import environment_of, run

_SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >> "$CALLS"
case "$*" in
  *--property=Version*) [ -n "$NO_SYSTEMD" ] && exit 1; echo 252.38-1;;
  *"show strawberry-"*) printf 'LoadState=loaded\\nUnitFileState=enabled\\n'
    printf 'ActiveState=%s\\n' "${STATE:-active}"
    printf 'SubState=running\\nResult=success\\nStatusText=pi offers LampSkill.\\nMainPID=17\\n'
    printf 'NRestarts=2\\nMemoryCurrent=[not set]\\nActiveEnterTimestamp=Sat 2026-11-21\\n';;
  *" start "*) [ -z "$REFUSES" ] || { echo "Job failed" >&2; exit 1; };;
esac
"""
_OTHERS = {
    "systemd-run": '#!/bin/sh\necho "systemd-run" >> "$CALLS"\n[ -z "$NO_NAMESPACES" ]\n',
    "loginctl": '#!/bin/sh\necho "${LINGER:-no}"\n',
    "journalctl": '#!/bin/sh\necho "journalctl $*" >> "$CALLS"\necho line\n',
}


@dataclass
class Machine:
    """A machine with a systemd of a user, as far as the command line sees it."""

    directory: Path

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def unit(self) -> Path:
        return self.directory / "config" / "systemd" / "user" / "strawberry-spoke.service"

    @property
    def calls(self) -> list[str]:
        """What was asked of systemd, without the questions."""
        file = self.directory / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if "--property=" not in line and line != "systemd-run"]

    def run(self, *words: str, **variables: str) -> "CompletedProcess[str]":
        return run(self._environment(variables), "service", *words)

    def doctor(self, **variables: str) -> "CompletedProcess[str]":
        return run(self._environment(variables), "doctor", "--json")

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        path = f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        mine: Mapping[str, str] = {
            "PATH": path,
            "CALLS": str(self.directory / "calls"),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
        }
        return environment_of(self.home, **mine, **variables)

    def join(self) -> None:
        """Make it one that has joined, as far as the service is concerned."""
        (self.home / "spoke").mkdir(parents=True)
        (self.home / "spoke" / "enrolment.json").write_text("{}")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    for name, text in {"systemctl": _SYSTEMCTL, **_OTHERS}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return Machine(tmp_path)


def test_a_spoke_is_installed_started_and_told_of_what_is_missing(machine: Machine) -> None:
    machine.join()
    skills = machine.directory / "my skills"
    skills.mkdir()
    done = machine.run("install", "spoke", "--now", "--samples", "--skills", str(skills))
    assert done.returncode == 0, done.stderr
    assert machine.calls == [
        "systemctl --user daemon-reload",
        "systemctl --user enable strawberry-spoke.service",
        "systemctl --user restart strawberry-spoke.service",
    ]
    text = machine.unit.read_text()
    assert f'"spoke" "run" "--skills={skills}" "--samples"' in text
    assert f'Environment="STRAWBERRY_HOME={machine.home}"' in text
    assert f'ReadWritePaths="{machine.home}"' in text
    assert "loginctl enable-linger" in done.stderr


def test_a_spoke_may_use_less_memory_than_a_hub_and_memory_overrides_it(machine: Machine) -> None:
    machine.join()
    assert "MemoryMax=1G\n" in machine.run("install", "spoke", "--print").stdout
    assert "MemoryMax=3584M\n" in machine.run("install", "up", "--print").stdout
    assert "MemoryMax=512M\n" in machine.run("install", "spoke", "--memory", "512M", "--print").stdout


def test_to_install_the_same_again_changes_nothing(machine: Machine) -> None:
    machine.join()
    assert machine.run("install", "spoke").returncode == 0
    before = machine.unit.stat().st_mtime_ns
    again = machine.run("install", "spoke", "--now", "--json", LINGER="yes")
    assert json.loads(again.stdout) == {
        "path": str(machine.unit),
        "changed": False,
        "started": True,
        "notes": [],
    }
    assert machine.unit.stat().st_mtime_ns == before
    assert machine.calls[-1] == "systemctl --user start strawberry-spoke.service"


def test_what_is_removed_leaves_nothing_but_its_data(machine: Machine) -> None:
    machine.join()
    machine.run("install", "spoke")
    assert machine.run("remove", "spoke").returncode == 0
    assert machine.calls[-3:] == [
        "systemctl --user disable --now strawberry-spoke.service",
        "systemctl --user daemon-reload",
        "systemctl --user reset-failed strawberry-spoke.service",
    ]
    assert list(machine.unit.parent.iterdir()) == []
    assert (machine.home / "spoke" / "enrolment.json").exists()
    assert "There was no service" in machine.run("remove", "spoke").stdout


def test_print_shows_the_unit_and_writes_nothing(machine: Machine) -> None:
    shown = machine.run("install", "hub", "--lan", "--broker", "mqtts://127.0.0.1:8883", "--print")
    assert '"hub" "--broker=mqtts://127.0.0.1:8883" "--lan"' in shown.stdout
    as_json = json.loads(machine.run("install", "hub", "--print", "--json").stdout)
    assert as_json["path"].endswith("strawberry-hub.service")
    assert "[Service]" in as_json["content"]
    assert machine.calls == []
    assert not machine.home.exists()
    assert not machine.unit.parent.exists()


def test_where_users_get_no_namespaces_the_unit_goes_without_and_says_so(machine: Machine) -> None:
    machine.join()
    done = machine.run("install", "spoke", NO_NAMESPACES="1")
    assert "PrivateUsers" not in machine.unit.read_text()
    assert "--system" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("install", "spoke"), "has joined no hub"),
        (("install", "spoke", "--token-file", "-"), "no standard input"),
        (("install", "hub", "--broker", "mqtt://anna:hunter2@hub:1883"), "could read a password or token"),
        (("install", "hub", "--writable", "/no/such/folder"), "there is no folder"),
        (("install", "hub", "--memory", "much"), "is not a size"),
        (("install", "hub", "--run-as", "anna"), "is only for services of the whole machine"),
        (("install", "hub", "--system", "--run-as", "anna\nExecStartPre=x"), "is not a user name"),
        (("install", "hub", "--system", "--run-as", "anna smith"), "is not a user name"),
        (("install", "hub", "--system", "--run-as", "anna\u200e"), "is not a user name"),
        (("install", "hub", "--system", "--run-as", "../anna"), "is not a user name"),
        (("logs", "hub"), "no service is installed"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(
    machine: Machine, words: tuple[str, ...], problem: str
) -> None:
    done = machine.run(*words)
    assert done.returncode == 1
    first, hint = done.stderr.splitlines()
    assert problem in first
    assert hint.strip()
    assert not machine.unit.parent.exists()


def test_without_a_systemd_that_answers_nothing_is_written(machine: Machine) -> None:
    machine.join()
    done = machine.run("install", "spoke", NO_SYSTEMD="1")
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert not machine.unit.exists()


def test_a_refusal_of_systemd_is_told_in_its_words(machine: Machine) -> None:
    machine.join()
    machine.run("install", "spoke")
    done = machine.run("install", "spoke", "--now", REFUSES="1")
    assert done.returncode == 1
    assert "Job failed" in done.stderr
    assert "service logs" in done.stderr


def test_hub_and_up_are_not_both_installed(machine: Machine) -> None:
    assert machine.run("install", "up").returncode == 0
    done = machine.run("install", "hub")
    assert done.returncode == 1
    assert "service remove up" in done.stderr


def test_status_tells_how_it_is_and_its_code_whether_it_runs(machine: Machine) -> None:
    assert machine.run("status").returncode == 1
    machine.join()
    machine.run("install", "spoke")
    running = machine.run("status", "--json")
    assert running.returncode == 0
    [row] = json.loads(running.stdout)
    assert (row["service"], row["state"], row["detail"]) == ("spoke", "active", "pi offers LampSkill.")
    assert (row["restarts"], row["memory_bytes"], row["enabled"]) == (2, None, True)
    failed = machine.run("status", STATE="failed")
    assert failed.returncode == 1
    assert "failed" in failed.stdout
    doctor = {row["check"]: row for row in json.loads(machine.doctor(STATE="failed").stdout)}
    assert doctor["service spoke"]["detail"] == "failed, success"
    assert "strawberry service logs spoke" in doctor["service spoke"]["hint"]


def test_logs_are_those_of_the_journal(machine: Machine) -> None:
    machine.join()
    machine.run("install", "spoke")
    assert machine.run("logs", "-f", "-n", "5").stdout == "line\n"
    assert machine.calls[-1] == (
        "journalctl --no-pager --lines=5 --user-unit=strawberry-spoke.service --follow --output=short-iso"
    )
    of_the_machine = Systemd(system=True).log_command(["hub"], lines=5, follow=False, as_json=True)
    assert of_the_machine[-2:] == ["--unit=strawberry-hub.service", "--output=json"]
