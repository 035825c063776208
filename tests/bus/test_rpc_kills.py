"""What becomes of open calls when the broker, the spoke or a connection dies."""

import asyncio
from dataclasses import replace

import pytest

from contracts.errors import CallError, ErrorCode
from identity.keys import KeyPair
from tests.bus.conftest import OpenHouse
from tests.bus.rpc_world import PATIENT, QUICK, House, Skill, open_house, request
from tests.mosquitto import Mosquitto

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def outcome(house: House, method: str, **more: object) -> object:
    """Call, and give the result or the code of the error."""
    try:
        return await house.caller.call(request(method, **more))  # type: ignore[arg-type]
    except CallError as error:
        return error.code


@pytest.mark.parametrize("ends_while_away", [True, False])
async def test_a_broker_killed_in_mid_call_loses_nothing_and_runs_nothing_twice(
    mosquitto: Mosquitto, ends_while_away: bool
) -> None:
    lost = asyncio.Event()
    async with (
        open_house(mosquitto.url, KeyPair.generate()) as house,
        house.spoke() as spoke,
        asyncio.TaskGroup() as tasks,
    ):
        spoke.link.on_disconnected(lost.set)
        waiting = tasks.create_task(outcome(house, "wait"))
        await spoke.skill.running.wait()
        mosquitto.kill()
        await lost.wait()
        if ends_while_away:
            spoke.skill.let_go.set()
            await spoke.skill.stopped.wait()
        mosquitto.start()
        await house.link.wait_connected()
        spoke.skill.let_go.set()
        assert await waiting == "waited"
        assert spoke.skill.runs == ["wait"]


async def test_fifty_calls_one_reserved_survive_a_broker_that_is_killed_twice(
    mosquitto: Mosquitto,
) -> None:
    async with (
        open_house(mosquitto.url, KeyPair.generate()) as house,
        house.spoke() as spoke,
        asyncio.TaskGroup() as tasks,
    ):
        reservation = await house.caller.reserve(request("wait"))
        waiting = [tasks.create_task(house.caller.start(reservation))]
        waiting += [tasks.create_task(outcome(house, "wait")) for _ in range(49)]
        for _ in range(50):
            await spoke.skill.begun.get()
        for _ in range(2):
            mosquitto.kill()
            mosquitto.start()
        spoke.skill.let_go.set()
        assert await asyncio.gather(*waiting) == ["waited"] * 50
        assert len(spoke.skill.runs) == 50


async def test_without_a_broker_a_call_fails_at_once(mosquitto: Mosquitto) -> None:
    lost = asyncio.Event()
    async with (
        open_house(mosquitto.url, KeyPair.generate()) as house,
        house.spoke() as spoke,
    ):
        house.link.on_disconnected(lost.set)
        mosquitto.kill()
        await lost.wait()
        assert await outcome(house, "echo") is ErrorCode.OFFLINE
        assert spoke.skill.runs == []


@pytest.mark.parametrize("flags", [{"read_only": True}, {"idempotent": True}])
async def test_what_may_run_again_is_repeated_once_when_the_device_has_restarted(
    house: House, flags: dict[str, bool]
) -> None:
    first, second = Skill("first"), Skill("second")
    async with asyncio.TaskGroup() as tasks:
        async with house.spoke(skill=first, epoch=1):
            waiting = tasks.create_task(outcome(house, "wait", **flags))
            await first.running.wait()
        second.let_go.set()
        async with house.spoke(skill=second, epoch=2):
            assert await waiting == "waited"
    assert (first.runs, second.runs) == (["wait"], ["wait"])


async def test_a_repeated_call_that_the_restarted_device_refuses_may_have_run_before(house: House) -> None:
    def busy(*_: object) -> None:
        raise CallError(ErrorCode.BUSY, "too much to do")

    first = Skill("first")
    async with asyncio.TaskGroup() as tasks:
        async with house.spoke(skill=first, epoch=1):
            waiting = tasks.create_task(outcome(house, "wait", idempotent=True))
            await first.running.wait()
        async with house.spoke(epoch=2, admission=busy):
            assert await waiting is ErrorCode.OUTCOME_UNKNOWN


IMPATIENT = replace(PATIENT, return_s=0.3)
"""With those alone that went away."""


async def test_after_its_will_a_device_may_come_back_and_answer(new_house: OpenHouse) -> None:
    async with (
        new_house(settings=IMPATIENT) as house,
        house.spoke() as spoke,
        asyncio.TaskGroup() as tasks,
    ):
        waiting = tasks.create_task(outcome(house, "wait"))
        await spoke.skill.running.wait()
        connection = spoke.connection
        house.caller.device_offline("lamp_pi", 1, connection)
        house.caller.device_online("lamp_pi", 1, connection + 1)
        # Longer than a device that stays away is waited for.
        await asyncio.sleep(0.4)
        spoke.skill.let_go.set()
        assert await waiting == "waited"
        assert spoke.skill.runs == ["wait"]


@pytest.mark.parametrize(
    ("event", "flags", "expected"),
    [
        ("restarts", {}, ErrorCode.OUTCOME_UNKNOWN),
        ("stays away", {}, ErrorCode.OUTCOME_UNKNOWN),
        ("stays away", {"idempotent": True}, ErrorCode.OUTCOME_UNKNOWN),
        ("stays away", {"read_only": True}, ErrorCode.OFFLINE),
    ],
)
async def test_what_becomes_of_a_call_whose_device_is_gone(
    new_house: OpenHouse, event: str, flags: dict[str, bool], expected: ErrorCode
) -> None:
    async with (
        new_house(settings=IMPATIENT) as house,
        house.spoke() as spoke,
        asyncio.TaskGroup() as tasks,
    ):
        waiting = tasks.create_task(outcome(house, "wait", **flags))
        await spoke.skill.running.wait()
        if event == "restarts":
            house.caller.device_online("lamp_pi", 2, 1)
        else:
            house.caller.device_offline("lamp_pi", 1, spoke.connection)
        assert await waiting is expected


async def test_a_late_will_of_an_earlier_connection_changes_nothing(house: House) -> None:
    async with house.spoke(epoch=5):
        house.caller.device_online("lamp_pi", 5, 7)
        house.caller.device_offline("lamp_pi", 5, 6)
        house.caller.device_offline("lamp_pi", 4, 99)
        house.caller.device_online("lamp_pi", 4, 100)
        assert await outcome(house, "where") == "lamp_pi"


async def test_a_device_that_counted_as_gone_and_speaks_again_in_its_connection_is_called_again(
    house: House,
) -> None:
    async with house.spoke() as spoke:
        house.caller.device_offline("lamp_pi", 1, spoke.connection)
        assert await outcome(house, "where") is ErrorCode.OFFLINE
        house.caller.device_online("lamp_pi", 1, spoke.connection)
        assert await outcome(house, "where") == "lamp_pi"


async def test_a_device_that_never_answers_ends_as_unknown_at_the_deadline(new_house: OpenHouse) -> None:
    async with new_house(settings=QUICK) as house:
        house.keys["ghost"] = KeyPair.generate()
        house.caller.device_online("ghost", 1, 1)
        assert await outcome(house, "wait", device="ghost", ttl_ms=50) is ErrorCode.OUTCOME_UNKNOWN
        read = await outcome(house, "wait", device="ghost", ttl_ms=50, read_only=True)
        assert read is ErrorCode.TIMEOUT
