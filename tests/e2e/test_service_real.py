"""A home as a transient service of the systemd that runs here, with all protections of its unit."""

import os
import subprocess
from pathlib import Path

import pytest

from deploy.service.unit import UnitStyle, protections
from tests.e2e.house import CALLABLE, House, wait_for

_ROOT = Path(__file__).parents[2]


def _manager() -> list[str]:
    """The words for the systemd that this user may tell to run something."""
    words = ["--system"] if os.geteuid() == 0 else ["--user"]
    try:
        # Not installed by packages alone: in a container there is the command and no manager.
        subprocess.run(["systemctl", *words, "show", "--property=Version"], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no systemd runs here that this user may tell to run something")
    return words


def test_a_home_runs_under_systemd_with_every_protection(tmp_path: Path, sandbox_files: Path) -> None:
    words = _manager()
    with House(tmp_path / "house") as home:
        subprocess.run(["cp", "-r", str(sandbox_files), str(home.home / "sandbox")], check=True)
        home.home.chmod(0o700)
        unit = f"strawberry-test-{home.http_port}.service"
        style = UnitStyle(system=words == ["--system"])
        settings = [
            f"--property={line}"
            for line in (*protections(style, writable=[home.home]), "WatchdogSec=5", "KillMode=mixed")
        ]
        variables = [f"STRAWBERRY_HOME={home.home}", f"PYTHONPATH={_ROOT}"]
        ports = ("--http-port", str(home.http_port), "--mqtt-port", str(home.mqtt_port))
        # It returns once the service has said that it is ready.
        started = subprocess.run(
            [
                *("systemd-run", *words, f"--unit={unit}", "--service-type=notify", "--quiet"),
                *(f"--setenv={each}" for each in variables),
                *(*settings, *CALLABLE, "up", *ports),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            assert started.returncode == 0, started.stderr
            assert home.healthy()
            assert home.json("exec", "6 * 7")["value"] == 42
            stopped = subprocess.run(["systemctl", *words, "stop", unit], check=False)
            assert stopped.returncode == 0
            wait_for(lambda: not home.healthy(), what="its end")
        finally:
            subprocess.run(["systemctl", *words, "kill", unit], check=False, capture_output=True)
            subprocess.run(["systemctl", *words, "reset-failed", unit], check=False, capture_output=True)
