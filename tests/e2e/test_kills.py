"""Each process is killed in the middle of a call and started again: nothing hangs, nothing runs twice."""

import json
import subprocess

import pytest

from tests.e2e.house import House, wait_for
from tests.model_server import Says, ScriptedModel, SeenRequest, calls

pytestmark = pytest.mark.slow


def _outcome(process: "subprocess.Popen[str]") -> tuple[int, str]:
    out, err = process.communicate(timeout=90)
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
    assert "outcome unknown" in text
    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"
    assert pc.journal() == ["job begun", "after"], "the call did not run again"


def test_a_hub_that_dies_in_mid_call_breaks_the_answer_and_all_is_back_without_a_hand(
    house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    call = house.begin("call", pc.id, "JournalSkill.held", "text=job")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    house.kill("hub")
    code, text = _outcome(call)
    assert code == 1
    assert text.strip()
    pc.let_go()
    house.start_hub()

    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"
    assert pc.journal().count("job begun") == 1


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


def test_looking_at_a_device_that_dies_ends_at_once_and_runs_again_only_where_it_is_back(
    house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    house.add_spoke("Kitchen Pi", journal)
    model.script = [
        calls("python_exec", code="devices.bedroom_pc.JournalSkill.look(seconds=60)"),
        Says(text="It is off."),
    ]
    call = house.begin("call", pc.id, "JournalSkill.look", "seconds=60")
    chat = house.begin("chat", "look into the journal", "--json")
    wait_for(lambda: pc.journal() == ["looked"] * 2, what="both to look")

    house.kill(pc.id)

    code, text = _outcome(call)
    assert code == 1
    assert "Bedroom PC" in text
    assert "outcome unknown" not in text, "a look changes nothing: it may simply be tried again"
    assert _outcome(chat)[0] == 0
    assert "Bedroom PC" in model.requests[1].results[0]
    assert "JournalSkill.look is also on kitchen_pi" in model.requests[1].results[0]
    house.start_spoke(pc)
    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.look", "seconds=0") == ["looked"] * 3


def test_a_broker_that_dies_while_somebody_looks_brings_the_answer_when_it_is_back(
    house: House, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    call = house.begin("call", pc.id, "JournalSkill.look", "seconds=2", "--json")
    wait_for(lambda: pc.journal() == ["looked"], what="the look to begin")

    house.kill("broker")
    house.start_broker()

    code, text = _outcome(call)
    assert (code, json.loads(text)) == (0, ["looked"]), text
    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"
    assert pc.journal() == ["looked", "after"], "it was not looked twice"
