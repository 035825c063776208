"""The units that are rendered: what systemd itself says of them, and that they let the sandbox run."""

import argparse
import ctypes.util
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from deploy.cli.tray import start_command
from deploy.service.plan import KINDS, MEMORY, Kind, ServicePlan, name_of, own_program, typed
from deploy.service.unit import UnitStyle, render
from tests.requirements import require

ROOT = Path(__file__).parents[2]


def _plan(kind: Kind, home: Path, *options: str, user: str | None = None) -> ServicePlan:
    return ServicePlan(kind, own_program(), options, home, memory=MEMORY[kind], user=user)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", ["user", "system"])
def test_systemd_finds_nothing_wrong_with_a_unit(kind: Kind, scope: str, tmp_path: Path) -> None:
    require(
        shutil.which("systemd-analyze") is not None, "systemd-analyze is missing: apt-get install systemd"
    )
    home = tmp_path / 'data of 50% "users" \\ $HOME'
    home.mkdir()
    system = scope == "system"
    plan = _plan(kind, home, f"--skills={home}", user="root" if system else None)
    unit = tmp_path / f"{name_of(plan.kind)}.service"
    unit.write_text(render(plan, UnitStyle(system=system)))
    (tmp_path / "run").mkdir()
    checked = subprocess.run(
        ["systemd-analyze", *([] if system else ["--user"]), "verify", "--man=no", str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_users_unit_asks_for_nothing_that_takes_root(tmp_path: Path) -> None:
    mine = render(_plan("spoke", tmp_path), UnitStyle())
    for line in ("CapabilityBoundingSet", "ProtectKernelModules", "ProtectKernelLogs", "User="):
        assert line not in mine
    assert "NoNewPrivileges=yes" in mine
    assert "ProtectSystem=strict" in mine
    assert f'ReadWritePaths="{tmp_path}"' in mine
    unconfined = render(_plan("spoke", tmp_path), UnitStyle(confined=False))
    assert "ProtectSystem" not in unconfined
    assert "SystemCallFilter" in unconfined


def test_a_hub_of_the_machine_sees_of_homes_only_what_it_needs_and_skills_see_theirs() -> None:
    home, code = Path("/home/pi/.strawberry"), (Path("/usr"), Path("/root/a:b"))
    plan = ServicePlan("hub", own_program(), (), home, code=code)
    hub = render(plan, UnitStyle(system=True))
    assert {"PrivateDevices=yes", "ProtectClock=yes", "ProtectProc=invisible"} <= set(hub.splitlines())
    shown = [line for line in hub.splitlines() if line.startswith(("ProtectHome", "Bind"))]
    assert shown == [
        "ProtectHome=tmpfs",
        f'BindPaths="{home}"',
        'BindReadOnlyPaths="/root/a:b"',
    ]
    for other in (replace(plan, kind="up"), replace(plan, kind="spoke")):
        unit = render(other, UnitStyle(system=True))
        assert "RestrictRealtime=yes" in unit
        assert "ProtectHome" not in unit
        assert "PrivateDevices" not in unit
    assert "ProtectHome" not in render(plan, UnitStyle())


def test_only_a_systemd_that_knows_it_waits_longer_each_time(tmp_path: Path) -> None:
    plan = _plan("hub", tmp_path)
    assert "RestartSteps" not in render(plan, UnitStyle(version=252))
    assert "RestartMaxDelaySec=60" in render(plan, UnitStyle(version=254))


def test_a_path_that_would_break_a_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written into a systemd unit"):
        render(_plan("hub", tmp_path / "a\nExecStartPre=/bin/evil"), UnitStyle())


def test_options_are_carried_over_as_typed_and_secrets_are_refused() -> None:
    defaults = argparse.Namespace(lan=False, http_port=8321, broker=None, skills=None)
    chosen = argparse.Namespace(lan=True, http_port=8321, broker="mqtts://hub:1", skills=["/a b", "/c"])
    assert typed(chosen, defaults) == ("--lan", "--broker=mqtts://hub:1", "--skills=/a b", "--skills=/c")
    chosen.broker = "mqtt://anna:hunter2@hub:1883"
    with pytest.raises(ConfigError, match="could read a password or token"):
        typed(chosen, defaults)


_UNDER_FILTER = """
import asyncio, ctypes, sys
from pathlib import Path

library = ctypes.CDLL(sys.argv[1])
library.seccomp_init.restype = ctypes.c_void_p
ALLOW, EPERM = 0x7FFF0000, 0x00050000 | 1
context = ctypes.c_void_p(library.seccomp_init(EPERM))
for name in sys.stdin.read().split():
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        assert library.seccomp_rule_add(context, ALLOW, number, 0) == 0, name
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert library.seccomp_load(context) == 0

from sandbox_host import PoolSettings
from tests.sandbox_host.house import House, run_alone

assert (asyncio.run(run_alone(PoolSettings(Path(sys.argv[2]), spares=0), House(), "6 * 7"))).value == 42
assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == -1, "a debugger's call is let through"
print("works and is confined")
"""


def test_the_sandbox_runs_under_the_system_call_filter_of_the_units(sandbox_files: Path) -> None:
    analyse, library = shutil.which("systemd-analyze"), ctypes.util.find_library("seccomp")
    require(bool(analyse and library), "systemd-analyze or libseccomp is missing: apt-get install systemd")
    listed = subprocess.check_output(["systemd-analyze", "syscall-filter", "--no-pager"], text=True)
    ran = subprocess.run(
        [sys.executable, "-c", _UNDER_FILTER, str(library), str(sandbox_files)],
        input=" ".join(sorted(_system_calls(listed, "@system-service"))),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ran.stdout == "works and is confined\n", ran.stderr


def _system_calls(listed: str, group: str) -> set[str]:
    """The calls of a group of systemd, those of the groups in it included."""
    groups: dict[str, list[str]] = {}
    current: list[str] = []
    for line in listed.splitlines():
        if line.startswith("@"):
            current = groups.setdefault(line.strip(), [])
        elif line.startswith(" ") and not line.strip().startswith("#"):
            current.append(line.strip())
    calls: set[str] = set()
    for member in groups[group]:
        calls |= _system_calls(listed, member) if member.startswith("@") else {member}
    return calls


def test_a_session_starts_the_tray_that_an_update_puts_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "versions" / "1" / "bin").mkdir(parents=True)
    (tmp_path / "versions" / "1" / "bin" / "strawberry").touch()
    (tmp_path / "current").symlink_to("versions/1")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "versions" / "1"))
    monkeypatch.delenv("STRAWBERRY_HOME", raising=False)
    words = start_command(argparse.Namespace(shortcut="none", no_tray=False))
    assert words[:2] == [str(tmp_path / "current" / "bin" / "strawberry"), "tray"]
