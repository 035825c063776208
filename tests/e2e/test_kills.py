"""Each process is killed in the middle of a call and started again: nothing hangs, nothing runs twice."""

import json
import subprocess

from agent_core.testing import ScriptedModel
from tests.e2e.house import House, wait_for


def _outcome(process: "subprocess.Popen[str]") -> tuple[int, str]:
    out, err = process.communicate(timeout=90)
    return process.returncode, out + err


def test_a_broker_that_dies_in_mid_call_is_found_again_and_the_call_is_answered(
    house: House, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    call = house.begin("call", pc.id, "JournalSkill.slowly", "text=job", "seconds=3", "--json")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    house.kill("broker")
    house.start_broker()

    code, text = _outcome(call)
    assert (code, json.loads(text)) == (0, "wrote job"), text
    assert pc.journal() == ["job begun", "job done"]
    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"


def test_a_spoke_that_dies_in_mid_call_ends_it_as_unknown_and_is_back_by_itself(
    house: House, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    call = house.begin("call", pc.id, "JournalSkill.slowly", "text=job", "seconds=60")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    house.kill(pc.id)
    house.start_spoke(pc)

    code, text = _outcome(call)
    assert code == 1
    assert "Bedroom PC" in text
    assert "not known whether" in text
    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"
    assert pc.journal() == ["job begun", "after"], "the call did not run again"


def test_a_hub_that_dies_in_mid_call_breaks_the_answer_and_all_is_back_without_a_hand(
    house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    call = house.begin("call", pc.id, "JournalSkill.slowly", "text=job", "seconds=2")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    house.kill("hub")
    code, text = _outcome(call)
    assert code == 1
    assert text.strip()
    house.start_hub()

    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"
    assert pc.journal().count("job begun") == 1
