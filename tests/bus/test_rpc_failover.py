import asyncio
from dataclasses import replace

import pytest

from bus.link import Message
from bus.rpc import CallRequest, ResponderSettings, call_any
from bus.rpc.failover import Served
from contracts import topics
from contracts.devices.rpc import Accepted, Call
from contracts.errors import CallError, ErrorCode
from contracts.tracing.trace import Trace, within
from identity.keys import KeyPair
from tests.bus.conftest import OpenHouse
from tests.bus.rpc_world import PATIENT, QUICK, House, request, settle

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def call_after_a_ghost(house: House, asked: CallRequest) -> Served:
    """Call what a ghost never answers, and then the lamp: only the ghost has to be quick."""
    house.keys["ghost"] = KeyPair.generate()
    house.caller.device_online("ghost", 1, 1)
    house.caller.settings = QUICK
    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call_any(house.caller, ["ghost", "lamp_pi"], asked))
        # By now it has begun, and the ghost has its time.
        await asyncio.sleep(0)
        house.caller.settings = PATIENT
    return calling.result()


async def test_the_preferred_device_serves(house: House) -> None:
    async with house.spoke("lamp_pi") as first, house.spoke("desk_pi") as second:
        served = await call_any(house.caller, ["desk_pi", "lamp_pi"], request("where"))
        assert served == ("desk_pi", "desk_pi")
        assert (first.skill.runs, second.skill.runs) == ([], ["where"])


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_device_that_does_not_answer_is_passed_over(house: House, read_only: bool) -> None:
    async with house.spoke("lamp_pi"):
        served = await call_after_a_ghost(house, request("where", read_only=read_only))
        assert served.device == "lamp_pi"


async def test_a_trace_shows_each_device_that_was_asked(house: House) -> None:
    trace = Trace()
    async with house.spoke("lamp_pi"):
        with within((trace, None)):
            await call_after_a_ghost(house, request("where", read_only=False))
    spans = trace.spans()
    assert [(each.device, each.name.split()[-1], each.outcome) for each in spans] == [
        ("ghost", "reserve", "failed"),
        ("lamp_pi", "reserve", "ok"),
        ("lamp_pi", "start", "ok"),
    ]
    assert "did not accept" in spans[0].detail.error
    assert 0 <= spans[2].detail.ran_ms <= spans[2].ms + 1


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_busy_device_is_passed_over(house: House, read_only: bool) -> None:
    async with (
        house.spoke("lamp_pi", settings=ResponderSettings(max_active=1)) as busy,
        house.spoke("desk_pi"),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(house.caller.call(request("wait")))
        await busy.skill.running.wait()
        served = await call_any(house.caller, ["lamp_pi", "desk_pi"], request("where", read_only=read_only))
        assert served.device == "desk_pi"
        busy.skill.let_go.set()


@pytest.mark.parametrize("read_only", [True, False])
async def test_one_that_is_silent_keeps_the_next_waiting_for_less_time_than_the_last(
    new_house: OpenHouse, read_only: bool
) -> None:
    async with new_house(settings=replace(PATIENT, next_s=0.1)) as house, house.spoke("desk_pi"):
        house.keys["ghost"] = KeyPair.generate()
        house.caller.device_online("ghost", 1, 1)
        asked = request("where", read_only=read_only)
        assert (await call_any(house.caller, ["ghost", "desk_pi"], asked)).device == "desk_pi"


async def test_a_failure_after_start_is_never_tried_elsewhere(house: House) -> None:
    async with house.spoke("lamp_pi") as first, house.spoke("desk_pi") as second:
        with pytest.raises(CallError) as caught:
            await call_any(house.caller, ["lamp_pi", "desk_pi"], request("crash"))
        assert caught.value.device == "lamp_pi"
        assert (first.skill.runs, second.skill.runs) == (["crash"], [])


async def test_a_device_that_dies_after_start_is_outcome_unknown_and_no_other_runs_it(
    new_house: OpenHouse,
) -> None:
    async with (
        new_house(settings=replace(PATIENT, return_s=0.3)) as house,
        house.spoke("lamp_pi") as first,
        house.spoke("desk_pi") as second,
        asyncio.TaskGroup() as tasks,
    ):
        served = tasks.create_task(_code(house, ["lamp_pi", "desk_pi"]))
        await first.skill.running.wait()
        house.caller.device_offline("lamp_pi", 1, first.connection)
        assert await served is ErrorCode.OUTCOME_UNKNOWN
        assert second.skill.runs == []


async def test_a_device_that_restarts_before_start_is_passed_over(house: House) -> None:
    house.keys["ghost"] = KeyPair.generate()
    house.caller.device_online("ghost", 1, 1)
    async with house.spoke("desk_pi"), asyncio.TaskGroup() as tasks:
        served = tasks.create_task(call_any(house.caller, ["ghost", "desk_pi"], request("where")))
        await asyncio.sleep(0.05)
        house.caller.device_online("ghost", 2, 1)
        assert (await served).device == "desk_pi"


async def test_a_read_only_error_is_tried_elsewhere_and_all_errors_are_told_by_name(house: House) -> None:
    # It was removed, and joined again.
    names = {"desk_pi": "desk", "lamp_pi": "lamp", "attic": "loft"}
    asked = request("refuse", read_only=True, names=names)
    async with house.spoke("lamp_pi"), house.spoke("desk_pi"):
        with pytest.raises(CallError) as caught:
            await call_any(house.caller, ["lamp_pi", "attic", "desk_pi"], asked)
    error = caught.value
    assert error.code is ErrorCode.REFUSED
    for device, name in names.items():
        assert device not in error.message
        assert name in error.message


async def test_without_a_candidate_the_error_says_so(house: House) -> None:
    with pytest.raises(CallError) as caught:
        await call_any(house.caller, [], request("where"))
    assert caught.value.code is ErrorCode.OFFLINE


async def test_a_late_accepted_is_ignored_and_answered_with_a_cancel(open_bus_house: House) -> None:
    house = open_bus_house
    seen: list[Message] = []
    async with house.intruder(seen.append) as bus, house.spoke("lamp_pi") as lamp:
        assert (await call_after_a_ghost(house, request("where"))).device == "lamp_pi"
        ghost = house.keys["ghost"]
        await settle(bus)
        asked = next(message for message in seen if message.topic.startswith("devices/ghost/calls/"))
        call = topics.CALL.parse(asked.payload)
        assert isinstance(call, Call)
        seen.clear()
        await house.publish_as("ghost", ghost, call.id, Accepted(id=call.id, epoch=1))
        await settle(house.link)
        await settle(bus)
        controls = [message.topic for message in seen if "/control/" in message.topic]
        assert controls == [topics.CONTROL.build(device="ghost", call=call.id)]
        assert b'"cancel"' in next(m.payload for m in seen if "/control/" in m.topic)
        assert lamp.skill.runs == ["where"]


async def _code(house: House, candidates: list[str]) -> ErrorCode:
    with pytest.raises(CallError) as caught:
        await call_any(house.caller, candidates, request("wait"))
    return caught.value.code
