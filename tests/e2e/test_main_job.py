"""A person types a request, and real code runs on a spoke in another process."""

import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.bus import overhear
from tests.e2e.house import PATIENCE_S, House, wait_for
from tests.model_server import Says, ScriptedModel, calls

HEARTBEAT = b'{"v":1,"kind":"heartbeat","seq":9999,"uptime_s":1}'


def test_a_request_runs_real_skill_code_on_a_spoke_also_by_its_new_name(
    house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    model.script = [
        calls("python_exec", code="devices.bedroom_pc.JournalSkill.write('hello')"),
        Says(text="It is written."),
    ]

    answer = house.json("chat", "write hello")

    assert answer["answer"] == "It is written."
    assert answer["mode"] == "online"
    assert pc.journal() == ["hello"]
    assert "wrote hello" in model.requests[1].results[0]
    assert [event["path"] for event in answer["events"] if event["kind"] == "skill"][:1] == [
        "devices.bedroom_pc.JournalSkill.write"
    ]
    (turn,) = house.json("turns", "--outcome", "answered", "--since", "1h")
    assert (turn["question"], turn["model"]) == ("write hello", "house")
    assert "JournalSkill.write call" in house.cli("turns", turn["turn"]).stdout
    for name in ("hub", pc.id):
        assert "MQTT 3.1.1" in house.log(name), f"{name} found out by itself what our broker speaks"
    if sys.platform == "linux":
        loaded = Path(f"/proc/{house.processes['hub'].pid}/maps").read_text()
        assert "tensorzero" in loaded, "it was TensorZero that asked the model"

    model.requests.clear()
    house.json("devices", "rename", "Bedroom PC", "Study PC")
    model.script = [
        calls("python_exec", code="devices.study_pc.JournalSkill.write('moved')"),
        calls("python_exec", code="devices.bedroom_pc.JournalSkill.write('old')"),
        Says(text="Done."),
    ]

    house.json("chat", "write moved")

    assert pc.journal() == ["hello", "moved"]
    assert "study_pc" in model.requests[2].results[1], "the old name is an error that lists the nearest"
    assert pc.id == "bedroom_pc"


def test_one_program_acts_on_two_devices_and_names_the_one_that_is_offline(
    any_house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    house = any_house
    one, two = house.add_spoke("Bedroom PC", journal), house.add_spoke("Kitchen Pi", journal)
    program = (
        "a = devices.bedroom_pc.JournalSkill.write('both')\nb = devices.kitchen_pi.JournalSkill.write(a)\nb"
    )
    model.script = [calls("python_exec", code=program), Says(text="Both.")]

    house.json("chat", "write on both")

    assert (one.journal(), two.journal()) == (["both"], ["wrote both"])

    model.requests.clear()
    house.kill(one.id)
    wait_for(lambda: house.state_of(one) == "offline", what="the will of the spoke")
    model.script = [
        calls("python_exec", code="devices.bedroom_pc.JournalSkill.write('x')"),
        Says(text="It is off."),
    ]

    house.json("chat", "write x in the bedroom")

    told = model.requests[1].results[0]
    assert "Bedroom PC" in told
    assert "offline" in told
    assert "kitchen_pi" in told
    assert two.journal() == ["wrote both"]


@pytest.mark.slow
def test_a_frozen_device_is_passed_over_and_what_it_says_later_is_ignored(
    any_house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    house = any_house
    first, other = house.add_spoke("Bedroom PC", journal), house.add_spoke("Kitchen Pi", journal)
    model.script = [
        calls("python_exec", code="devices.hub.AnywhereSkill.write('once')"),
        Says(text="Done."),
    ]
    with overhear(house) as bus:
        # Its first one; the next is far away.
        bus.wait(f"devices/{other.id}/heartbeat")
        house.send(first.id, signal.SIGSTOP)
        chat = house.begin("chat", "write once", "--json")
        call = f"devices/{first.id}/calls/AnywhereSkill/write"
        while not bus.on(call, accept=True):
            # A heartbeat is only a hint, and the latest one says who is asked first.
            bus.publish(f"devices/{first.id}/heartbeat", HEARTBEAT)
            bus.quiet(0.5)
            assert chat.poll() is None, chat.communicate()
        _, err = chat.communicate(timeout=PATIENCE_S)
        assert chat.returncode == 0, err

        asked = bus.wait(call, accept=True).fields["id"]
        served = bus.wait(f"devices/{other.id}/calls/AnywhereSkill/write", accept=True).fields["id"]
        bus.wait(f"devices/{other.id}/control/{served}", kind="start")
        house.send(first.id, signal.SIGCONT)
        bus.wait(f"devices/{first.id}/results/main/{asked}", kind="accepted")
        house.wait_until_online(first)
        assert house.json("call", first.id, "JournalSkill.write", "text=awake") == "wrote awake"
        assert not bus.on(f"devices/{first.id}/control/{asked}", kind="start")

    assert first.journal() == ["awake"], "nothing else ran there"
    assert other.journal() == ["anywhere once"]
