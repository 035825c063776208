"""The home beside a broker that stands in the house already, and what is left there after us."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.house import House, wait_for
from tests.e2e.secured import ADMIN_PASSWORD, Secured
from tests.mosquitto import HINT, Mosquitto, find_mosquitto, retained_topics
from tests.requirements import require

PASSWORD = "an ordinary password of this house"


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Mosquitto]:
    """The broker that stands in the house, with one ordinary login."""
    require(find_mosquitto() is not None, HINT)
    directory = tmp_path / "theirs"
    directory.mkdir()
    passwords = directory / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "berry", PASSWORD], check=True)
    with Mosquitto(directory, password_file=passwords) as broker:
        yield broker


@pytest.fixture
def home(tmp_path: Path, sandbox_files: Path, theirs: Mosquitto) -> Iterator[House]:
    """A home that uses that broker beside its own bus."""
    with House(tmp_path / "house", sandbox=sandbox_files) as house:
        (house.home / "strawberry.toml").write_text(
            f'[home_broker]\nurl = "{theirs.url}"\nusername = "berry"\npassword_env = "HOUSE_BROKER"\n'
        )
        (house.home / ".env").write_text(f'HOUSE_BROKER="{PASSWORD}"\n')
        (house.home / ".env").chmod(0o600)
        yield house


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Secured]:
    """A Mosquitto of our own, whose administrator sees everything that is retained."""
    with Secured(tmp_path / "ours") as broker:
        yield broker


def _retained(broker: Mosquitto) -> list[str]:
    """All retained topics, as any client of their broker sees them."""
    return retained_topics(broker.port, "berry", PASSWORD, "#")


def test_the_home_lives_beside_a_broker_that_stands_in_the_house(
    home: House, theirs: Mosquitto, journal: dict[str, str]
) -> None:
    home.start_broker()
    home.start_hub()
    pc = home.add_spoke("Bedroom PC", journal)
    wait_for(lambda: _checks(home)["home broker"]["ok"], what="the home broker")

    assert home.json("call", pc.id, "JournalSkill.write", "text=beside") == "wrote beside"
    assert _retained(theirs) == ["strawberry/main/availability"], "devices speak on the bus alone"
    theirs.stop()
    assert home.json("call", pc.id, "JournalSkill.write", "text=alone") == "wrote alone"
    wait_for(lambda: not _checks(home)["home broker"]["ok"], what="the loss to be noticed")
    theirs.start()
    wait_for(lambda: _checks(home)["home broker"]["ok"], what="the home broker to be found again")
    assert PASSWORD not in home.log("hub")


def test_purge_leaves_nothing_on_either_broker(
    home: House, theirs: Mosquitto, bus: Secured, journal: dict[str, str]
) -> None:
    done = home.cli("broker", "provision", bus.url, STRAWBERRY_BROKER_PASSWORD=ADMIN_PASSWORD)
    assert done.returncode == 0, done.stderr
    home.broker_url = bus.url
    home.start_hub()
    pc = home.add_spoke("Bedroom PC", journal)
    wait_for(lambda: _retained(theirs), what="the hub on their broker")
    home.kill(pc.id)
    wait_for(lambda: home.state_of(pc) == "offline", what="the device to be gone")
    assert bus.retained("admin", ADMIN_PASSWORD, "#")

    kept = home.cli("purge", given="n\n")
    assert kept.returncode == 1
    assert bus.retained("admin", ADMIN_PASSWORD, "#")
    purged = home.cli("purge", given="y\n")

    assert purged.returncode == 0, purged.stderr
    assert "topics are empty now" in purged.stdout
    assert bus.retained("admin", ADMIN_PASSWORD, "#") == []
    assert _retained(theirs) == []
    # Nor does the end of the hub leave a word behind.
    home.kill("hub")
    assert bus.retained("admin", ADMIN_PASSWORD, "#") == []
    assert _retained(theirs) == []


def _checks(house: House) -> dict[str, dict[str, object]]:
    done = house.cli("doctor", "--json")
    return {row["check"]: row for row in json.loads(done.stdout)}
