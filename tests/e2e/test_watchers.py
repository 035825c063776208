"""A watcher from words to action: tried on recorded values, dry run, live, and over kills of the hub."""

import json
from typing import Any

import pytest

from tests.e2e.house import House, Spoke, wait_for
from tests.model_server import Reply, ScriptedModel, SeenRequest, calls
from tests.spoke.nodes.test_nodes import add_node

pytestmark = pytest.mark.slow

NAS_SKILL = '''
from spoke import Skill


class NasSkill(Skill):
    """A computer with a disk."""

    def fill(self, percent: float) -> None:
        """Set how full the disk is."""
        self.state("disk", percent, unit="%")
'''

# It notes that it was stopped, and ends when a test lets it.
CAMERA = """
import signal, sys, time
from pathlib import Path


def stop(*_):
    with open("journal.txt", "a") as file:
        file.write("camera stopped\\n")
    while Path("hold").exists():
        time.sleep(0.02)
    sys.exit()


signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
while True:
    signal.pause()
"""

STOP = "devices.nas.NodesSkill.stop_node"
TOPIC = "devices/nas/state/NasSkill/disk"


class Disk:
    """The disk of a spoke and its camera, and the watcher of both."""

    def __init__(self, house: House, nas: Spoke) -> None:
        self.house = house
        self.nas = nas
        self.camera = nas.home / "nodes" / "camera"

    def film(self) -> None:
        """Start the camera, and wait until it runs."""
        before = self.house.json("nodes", "logs", "nas", "camera")["lines"]
        self.house.json("nodes", "start", "nas", "camera")
        wait_for(
            lambda: self.house.json("nodes", "logs", "nas", "camera")["lines"] != before, what="the camera"
        )

    def films(self) -> bool:
        [camera] = self.house.json("nodes", "list")
        return bool(camera["state"] == "running")

    def stops(self) -> int:
        """Return how often the camera was stopped."""
        journal = self.camera / "journal.txt"
        return len(journal.read_text().splitlines()) if journal.exists() else 0

    def fill(self, percent: float) -> None:
        self.house.json("call", "nas", "NasSkill.fill", f"percent={percent}")

    def show(self) -> Any:
        return self.house.json("watchers", "show", "full")

    def decided(self, *decisions: str) -> list[Any]:
        """Wait until these are the decisions, gaps aside; return them, oldest first."""

        def look() -> list[Any]:
            found = [each for each in self.show()["history"][::-1] if each["decision"] != "gap"]
            acting = any(each["state"] == "acting" for each in found)
            return found if [each["decision"] for each in found] == list(decisions) and not acting else []

        return wait_for(look, what=f"the decisions {decisions}")

    def notes(self) -> list[str]:
        lines = self.house.cli("events", "--kind", "notification", "--json").stdout.splitlines()
        return [json.loads(line)["data"]["text"] for line in lines]

    def restart_hub(self) -> None:
        self.house.kill("hub")
        self.house.start_hub()
        self.house.wait_until_online(self.nas)


@pytest.fixture
def disk(house: House) -> Disk:
    add_node(house.directory / "nas", "camera", code=CAMERA, stop_s=100)
    made = Disk(house, house.add_spoke("nas", {"nas.py": NAS_SKILL}))
    made.film()
    return made


def _decides(seen: SeenRequest) -> Reply:
    if seen.tools == ["propose"]:
        return calls("propose", predicate="disk > 95")
    return calls("decide", decision="act", reason="The disk is at 96 %.", call=STOP)


def _add(disk: Disk, *more: str) -> Any:
    words = ("watchers", "add", "full", "Stop the camera node if the disk is above 95 %.")
    return disk.house.json(*words, "--topic", TOPIC, "--on-change", "--allow", f"{STOP} name=camera", *more)


def test_a_watcher_is_made_in_words_tried_run_dry_and_acts_once(disk: Disk, model: ScriptedModel) -> None:
    model.script = _decides
    disk.fill(50)
    topics = json.dumps([TOPIC])
    capture = disk.house.json(
        "call", "hub", "CaptureSkill.save_stream", f"topics={topics}", "path=disk.jsonl"
    )
    made = _add(disk)
    assert (made["state"], made["predicate"]) == ("draft", "disk > 95")
    assert disk.house.json("watchers", "approve", "full", "--yes", "--dry-run")["state"] == "active"
    disk.fill(96)
    [tried] = disk.decided("act")
    assert (tried["actions"][0]["outcome"], disk.films()) == ("dry_run", True)
    disk.fill(60)
    report = disk.house.json("watchers", "test", "full", "--since", "1h", "--model")
    [fired] = report["would_have_fired"]
    assert fired["values"]["disk"] == 96
    assert fired["decision"]["actions"][0]["path"] == STOP

    # What a capture has heard is in its file within a second.
    captured = wait_for(
        lambda: disk.house.json("watchers", "test", "full", "--capture", capture["id"])["would_have_fired"],
        what="the value in the file of the capture",
    )
    assert [each["values"]["disk"] for each in captured] == [96]

    disk.house.json("watchers", "approve", "full", "--yes", "--live")
    disk.fill(97)
    [_, acted] = disk.decided("act", "act")
    assert (acted["actions"][0]["outcome"], disk.stops(), disk.films()) == ("result", 1, False)
    assert "camera" in disk.notes()[-1] or STOP in disk.notes()[-1]

    disk.restart_hub()
    disk.film()
    disk.fill(98)
    disk.fill(50)
    disk.fill(99)
    disk.decided("act", "act", "act")
    assert (disk.stops(), disk.films()) == (2, False)
    report = disk.house.json("watchers", "test", "full", "--since", "1h")
    assert [each["values"]["disk"] for each in report["would_have_fired"]] == [96, 97, 99]
    assert len(report["gaps"]) == 1


def test_a_hub_that_is_killed_while_it_acts_does_not_act_again_and_says_so(
    disk: Disk, model: ScriptedModel
) -> None:
    model.script = _decides
    (disk.camera / "hold").touch()
    _add(disk, "--predicate", "disk > 95")
    disk.fill(96)
    wait_for(disk.stops, what="the action to begin")
    disk.house.kill("hub")
    (disk.camera / "hold").unlink()
    disk.house.start_hub()
    disk.house.wait_until_online(disk.nas)
    disk.fill(97)
    [entry] = disk.decided("act")
    assert (entry["state"], entry["actions"][0]["outcome"]) == ("interrupted", "unknown")
    did = "Programs: Stop (Name camera) (nas): perhaps done"
    assert did in wait_for(disk.notes, what="the notification")[0]
    assert did in disk.house.cli("watchers", "show", "full").stdout
    wait_for(lambda: not disk.films(), what="the camera to end")
    disk.film()
    disk.fill(50)
    disk.fill(96)
    disk.decided("act", "act")
    assert disk.stops() == 2
