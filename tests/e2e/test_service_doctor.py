"""``strawberry doctor`` on a machine that has joined a hub and runs none."""

import json
import os
from pathlib import Path

import pytest

from tests.e2e.house import House, Spoke

pytestmark = pytest.mark.slow


def _doctor(house: House, spoke: Spoke, **extra: str) -> dict[str, dict[str, object]]:
    done = house.cli("doctor", "--json", STRAWBERRY_HOME=str(spoke.home), **extra)
    checks = {row["check"]: row for row in json.loads(done.stdout)}
    assert done.returncode == (0 if all(row["ok"] for row in checks.values()) else 1)
    assert all(row["ok"] or row["hint"] for row in checks.values()), "each says how it is mended"
    return checks


def test_a_headless_spoke_that_lacks_nothing(house: House, journal: dict[str, str]) -> None:
    pi = house.add_spoke("Kitchen Pi", journal)
    checks = _doctor(house, pi)
    assert [name for name, row in checks.items() if not row["ok"]] == []
    assert {"python", "memory", "hub", "clock", "token", "broker"} <= set(checks)
    assert "sandbox" not in checks, "it needs none"
    assert "the hub takes it" in str(checks["token"]["detail"])
    house.wait_until_online(pi)


def test_what_is_missing_while_hub_and_broker_are_away(house: House, journal: dict[str, str]) -> None:
    pi = house.add_spoke("Kitchen Pi", journal)
    house.kill("hub")
    house.kill("broker")
    checks = _doctor(house, pi)
    assert [name for name, row in checks.items() if not row["ok"]] == ["hub", "broker"]
    assert house.broker_url in str(checks["broker"]["detail"])
    assert "cannot be asked" in str(checks["token"]["detail"])


def test_a_device_that_was_locked_out_is_told_how_it_comes_back(
    house: House, journal: dict[str, str]
) -> None:
    pi = house.add_spoke("Kitchen Pi", journal)
    house.cli("devices", "revoke", pi.id)
    checks = _doctor(house, pi)
    assert [name for name, row in checks.items() if not row["ok"]] == ["token"]
    assert f"strawberry devices invite {pi.id}" in str(checks["token"]["hint"])


def test_a_damaged_enrolment_is_named(house: House, journal: dict[str, str]) -> None:
    pi = house.add_spoke("Kitchen Pi", journal)
    (pi.home / "spoke" / "enrolment.json").write_text("{")
    checks = _doctor(house, pi)
    assert "is damaged" in str(checks["token"]["detail"])


def test_a_service_that_has_failed_is_named_with_the_command_that_shows_why(
    house: House, journal: dict[str, str], tmp_path: Path
) -> None:
    pi = house.add_spoke("Kitchen Pi", journal)
    (tmp_path / "bin").mkdir()
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text(
        '#!/bin/sh\ncase "$*" in *Version*) echo 252;; '
        "*) printf 'ActiveState=failed\\nResult=watchdog\\n';; esac\n"
    )
    systemctl.chmod(0o755)
    unit = tmp_path / "config" / "systemd" / "user" / "strawberry-spoke.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\n")
    path = f"{systemctl.parent}{os.pathsep}{os.environ['PATH']}"
    checks = _doctor(house, pi, PATH=path, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert checks["service spoke"]["detail"] == "failed, watchdog"
    assert "strawberry service logs spoke" in str(checks["service spoke"]["hint"])


def test_a_sandbox_that_was_changed_does_not_count_as_one(house: House, tmp_path: Path) -> None:
    (house.home / "sandbox").unlink()
    done = house.cli("doctor", "--json")
    checks = {row["check"]: row for row in json.loads(done.stdout)}
    assert not checks["sandbox"]["ok"]
    assert checks["sandbox"]["hint"]


def test_the_sandbox_runs_a_program_for_real(house: House) -> None:
    checks = {row["check"]: row for row in house.json("doctor")}
    assert checks["sandbox"]["detail"] == "unchanged, and runs programs"
