"""``strawberry doctor`` on a machine that has joined a hub and runs none."""

import json

import pytest

from tests.e2e.house import House, Spoke

pytestmark = pytest.mark.slow


def _doctor(house: House, spoke: Spoke, **extra: str) -> dict[str, dict[str, object]]:
    done = house.cli("doctor", "--json", STRAWBERRY_HOME=str(spoke.home), **extra)
    checks = {row["check"]: row for row in json.loads(done.stdout)}
    assert done.returncode == (0 if all(row["ok"] for row in checks.values()) else 1)
    assert all(row["ok"] or row["hint"] for row in checks.values()), "each says how it is mended"
    return checks


def _wrong(checks: dict[str, dict[str, object]]) -> list[str]:
    return [name for name, row in checks.items() if not row["ok"]]


def test_a_headless_spoke_lacks_nothing_or_says_what(house: House, journal: dict[str, str]) -> None:
    pi = house.add_spoke("Kitchen Pi", journal)
    checks = _doctor(house, pi)
    assert _wrong(checks) == []
    assert {"python", "memory", "hub", "clock", "token", "broker"} <= set(checks)
    assert "sandbox" not in checks, "it needs none"
    assert "the hub takes it" in str(checks["token"]["detail"])
    house.wait_until_online(pi)

    house.kill("hub")
    house.kill("broker")
    checks = _doctor(house, pi)
    assert _wrong(checks) == ["hub", "broker"]
    assert house.broker_url in str(checks["broker"]["detail"])
    assert "cannot be asked" in str(checks["token"]["detail"])

    (pi.home / "spoke" / "enrolment.json").write_text("{")
    assert "is damaged" in str(_doctor(house, pi)["token"]["detail"])


def test_a_device_that_was_locked_out_is_told_how_it_comes_back(
    house: House, journal: dict[str, str]
) -> None:
    pi = house.add_spoke("Kitchen Pi", journal)
    house.cli("devices", "revoke", pi.id, "--yes")
    checks = _doctor(house, pi)
    assert _wrong(checks) == ["token"]
    assert f"strawberry devices invite {pi.id}" in str(checks["token"]["hint"])


def test_the_sandbox_runs_a_program_for_real_and_one_that_was_changed_does_not_count(house: House) -> None:
    checks = {row["check"]: row for row in house.json("doctor")}
    assert checks["sandbox"]["detail"] == "unchanged, and runs programs"
    (house.home / "sandbox").unlink()
    checks = {row["check"]: row for row in json.loads(house.cli("doctor", "--json").stdout)}
    assert not checks["sandbox"]["ok"]
    assert checks["sandbox"]["hint"]
