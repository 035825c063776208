"""Replicas of the hub: one leads, the others serve, and the loss of one loses nothing."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgresql
from tests.e2e.house import wait_for
from tests.e2e.replicas import Replicas
from tests.journal import JOURNAL_BEGINNING
from tests.mosquitto import Mosquitto
from tests.requirements import require

pytestmark = pytest.mark.slow

PEN = (
    JOURNAL_BEGINNING
    + '''
    @skill_method()
    def sense(self, level: float) -> None:
        """Publish a value."""
        self.state("level", level)
'''
)


@pytest.fixture
def house(tmp_path: Path, sandbox_files: Path) -> Iterator[Replicas]:
    require(postgresql.programs() is not None, postgresql.HINT)
    (tmp_path / "broker").mkdir()
    with (
        Mosquitto(tmp_path / "broker") as broker,
        Replicas(tmp_path / "house", sandbox=sandbox_files, broker_url=broker.url) as house,
    ):
        house.start_replica("a")
        house.add_spoke("Pen", {"pen.py": PEN})
        house.start_replica("b")
        yield house


def watch(house: Replicas) -> None:
    """Have a watcher write a line each time that the value of the spoke is high."""
    step = {"call": "devices.pen.JournalSkill.write", "arguments": {"text": "full"}}
    topics = {"level": "devices/pen/state/JournalSkill/level"}
    wanted = {"name": "tank", "predicate": "level > 95", "topics": topics, "then": [step]}
    made = house.ask("/api/watchers", wanted)
    house.ask("/api/watchers/tank/approve", {"digest": made["digest"]})


def sense(house: Replicas, name: str, level: float) -> None:
    body = {"device": "pen", "skill": "JournalSkill", "method": "sense", "args": [level]}
    house.at(name, "/api/skills/call", body)


def test_a_watcher_acts_once_though_its_leader_is_killed_or_stopped(house: Replicas) -> None:
    assert wait_for(house.leader, what="a leader") == "a"
    watch(house)
    journal = house.directory / "pen" / "skills" / "journal.txt"
    sense(house, "b", 10)
    house.send("a", signal.SIGSTOP)
    began = time.monotonic()
    sense(house, "b", 96)
    wait_for(lambda: "in term 2" in house.log("b"), what="another leader")
    took = time.monotonic() - began
    wait_for(journal.exists, what="the watcher")
    house.send("a", signal.SIGCONT)
    wait_for(lambda: "a leads no more" in house.log("a"), what="the first one to notice")
    sense(house, "b", 20)
    assert journal.read_text() == "full\n"
    assert took < 5
    house.end("b")
    began = time.monotonic()
    wait_for(lambda: "in term 3" in house.log("a"), what="the first one to lead again")
    assert time.monotonic() - began < 5

    def has_acted_again() -> bool:
        # What it heard while its watchers were not there yet is no change.
        sense(house, "a", 20)
        sense(house, "a", 97)
        return len(journal.read_text().splitlines()) > 1

    wait_for(has_acted_again, what="the watcher again")
