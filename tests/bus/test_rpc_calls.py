import asyncio
from typing import Any

import pytest

from bus.link import Message
from bus.rpc import ResponderSettings
from contracts import topics
from contracts.errors import CallError, Disconnected, ErrorCode
from identity.keys import KeyPair
from tests.bus.conftest import OpenHouse
from tests.bus.rpc_world import INSTANCE, QUICK, House, Skill, request

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def failing(house: House, method: str, *args: Any, **more: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        await house.caller.call(request(method, *args, **more))
    return caught.value


@pytest.mark.parametrize("value", [None, True, 7, 1.5, "ünï", [1, [2]], {"a": {"b": None}}])
async def test_what_the_skill_returns_comes_back(house: House, value: object) -> None:
    async with house.spoke():
        assert await house.caller.call(request("echo", value)) == value


async def test_named_arguments_arrive_by_name(house: House) -> None:
    async with house.spoke():
        assert await house.caller.call(request("echo", kwargs={"level": 30})) == {"level": 30}


async def test_three_hundred_calls_at_once_each_get_their_own_answer(house: House) -> None:
    async with house.spoke(settings=ResponderSettings(max_active=300)):
        calls = [house.caller.call(request("echo", number)) for number in range(300)]
        assert await asyncio.gather(*calls) == list(range(300))


async def test_an_error_keeps_its_code_message_and_hint(house: House) -> None:
    async with house.spoke():
        error = await failing(house, "refuse")
    assert (error.code, error.message, error.hint, error.device) == (
        ErrorCode.REFUSED,
        "no",
        "Ask nicely.",
        "lamp_pi",
    )


async def test_a_crash_becomes_an_error_without_a_traceback(house: House) -> None:
    async with house.spoke():
        error = await failing(house, "crash")
    assert error.code is ErrorCode.SKILL_ERROR
    assert (error.message, error.exception) == ("the reason", "ValueError")


@pytest.mark.parametrize("method", ["half_a_character", "exit"])
async def test_whatever_a_skill_raises_the_spoke_goes_on(house: House, method: str) -> None:
    async with house.spoke():
        assert (await failing(house, method)).code is ErrorCode.SKILL_ERROR
        assert await house.caller.call(request("echo", 1)) == 1


async def test_half_a_character_in_a_result_or_an_argument_is_an_error(house: House) -> None:
    async with house.spoke():
        assert (await failing(house, "echo", "\ud800")).code is ErrorCode.BAD_ARGUMENTS
        assert await house.caller.call(request("echo", 1)) == 1


async def test_a_result_that_is_too_large_says_so(house: House) -> None:
    async with house.spoke():
        assert (await failing(house, "big", 1_000_000)).code is ErrorCode.TOO_LARGE
        assert len(await house.caller.call(request("big", 500_000))) == 500_000


async def test_a_result_that_is_not_json_is_an_error_of_the_skill(house: House) -> None:
    async with house.spoke():
        assert (await failing(house, "object")).code is ErrorCode.SKILL_ERROR


async def test_arguments_that_cannot_be_sent_are_refused_before_sending(house: House) -> None:
    async with house.spoke() as spoke:
        assert (await failing(house, "echo", object())).code is ErrorCode.BAD_ARGUMENTS
        assert (await failing(house, "echo", "x" * 1_000_000)).code is ErrorCode.TOO_LARGE
        assert (await failing(house, "echo", ttl_ms=3_600_000)).code is ErrorCode.BAD_ARGUMENTS
        assert (await failing(house, "../lock", 1)).code is ErrorCode.UNKNOWN_SKILL
        assert spoke.skill.runs == []


async def test_a_device_that_is_not_there_is_an_error_at_once_that_names_it(house: House) -> None:
    error = await failing(house, "echo", device="attic_pi")
    assert error.code is ErrorCode.OFFLINE
    assert "attic_pi" in error.message


async def test_nothing_is_sent_to_a_device_that_is_offline(house: House) -> None:
    async with house.spoke() as spoke:
        house.caller.device_offline("lamp_pi", 1, 1)
        assert (await failing(house, "echo")).code is ErrorCode.OFFLINE
        house.caller.device_online("lamp_pi", 1, 0)
        assert (await failing(house, "echo")).code is ErrorCode.OFFLINE
        house.caller.device_online("lamp_pi", 1, 2)
        await house.caller.call(request("echo", 1))
        assert spoke.skill.runs == ["echo"]


async def test_a_generator_reports_each_value_in_order(house: House) -> None:
    seen: list[Any] = []
    async with house.spoke():
        assert await house.caller.call(request("count"), seen.append) == 3
    assert seen == [0, 1, 2]


async def test_a_call_that_takes_long_says_that_it_runs(house: House) -> None:
    told = asyncio.Event()
    async with house.spoke(settings=ResponderSettings(progress_after_s=0.05)) as spoke:

        def on_progress(value: object) -> None:
            assert value is None
            told.set()
            spoke.skill.let_go.set()

        assert await house.caller.call(request("wait"), on_progress) == "waited"
    assert told.is_set()


async def test_cancelling_the_waiting_task_stops_the_skill(house: House) -> None:
    async with house.spoke() as spoke, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(house.caller.call(request("wait")))
        await spoke.skill.running.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert spoke.skill.stopped.is_set()


def fill(house: House) -> None:
    """Publish until the hub's link takes no more."""
    while True:
        house.link.publish_nowait(Message(topics.HUB_STATUS.build(instance=INSTANCE), b""))


async def test_a_cancel_reaches_the_skill_while_too_much_is_in_flight(house: House) -> None:
    async with house.spoke() as spoke, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(house.caller.call(request("wait")))
        await spoke.skill.running.wait()
        with pytest.raises(Disconnected, match="too many"):
            fill(house)
        waiting.cancel()
        await spoke.skill.stopped.wait()
        await asyncio.wait([waiting])


async def test_a_cancel_that_nobody_confirms_is_told_as_unknown(new_house: OpenHouse) -> None:
    unknown: list[str] = []
    async with new_house(settings=QUICK, on_unconfirmed=lambda asked: unknown.append(asked.path)) as house:
        house.keys["ghost"] = KeyPair.generate()
        house.caller.device_online("ghost", 1, 1)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(house.caller.call(request("wait", device="ghost")))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert unknown == ["ghost.LampSkill.wait"]


async def test_a_skill_that_does_not_end_is_stopped_at_the_deadline(house: House) -> None:
    settings = ResponderSettings(skew_s=0.0)
    async with house.spoke(settings=settings) as spoke:
        for ttl_ms in (100, 1_000, 10_000, 30_000):
            error = await failing(house, "wait", ttl_ms=ttl_ms)
            # On a machine that stood still it came too late to begin.
            if error.code is not ErrorCode.EXPIRED:
                break
        assert error.code is ErrorCode.TIMEOUT
        assert spoke.skill.stopped.is_set()


async def test_a_reservation_runs_when_it_is_started_and_not_before(house: House) -> None:
    async with house.spoke() as spoke:
        reservation = await house.caller.reserve(request("echo", 5))
        assert spoke.skill.runs == []
        assert await house.caller.start(reservation) == 5
        assert spoke.skill.runs == ["echo"]


async def test_a_released_reservation_makes_room_and_never_runs(house: House) -> None:
    async with house.spoke(settings=ResponderSettings(max_active=1)) as spoke:
        reservation = await house.caller.reserve(request("wait"))
        house.caller.release(reservation)
        assert await house.caller.call(request("echo", 1)) == 1
        assert spoke.skill.runs == ["echo"]


async def test_a_reservation_that_is_not_started_lapses(house: House) -> None:
    async with house.spoke(settings=ResponderSettings(skew_s=0.0)) as spoke:
        with pytest.raises(CallError) as caught:
            await start_late(house)
        assert caught.value.code is ErrorCode.EXPIRED
        assert spoke.skill.runs == []


async def start_late(house: House) -> None:
    reservation = await house.caller.reserve(request("echo", ttl_ms=200))
    await asyncio.sleep(0.4)
    await house.caller.start(reservation)


async def test_what_admission_refuses_is_not_even_reserved(house: House) -> None:
    def admit(*_: object) -> None:
        raise CallError(ErrorCode.NEEDS_CONFIRMATION, "ask first")

    async with house.spoke(admission=admit) as spoke:
        with pytest.raises(CallError) as caught:
            await house.caller.reserve(request("echo"))
        assert caught.value.code is ErrorCode.NEEDS_CONFIRMATION
        assert (await failing(house, "echo")).code is ErrorCode.NEEDS_CONFIRMATION
        assert spoke.skill.runs == []


async def test_a_spoke_that_stops_stops_what_it_runs(new_house: OpenHouse) -> None:
    skill = Skill("lamp_pi")
    async with new_house(settings=QUICK) as house, asyncio.TaskGroup() as tasks:
        async with house.spoke(skill=skill):
            # Until it runs it has what a responder allows for clocks that differ, too.
            tasks.create_task(_ignore(house.caller.call(request("wait", ttl_ms=300))))
            await skill.running.wait()
        assert skill.stopped.is_set()


async def _ignore(call: Any) -> None:
    with pytest.raises(CallError):
        await call
