"""Nodes of a real spoke, over the commands of a person."""

import json
import shutil
import signal
from typing import Any

import psutil
import pytest

from tests.e2e.house import PATIENCE_S, House, runs, wait_for
from tests.spoke.nodes.test_nodes import DETACHES, PYTHON, add_node

pytestmark = pytest.mark.slow


def nodes(house: House) -> dict[str, Any]:
    return {each["name"]: each for each in house.json("nodes", "list")}


def world(house: House) -> dict[str, Any]:
    return {each["name"]: each["state"] for each in house.json("world", "--kind", "node")["things"]}


def test_a_person_runs_programs_on_a_device_and_none_outlives_its_spoke_for_long(house: House) -> None:
    add_node(house.directory / "nas", "camera", code=DETACHES, build=f"['{PYTHON}', -c, 'print(\"built\")']")
    add_node(house.directory / "nas", "guard", protected="true")
    add_node(house.directory / "nas", "flaky", code="raise SystemExit(3)")
    spoke = house.add_spoke("Nas", {})

    assert "built" in house.cli("nodes", "build", "camera").stdout
    started = house.json("nodes", "start", "nas", "camera")
    assert (started["state"], started["name"]) == ("running", "camera")
    assert house.cli("nodes", "start", "guard").returncode == 0
    house.cli("nodes", "start", "flaky")

    refused = house.cli("nodes", "stop", "guard")
    assert refused.returncode == 1
    assert "guard is protected" in refused.stderr
    wait_for(lambda: "ended with code 3" in nodes(house)["flaky"]["reason"], what="the flaky node to end")
    assert {nodes(house)[name]["state"] for name in ("camera", "guard")} == {"running"}
    wait_for(lambda: "flaky on Nas" in house.cli("events", "--kind", "node").stdout, what="the event of it")
    wait_for(lambda: house.json("nodes", "logs", "camera")["lines"], what="the log")
    follow = house.begin("nodes", "logs", "camera", "--follow", "--json")
    assert json.loads(follow.stdout.readline())["line"].isdigit()
    follow.send_signal(signal.SIGINT)
    assert (follow.wait(PATIENCE_S), follow.stderr.read().strip()) == (130, "")
    for name in ("strawberry", "strawberry-hub.service"):
        refused = house.cli("nodes", "stop", name)
        assert (refused.returncode, "Strawberry itself" in refused.stderr) == (1, True)
    detached = psutil.Process(int(house.json("nodes", "logs", "camera")["lines"][-1]))
    guard = psutil.Process(nodes(house)["guard"]["pid"])

    house.send(spoke.id, signal.SIGKILL)
    house.processes[spoke.id].wait(timeout=120)
    wait_for(lambda: not runs(guard), what="the program of a killed spoke to end")
    wait_for(lambda: world(house)["camera"] == "offline", what="the world to know that its nodes ended")
    house.start_again(spoke.id)
    house.wait_until_online(spoke)

    wait_for(lambda: not runs(detached), what="what the killed spoke left behind to end")
    wait_for(lambda: nodes(house)["camera"]["state"] == "running", what="the node to run again")
    assert house.json("nodes", "stop", "camera")["state"] == "stopped"
    shutil.rmtree(house.directory / "nas" / "nodes" / "camera")
    assert sorted(nodes(house)) == ["flaky", "guard"]
    wait_for(lambda: sorted(world(house)) == ["flaky", "guard"], what="the removed node to leave the world")
