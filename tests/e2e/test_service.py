"""Hub and spoke as the service manager sees them: ready, alive, and ended in good order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manager import Heard
from tests.e2e.house import PATIENCE_S, House, Spoke, wait_for

pytestmark = pytest.mark.slow

_WATCHDOG_S = 1.5
_OFTEN = 3
"""Beats in one watchdog's time."""


def _told(heard: Heard) -> dict[str, Any]:
    """The environment that systemd gives a service."""
    return {"NOTIFY_SOCKET": heard.address, "WATCHDOG_USEC": f"{_WATCHDOG_S * 1_000_000:.0f}"}


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    with Heard.listening(str(tmp_path / "notify")) as manager:
        yield manager


def _beats(heard: Heard) -> int:
    return len(heard.said("WATCHDOG"))


def _start_spoke(house: House, spoke: Spoke, heard: Heard) -> None:
    house.kill(spoke.id)
    if "hub" in house.processes:
        house.wait_until_offline(spoke)
    words = ("spoke", "run", "--hub", house.url, "--skills", str(spoke.skills), "--debug")
    house.start(spoke.id, *words, home=spoke.home, **_told(heard))


def test_everything_in_one_is_ready_alive_and_ends_as_a_service(
    tmp_path: Path, sandbox_files: Path, heard: Heard
) -> None:
    with House(tmp_path / "house", sandbox=sandbox_files) as home:
        ports = ("--http-port", str(home.http_port), "--mqtt-port", str(home.mqtt_port))
        home.start("up", "up", *ports, "--debug", **_told(heard))
        wait_for(lambda: heard.said("READY") or home.ended("up"), what="READY")
        assert home.get("/api/health")["broker"]["connected"], "it is ready once it serves, not before"
        assert home.url in heard.said("STATUS")[0]

        heard.forget()
        wait_for(lambda: _beats(heard) > _OFTEN, what="the watchdog")
        home.processes["up"].terminate()
        assert home.processes["up"].wait(PATIENCE_S) == 0
        assert heard.said("STOPPING") == ["1"]
        assert heard.said("READY") == [], "its spoke does not speak in its name"


def test_a_spoke_says_in_its_status_whether_it_is_on_the_bus(
    house: House, journal: dict[str, str], heard: Heard
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    house.kill("hub")
    house.kill("broker")
    _start_spoke(house, pc, heard)
    wait_for(lambda: heard.said("READY") or house.ended(pc.id), what="READY without hub and broker")
    wait_for(lambda: "no broker answers" in heard.said("STATUS")[-1], what="its state")

    house.start_broker()
    house.start_hub()
    wait_for(lambda: "offers" in heard.said("STATUS")[-1].partition("is not")[0], what="the better state")
