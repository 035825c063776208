"""The main job on a plain Mosquitto, which speaks MQTT 5 and lets anybody in."""

import json

from tests.e2e.house import House, wait_for
from tests.model_server import Says, ScriptedModel, calls
from tests.mosquitto import Mosquitto


def test_a_request_runs_on_one_device_and_on_two(
    foreign_house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    house = foreign_house
    one, two = house.add_spoke("Bedroom PC", journal), house.add_spoke("Kitchen Pi", journal)
    program = (
        "a = devices.bedroom_pc.JournalSkill.write('both')\nb = devices.kitchen_pi.JournalSkill.write(a)\nb"
    )
    model.script = [
        calls("python_exec", code="devices.bedroom_pc.JournalSkill.write('one')"),
        Says(text="It is written."),
        calls("python_exec", code=program),
        Says(text="On both."),
    ]

    assert house.json("chat", "write one")["answer"] == "It is written."
    assert house.json("chat", "write on both")["answer"] == "On both."

    assert one.journal() == ["one", "both"]
    assert two.journal() == ["wrote both"]
    for name in ("hub", one.id, two.id):
        assert "MQTT 5" in house.log(name), f"{name} found out by itself what the broker speaks"


def test_a_broker_that_dies_in_the_middle_of_a_program_is_found_again_and_nothing_runs_twice(
    foreign_house: House, model: ScriptedModel, journal: dict[str, str], mosquitto: Mosquitto
) -> None:
    house = foreign_house
    pc = house.add_spoke("Bedroom PC", journal)
    model.script = [
        calls("python_exec", code="print(devices.bedroom_pc.JournalSkill.held('job'))"),
        Says(text="Done."),
    ]
    chat = house.begin("chat", "do the job", "--json")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    mosquitto.kill()
    # It ends while nobody can be told.
    pc.let_go()
    wait_for(lambda: pc.journal() == ["job begun", "job done"], what="the job to end")
    mosquitto.start()

    out, err = chat.communicate(timeout=90)
    assert json.loads(out)["answer"] == "Done.", err
    assert "wrote job" in model.requests[1].results[0]
    assert pc.journal() == ["job begun", "job done"]
    house.wait_until_online(pc)
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"
