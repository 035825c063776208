"""Each process is killed in the middle of a call and started again: nothing hangs, nothing runs twice."""

import json
import subprocess

import pytest

from tests.e2e.house import PATIENCE_S, House, wait_for
from tests.model_server import Says, ScriptedModel, SeenRequest, calls

pytestmark = pytest.mark.slow


def _outcome(process: "subprocess.Popen[str]") -> tuple[int, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out + err


def test_a_broker_that_dies_in_mid_call_is_found_again_and_the_call_is_answered(
    house: House, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    call = house.begin("call", pc.id, "JournalSkill.held", "text=job", "--json")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    house.kill("broker")
    # It ends while nobody can be told.
    pc.let_go()
    wait_for(lambda: pc.journal() == ["job begun", "job done"], what="the job to end")
    house.start_broker()

    code, text = _outcome(call)
    assert (code, json.loads(text)) == (0, "wrote job"), text
    assert pc.journal() == ["job begun", "job done"]
    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"


def test_a_program_whose_device_dies_is_told_that_nothing_is_known_and_does_not_run_twice(
    house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)

    def script(seen: SeenRequest) -> Says:
        match seen.number:
            case 0:
                return calls("python_exec", code="devices.bedroom_pc.JournalSkill.slowly('job', seconds=60)")
            case 1:
                house.wait_until_online(pc)
                return calls("python_exec", code="devices.bedroom_pc.JournalSkill.write('after')")
            case _:
                return Says(text="I cannot say whether it is done.")

    model.script = script
    chat = house.begin("chat", "do the job", "--json")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    house.kill(pc.id)
    house.start_spoke(pc)

    code, text = _outcome(chat)
    assert (code, json.loads(text)["answer"]) == (0, "I cannot say whether it is done."), text
    assert "outcome unknown" in model.requests[1].results[0]
    assert pc.journal() == ["job begun", "after"], "the same turn goes on with the device that is back"


def test_a_hub_that_dies_in_the_middle_of_a_program_ends_the_answer_and_the_next_one_works(
    house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    model.script = lambda seen: (
        calls("python_exec", code="devices.bedroom_pc.JournalSkill.held('job')")
        if seen.number == 0
        else calls("python_exec", code="devices.bedroom_pc.JournalSkill.write('after')")
        if seen.number == 1
        else Says(text="Done.")
    )
    chat = house.begin("chat", "do the job")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    house.kill("hub")
    code, text = _outcome(chat)
    assert code == 1
    assert "Traceback" not in text
    house.start_hub()
    house.wait_until_online(pc)

    assert house.json("chat", "write after")["answer"] == "Done."
    pc.let_go()
    wait_for(lambda: "job done" in pc.journal(), what="the job to end")
    assert sorted(pc.journal()) == ["after", "job begun", "job done"]
