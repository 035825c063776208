"""Replicas of the hub: one leads, the others serve, and the loss of one loses nothing."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import ClientConnection, connect
from websockets.sync.connection import Connection

from contracts.errors import StrawberryError
from deploy.cli.client.http import NeedsConfirmation
from tests import postgresql
from tests.e2e.house import PATIENCE_S, wait_for
from tests.e2e.replicas import Replicas
from tests.journal import JOURNAL_BEGINNING
from tests.model_server import Says, ScriptedModel, SeenRequest, calls
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

    @skill_method(confirm=True)
    def sign(self, text: str) -> str:
        """Write a line that counts."""
        _write(text)
        return text

    uses = ("pen.JournalSkill.write",)

    @skill_method()
    async def relay(self, text: str) -> str:
        """Have another call write a line."""
        return await self.home.devices.pen.JournalSkill.write(text)

    @skill_method(read_only=True)
    def wait(self, text: str) -> str:
        """Wait until told to stop."""
        _write(f"{text} begun")
        while not self.cancelled:
            time.sleep(0.02)
        _write(f"{text} stopped")
        return text
'''
)


LAN = pytest.mark.parametrize("house", ["--lan", "--insecure-lan"], indirect=True, ids=["lan", "insecure"])


@pytest.fixture
def house(
    tmp_path: Path, sandbox_files: Path, model: ScriptedModel, request: pytest.FixtureRequest
) -> Iterator[Replicas]:
    """Two replicas, which other machines reach where a test asks for that."""
    lan = getattr(request, "param", "")
    require(postgresql.programs() is not None, postgresql.HINT)
    (tmp_path / "broker").mkdir()
    with (
        Mosquitto(tmp_path / "broker") as broker,
        Replicas(tmp_path / "house", sandbox=sandbox_files, broker_url=broker.url, lan=lan) as house,
    ):
        house.use_model(model.base_url)
        house.start_replica("a")
        house.add_spoke("Pen", {"pen.py": PEN})
        house.start_replica("b")
        yield house


def watch(house: Replicas, *, through: str = "a") -> None:
    """Have a watcher write a line each time that the value of the spoke is high."""
    step = {"call": "devices.pen.JournalSkill.write", "arguments": {"text": "full"}}
    topics = {"level": "devices/pen/state/JournalSkill/level"}
    wanted = {"name": "tank", "predicate": "level > 95", "topics": topics, "then": [step]}
    made = house.at(through, "/api/watchers", wanted)
    house.at(through, "/api/watchers/tank/approve", {"digest": made["digest"]})


def sense(house: Replicas, name: str, level: float) -> None:
    body = {"device": "pen", "skill": "JournalSkill", "method": "sense", "args": [level]}
    house.at(name, "/api/skills/call", body)


def metrics(house: Replicas, name: str) -> dict[str, float]:
    """Of a replica, those without the values of labels."""
    hub = house.of(name)
    answer = httpx.get(f"{hub.url}/metrics", headers={"Authorization": f"Bearer {hub.token}"}, timeout=60)
    families = text_string_to_metric_families(answer.text)
    return {
        each.name.removeprefix("strawberry_"): each.value for family in families for each in family.samples
    }


def test_a_watcher_acts_once_though_its_leader_is_killed_or_stopped(house: Replicas) -> None:
    assert wait_for(house.leader, what="a leader") == "a"
    assert [metrics(house, name)["lead"] for name in ("a", "b")] == [1, 0]
    watch(house)
    journal = house.directory / "pen" / "skills" / "journal.txt"
    sense(house, "b", 10)
    house.send("a", signal.SIGSTOP)
    began = time.monotonic()
    sense(house, "b", 96)
    # What the one that is stopped was asked is told as not answered, and is not waited for.
    with suppress(StrawberryError):
        house.at("b", "/api/watchers")
    assert time.monotonic() - began < 10
    wait_for(lambda: "in term 2" in house.log("b"), what="another leader")
    wait_for(journal.exists, what="the watcher")
    house.send("a", signal.SIGCONT)
    wait_for(lambda: "a leads no more" in house.log("a"), what="the first one to notice")
    sense(house, "b", 20)
    assert journal.read_text() == "full\n"
    house.end("b")
    began = time.monotonic()
    wait_for(lambda: "in term 3" in house.log("a"), what="the first one to lead again")
    assert time.monotonic() - began < 5
    wait_for(lambda: metrics(house, "a")["lead"] == 1, what="its metrics")
    found = metrics(house, "a")
    assert (found["term"], found["replicas"]) == (3, 1)
    assert found["replica_lag_seconds"] < 5

    def has_acted_again() -> bool:
        # What it heard while its watchers were not there yet is no change.
        sense(house, "a", 20)
        sense(house, "a", 97)
        return len(journal.read_text().splitlines()) > 1

    wait_for(has_acted_again, what="the watcher again")


def log_in(house: Replicas, name: str, password: str) -> int:
    body = {"name": "owner", "password": password}
    return httpx.post(f"{house.of(name).url}/api/session", json=body, timeout=60).status_code


def acts(seen: SeenRequest) -> Says:
    """A model that does with the pen what it is told: ``wait x`` or ``sign x``."""
    if seen.results:
        return Says(text="It is done.")
    method, text = seen.said("user")[-1].split()[-2:]
    return calls("python_exec", code=f"devices.pen.JournalSkill.{method}({text!r})")


class Asked(Thread):
    """A message through one replica, whose events are gathered until its end."""

    def __init__(self, house: Replicas, name: str, message: str, turn: str) -> None:
        super().__init__(daemon=True)
        self.stream = house.of(name).turn(message, conversation=turn, turn=turn, can_confirm=True)
        self.events: list[dict[str, Any]] = []
        self.broken = ""
        self.start()

    def run(self) -> None:
        try:
            for event in self.stream:
                self.events.append(event)
        except StrawberryError as error:
            self.broken = error.message

    def seen(self, kind: str) -> dict[str, Any] | None:
        return next((each for each in self.events if each.get("kind") == kind), None)


def socket_of(house: Replicas, name: str) -> ClientConnection:
    hub = house.of(name)
    address = f"{hub.url.replace('http', 'ws', 1)}/api/chat/stream"
    return connect(address, additional_headers={"Authorization": f"Bearer {hub.token}"}, proxy=None)


def until(socket: Connection, kind: str) -> dict[str, Any]:
    """The next event of a kind."""
    while True:
        event: dict[str, Any] = json.loads(socket.recv(PATIENCE_S)).get("event", {})
        if event.get("kind") == kind:
            return event


def test_a_turn_is_stopped_and_confirmed_through_another_replica_and_ends_with_its_own(
    house: Replicas, model: ScriptedModel
) -> None:
    model.script = acts
    journal = house.directory / "pen" / "skills" / "journal.txt"
    # What lives with the leader, through the other one.
    watch(house, through="b")
    assert [each["name"] for each in house.at("b", "/api/watchers")] == ["tank"]

    first = Asked(house, "b", "wait first", "t1")
    wait_for(lambda: journal.exists() and "first begun" in journal.read_text(), what="the call")
    assert house.at("a", "/api/turns/t1/cancel", {}) == {"state": "cancelled"}
    first.join(10)
    wait_for(lambda: "first stopped" in journal.read_text(), what="the call to stop")

    second = Asked(house, "b", "sign second", "t2")
    question = wait_for(lambda: second.seen("confirmation"), what="the question")
    assert "second" not in journal.read_text()
    house.at("a", f"/api/turns/t2/confirmations/{question['id']}", {"approve": True})
    wait_for(lambda: second.seen("final"), what="the answer")
    assert journal.read_text().count("second") == 1

    # One that was asked for without a model is confirmed there, too.
    call = {"device": "pen", "skill": "JournalSkill", "method": "sign", "kwargs": {"text": "direct"}}
    with pytest.raises(NeedsConfirmation) as asked:
        house.at("b", "/api/skills/call", call)
    call["confirmation"] = asked.value.confirmation
    assert house.at("a", "/api/skills/call", call)["result"] == "direct"

    # What a skill calls goes through its device's replica, for a call that goes through another one.
    within = {"device": "pen", "skill": "JournalSkill", "method": "relay", "kwargs": {"text": "relayed"}}
    assert house.at("b", "/api/skills/call", within)["result"] == "wrote relayed"

    # Followed through the other one, from its first event on; also by who asks again.
    with socket_of(house, "b") as begun:
        begun.send(json.dumps({"kind": "chat", "message": "sign third", "turn": "t2b", "can_confirm": True}))
        until(begun, "confirmation")
    with socket_of(house, "a") as resumed:
        asked_again = {
            "kind": "chat",
            "message": "sign third",
            "turn": "t2b",
            "can_confirm": True,
            "ref": "7",
        }
        resumed.send(json.dumps(asked_again))
        begun_there = json.loads(resumed.recv(PATIENCE_S))
        assert (begun_there["kind"], begun_there["ref"], begun_there["turn"]) == ("begun", "7", "t2b")
        until(resumed, "confirmation")
        resumed.send(json.dumps({"kind": "resume", "turn": "t2b"}))
        question = until(resumed, "confirmation")
        resumed.send(
            json.dumps({"kind": "confirm", "turn": "t2b", "question": question["id"], "approve": True})
        )
        until(resumed, "final")
    assert journal.read_text().count("third") == 1

    found = house.at("b", "/api/cluster")
    assert [(each["name"], each["state"], each["bus"]) for each in found] == [
        ("a", "leads", True),
        ("b", "serves", True),
    ]
    third = Asked(house, "b", "wait third", "t3")
    wait_for(lambda: "third begun" in journal.read_text(), what="the call")
    with socket_of(house, "b") as begun, socket_of(house, "a") as resumed:
        begun.send(json.dumps({"kind": "chat", "message": "wait fifth", "turn": "t5"}))
        wait_for(lambda: "fifth begun" in journal.read_text(), what="the call")
        resumed.send(json.dumps({"kind": "resume", "turn": "t5"}))
        until(resumed, "skill")
        house.end("b")
        while "problem" not in (frame := json.loads(resumed.recv(PATIENCE_S))):
            pass
        assert frame["turn"] == "t5"
        assert "not known" in frame["problem"]["detail"]
    third.join(10)
    assert third.broken
    # It is told as broken off, and not done again.
    assert house.at("a", "/api/turns/t3/cancel", {}) == {"state": "cancelled"}
    assert house.at("a", "/api/turns/t3")["outcome"] == "interrupted"
    fourth = Asked(house, "a", "sign fourth", "t4")
    question = wait_for(lambda: fourth.seen("confirmation"), what="the question")
    house.at("a", f"/api/turns/t4/confirmations/{question['id']}", {"approve": True})
    wait_for(lambda: fourth.seen("final"), what="the answer")
    assert journal.read_text().count("third begun") == 1
    assert [each["state"] for each in house.at("a", "/api/cluster")] == ["leads", "gone"]


@LAN
def test_a_leader_that_is_told_to_stop_is_followed_and_ends_its_turns(
    house: Replicas, model: ScriptedModel
) -> None:
    model.script = acts
    # A link of one would end that of another one.
    assert not any("/setup#" in house.log(name) for name in "ab")
    assert "users code admin" in house.log("b")
    journal = house.directory / "pen" / "skills" / "journal.txt"
    asked = Asked(house, "a", "sign last", "t1")
    question = wait_for(lambda: asked.seen("confirmation"), what="the question")
    house.at("b", "/api/memory", {"category": "garden", "text": "The hose leaks"})
    wait_for((house.home_of("b") / "hub" / "MEMORY.md").exists, what="the memory at the other replica")
    # What it is set to meanwhile counts once it leads.
    settings = house.home_of("b") / "strawberry.toml"
    settings.with_name(".env").write_text("HOME_ASSISTANT_TOKEN=t\n")
    settings.write_text(
        settings.read_text().replace('"house"', '"other"') + '[home_assistant]\nurl = "http://127.0.0.1:1"\n'
    )
    wait_for(lambda: "now other" in house.log("b"), what="the changed settings")
    # Guesses count together, whichever replica they are made at.
    guessed = [log_in(house, name, "wrong") for name in "ab" * 5]
    assert (set(guessed), log_in(house, "b", "wrong")) == ({401}, 429)
    house.send("a", signal.SIGTERM)
    wait_for(lambda: "in term 2" in house.log("b"), what="another leader")
    # Its turn goes on meanwhile, and so do its people.
    house.at("b", f"/api/turns/t1/confirmations/{question['id']}", {"approve": True})
    wait_for(lambda: asked.seen("final"), what="the answer")
    assert journal.read_text() == "last\n"
    assert [each["text"] for each in house.at("b", "/api/memory")] == ["The hose leaks"]
    assert house.at("b", "/api/health")["home_assistant"] is not None
    assert house.processes.pop("a").wait(30) == 0
