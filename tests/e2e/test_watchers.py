"""A watcher from words to action: tried on recorded values, dry run, live, and over kills of the hub."""

import json
from typing import Any

import pytest

from tests.e2e.house import House, Spoke, wait_for
from tests.model_server import Hangs, Reply, ScriptedModel, SeenRequest, calls

pytestmark = pytest.mark.slow

NAS_SKILL = '''
import time
from pathlib import Path

from spoke import Skill, skill_method

FOLDER = Path(__file__).parent


class NasSkill(Skill):
    """A computer with a disk and a camera."""

    def fill(self, percent: float) -> None:
        """Set how full the disk is."""
        self.state("disk", percent, unit="%")

    @skill_method(destructive=True)
    def stop(self, node: str) -> str:
        """Stop a node."""
        with (FOLDER / "journal.txt").open("a") as file:
            file.write(f"{node} stopped\\n")
        while (FOLDER / "hold").exists():
            time.sleep(0.02)
        return f"{node} is stopped"
'''

STOP = "devices.nas.NasSkill.stop"
TOPIC = "devices/nas/state/NasSkill/disk"


class Disk:
    """The disk of a spoke, and the watcher of it."""

    def __init__(self, house: House, nas: Spoke) -> None:
        self.house = house
        self.nas = nas

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
    return Disk(house, house.add_spoke("nas", {"nas.py": NAS_SKILL}))


def _decides(seen: SeenRequest) -> Reply:
    if seen.tools == ["propose"]:
        return calls("propose", predicate="disk > 95")
    return calls("decide", decision="act", reason="The disk is at 96 %.", call=STOP)


def _add(disk: Disk, *more: str) -> Any:
    words = ("watchers", "add", "full", "Stop the camera node if the disk is above 95 %.")
    return disk.house.json(*words, "--topic", TOPIC, "--on-change", "--allow", f"{STOP} node=camera", *more)


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
    assert tried["actions"][0]["outcome"] == "dry_run"
    disk.fill(60)
    report = disk.house.json("watchers", "test", "full", "--since", "1h", "--model")
    [fired] = report["would_have_fired"]
    assert fired["values"]["disk"] == 96
    assert fired["decision"]["action"]["path"] == STOP

    # What a capture has heard is in its file within a second.
    captured = wait_for(
        lambda: disk.house.json("watchers", "test", "full", "--capture", capture["id"])["would_have_fired"],
        what="the value in the file of the capture",
    )
    assert [each["values"]["disk"] for each in captured] == [96]

    disk.house.json("watchers", "approve", "full", "--yes", "--live")
    disk.fill(97)
    [_, acted] = disk.decided("act", "act")
    assert (acted["actions"][0]["outcome"], disk.nas.journal()) == ("result", ["camera stopped"])
    assert "camera" in disk.notes()[-1] or STOP in disk.notes()[-1]

    disk.restart_hub()
    disk.fill(98)
    disk.fill(50)
    disk.fill(99)
    disk.decided("act", "act", "act")
    assert disk.nas.journal() == ["camera stopped"] * 2
    assert "nothing was received" in json.dumps(disk.show()["history"])
    report = disk.house.json("watchers", "test", "full", "--since", "1h")
    assert [each["values"]["disk"] for each in report["would_have_fired"]] == [96, 97, 99]
    assert len(report["gaps"]) == 1


def test_a_hub_that_is_killed_while_it_acts_does_not_act_again_and_says_so(
    disk: Disk, model: ScriptedModel
) -> None:
    model.script = _decides
    (disk.nas.skills / "hold").touch()
    _add(disk, "--predicate", "disk > 95")
    disk.fill(96)
    wait_for(disk.nas.journal, what="the action to begin")
    disk.house.kill("hub")
    (disk.nas.skills / "hold").unlink()
    disk.house.start_hub()
    disk.house.wait_until_online(disk.nas)
    disk.fill(97)
    [entry] = disk.decided("act")
    assert entry["state"] == "interrupted"
    assert "not repeated" in wait_for(disk.notes, what="the notification")[0]
    disk.fill(50)
    disk.fill(96)
    disk.decided("act", "act")
    assert disk.nas.journal() == ["camera stopped"] * 2


def test_a_hub_that_is_killed_while_the_model_decides_evaluates_again(
    disk: Disk, model: ScriptedModel
) -> None:
    model.script = lambda seen: Hangs()
    _add(disk, "--predicate", "disk > 95")
    disk.fill(96)
    wait_for(lambda: model.requests, what="the model to be asked")
    disk.house.kill("hub")
    model.script = _decides
    disk.house.start_hub()
    disk.house.wait_until_online(disk.nas)
    disk.decided("act")
    assert disk.nas.journal() == ["camera stopped"]
