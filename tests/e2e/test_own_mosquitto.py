"""The main job on a Mosquitto of our own: one that we run, and one that others use already."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.house import PATIENCE_S, House, Spoke, name_of, runs, wait_for
from tests.e2e.secured import ADMIN_PASSWORD, Secured
from tests.model_server import Says, ScriptedModel, calls
from tests.mosquitto import HINT, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, sandbox_files: Path, model: ScriptedModel) -> Iterator[House]:
    """A home of which nothing runs, with the scripted model."""
    require(find_mosquitto() is not None, HINT)
    with House(tmp_path / "house", sandbox=sandbox_files) as house:
        house.use_model(model.base_url)
        yield house


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """A Mosquitto with dynamic security, from which a zigbee bridge lives."""
    require(find_mosquitto() is not None, HINT)
    with Secured(tmp_path / "theirs") as broker:
        broker.add_zigbee()
        yield broker


@pytest.fixture
def provisioned_house(home: House, secured: Secured) -> House:
    """The hub on that Mosquitto, set up for it."""
    done = home.cli("broker", "provision", secured.url, STRAWBERRY_BROKER_PASSWORD=ADMIN_PASSWORD)
    assert done.returncode == 0, done.stderr
    home.broker_url = secured.url
    home.start_hub()
    return home


def _writes(house: House, model: ScriptedModel, text: str) -> None:
    model.script = lambda seen: (
        Says(text=f"Done: {seen.results[-1]}")
        if seen.results
        else calls("python_exec", code=f"devices.bedroom_pc.JournalSkill.write({text!r})")
    )
    assert f"wrote {text}" in house.json("chat", f"write {text}")["answer"]


def test_a_mosquitto_that_we_run_serves_and_is_started_again_when_it_dies(
    home: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    home.start_up("--broker", "mosquitto", "--no-spoke")
    assert "(Mosquitto)" in home.log("up")
    pc = home.add_spoke("Bedroom PC", journal)
    _writes(home, model, "before")

    (broker,) = _brokers(home)
    broker.kill()

    wait_for(lambda: [each for each in _brokers(home) if each != broker], what="it to be started again")
    wait_for(lambda: _answers(home, pc), what="the house to be whole")
    _writes(home, model, "after")
    assert [line for line in pc.journal() if line != "again"] == ["before", "after"]
    assert "MQTT 5" in home.log(pc.id)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_mosquitto_that_we_run_ends_with_us(home: House, number: signal.Signals) -> None:
    home.start_up("--broker", "mosquitto", "--no-spoke")
    (broker,) = _brokers(home)

    home.send("up", number)

    home.processes["up"].wait(timeout=PATIENCE_S)
    wait_for(lambda: not runs(broker), what="its end")


def test_a_mosquitto_that_others_use_serves_us_and_still_serves_them(
    provisioned_house: House, secured: Secured, model: ScriptedModel, journal: dict[str, str]
) -> None:
    house = provisioned_house
    pc = house.add_spoke("Bedroom PC", journal)

    _writes(house, model, "theirs")

    assert pc.journal() == ["theirs"]
    assert secured.zigbee_works()
    assert not _files_that_hold(house.home, ADMIN_PASSWORD), "the administrator's password is stored nowhere"


def test_a_mosquitto_with_an_authority_of_its_own_is_reached_over_tls_by_hub_and_devices(
    home: House, tmp_path: Path, model: ScriptedModel, journal: dict[str, str]
) -> None:
    with Secured(tmp_path / "secure", tls_port=free_port()) as broker:
        home.broker_url = f"mqtts://localhost:{broker.tls_port}"
        provision = ("broker", "provision", home.broker_url)
        unknown = home.cli(*provision, given=f"{ADMIN_PASSWORD}\n")
        assert unknown.returncode == 1
        assert "certificate" in unknown.stderr.lower()
        done = home.cli(*provision, "--ca", str(broker.certs / "ca.pem"), given=f"{ADMIN_PASSWORD}\n")
        assert done.returncode == 0, done.stderr
        home.start_hub()
        pc = home.add_spoke("Bedroom PC", journal)

        _writes(home, model, "sealed")

        assert pc.journal() == ["sealed"]
        assert "mqtts://localhost" in home.log(pc.id)
        assert home.cli("broker", "check").returncode == 0


def test_checking_proves_that_logins_and_denials_work_and_says_what_does_not(
    home: House, secured: Secured
) -> None:
    assert home.cli("broker", "provision", secured.url, given=f"{ADMIN_PASSWORD}\n").returncode == 0

    good = home.cli("broker", "check")
    assert good.returncode == 0, good.stdout
    lines = [line for line in good.stdout.splitlines() if not line.startswith(" ")]
    assert len(lines) > 10
    assert all(line.startswith("✓ ") for line in lines)
    assert not [name for name in _roles(secured) if "check" in name], "nothing is left behind"

    secured.tell("disableClient", "strawberry-hub-main")
    bad = home.cli("broker", "check", secured.url)
    assert bad.returncode == 1
    assert "✗ " in bad.stdout
    rows = home.cli("broker", "check", "--json")
    assert rows.returncode == 1
    assert not all(row["ok"] for row in json.loads(rows.stdout))

    secured.stop()
    assert home.cli("broker", "check").returncode == 1


def _roles(broker: Secured) -> list[str]:
    stored = json.loads((broker.directory / "dynsec.json").read_text())
    return [str(role["rolename"]) for role in stored["roles"]]


def _answers(house: House, spoke: Spoke) -> bool:
    return house.cli("call", spoke.id, "JournalSkill.write", "text=again").returncode == 0


def _brokers(house: House) -> list[psutil.Process]:
    children = psutil.Process(house.processes["up"].pid).children(recursive=True)
    return [each for each in children if runs(each) and name_of(each) == "mosquitto"]


def _files_that_hold(directory: Path, text: str) -> list[str]:
    files = (Path(folder) / name for folder, _, names in os.walk(directory) for name in names)
    return [str(file) for file in files if text.encode() in file.read_bytes()]
