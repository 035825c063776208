"""What must never run, and what must never be believed, on a bus where anybody may publish anything."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.link import Message
from bus.rpc import ResponderSettings
from contracts import topics
from contracts.devices.rpc import Actor, Call, Control, Failure, Progress, Result
from contracts.errors import ErrorCode
from identity.envelope import Seal
from identity.ids import uuid7
from identity.keys import KeyPair
from tests.bus.rpc_world import HUB, House, Spoke, call_topic, request, settle

pytestmark = pytest.mark.asyncio(loop_scope="module")


def make_call(**changes: Any) -> Call:
    fields: dict[str, Any] = {
        "id": uuid7(),
        "instance": "main",
        "epoch": 1,
        "issued_at": datetime.now(UTC),
        "ttl_ms": 30_000,
        "actor": Actor(user="anna"),
        "args": ["x"],
    }
    return Call(**{**fields, **changes})


async def deliver(house: House, spoke: Spoke, topic: str, payload: bytes, *, times: int = 1) -> list[bytes]:
    """Put a message on the bus and give what the spoke answers."""
    replies: list[bytes] = []
    async with house.intruder() as bus:
        await bus.subscribe(
            topics.RESULT.filter(device=spoke.device), lambda message: replies.append(message.payload)
        )
        for _ in range(times):
            await bus.publish(topic, payload)
            await settle(spoke.link)
            await asyncio.sleep(0.02)
        await settle(spoke.link)
        await settle(bus)
    return replies


def codes(replies: list[bytes]) -> list[ErrorCode]:
    parsed = [topics.RESULT.parse(reply) for reply in replies]
    return [reply.code for reply in parsed if isinstance(reply, Failure)]


RAN = "ran"


@pytest.mark.parametrize(
    ("signed", "call", "answer"),
    [
        pytest.param({}, {}, RAN, id="well signed"),
        pytest.param({}, {"age_s": 2, "ttl_ms": 1_000}, RAN, id="five seconds of skew are allowed"),
        pytest.param({"by": "stranger"}, {}, None, id="by another key"),
        pytest.param({"by": "device"}, {}, None, id="by the device"),
        pytest.param({"hub": "home-2"}, {}, None, id="for another hub"),
        pytest.param({"topic": call_topic("echo", skill="lock")}, {}, None, id="for another topic"),
        pytest.param({"topic": call_topic("echo", "lock_pi")}, {}, None, id="for another device"),
        pytest.param({}, {"epoch": 1}, ErrorCode.STALE_EPOCH, id="of an earlier epoch"),
        pytest.param({}, {"epoch": 3}, ErrorCode.STALE_EPOCH, id="of a later epoch"),
        pytest.param({}, {"age_s": 10, "ttl_ms": 1_000}, ErrorCode.EXPIRED, id="too late"),
    ],
)
async def test_only_a_call_that_is_signed_for_here_and_now_runs(
    open_bus_house: House, signed: dict[str, str], call: dict[str, int], answer: ErrorCode | str | None
) -> None:
    house, here = open_bus_house, call_topic("echo")
    issued = datetime.now(UTC) - timedelta(seconds=call.pop("age_s", 0))
    async with house.spoke(epoch=2) as spoke:
        key = {"device": spoke.key, "stranger": KeyPair.generate()}.get(signed.get("by", ""), house.hub)
        made = make_call(**{"epoch": 2, "issued_at": issued, **call})
        payload = Seal(signed.get("hub", HUB), key).seal(signed.get("topic", here), made)
        replies = await deliver(house, spoke, here, payload)
        assert spoke.skill.runs == (["echo"] if answer == RAN else [])
    answered = [getattr(topics.RESULT.parse(reply), "code", RAN) for reply in replies]
    assert answered == ([answer] if answer else [])


async def test_an_unsigned_call_is_not_even_answered(
    open_bus_house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bus_house.spoke() as spoke:
        payload = make_call().model_dump_json().encode()
        with caplog.at_level(logging.WARNING):
            assert await deliver(open_bus_house, spoke, call_topic("echo"), payload) == []
        assert spoke.skill.runs == []
        assert spoke.responder.dropped.total() == 1
        assert "not signed" in caplog.text


async def test_a_new_name_is_told_once_and_soon(open_bus_house: House) -> None:
    told: list[str] = []
    async with open_bus_house.spoke(on_renamed=lambda: told.append("renamed")) as spoke:
        old = "00000000-0000-7000-8000-000000000000"
        for identifier, epoch, times in ((uuid7(), 1, 2), (uuid7(), 2, 1), (old, 1, 1), (uuid7(), 1, 1)):
            topic = topics.CONTROL.build(device=spoke.device, call=identifier)
            control = Control(kind="renamed", id=identifier, instance="main", epoch=epoch)
            sealed = Seal(HUB, open_bus_house.hub).seal(topic, control)
            assert await deliver(open_bus_house, spoke, topic, sealed, times=times) == []
    assert len(told) == 2


@pytest.mark.parametrize("method", ["echo", "refuse"])
async def test_a_repeated_call_gets_its_first_outcome_and_does_not_run_again(
    open_bus_house: House, method: str
) -> None:
    async with open_bus_house.spoke() as spoke:
        payload = Seal(HUB, open_bus_house.hub).seal(call_topic(method), make_call())
        replies = await deliver(open_bus_house, spoke, call_topic(method), payload, times=5)
        assert len(replies) == 5
        assert len(set(replies)) == 1
        assert spoke.skill.runs == [method]


async def test_a_call_that_was_forgotten_is_refused_rather_than_run_again(open_bus_house: House) -> None:
    async with open_bus_house.spoke(settings=ResponderSettings(remembered=2)) as spoke:
        seal = Seal(HUB, open_bus_house.hub)
        first = seal.seal(call_topic("echo"), make_call(issued_at=datetime.now(UTC) - timedelta(seconds=1)))
        await deliver(open_bus_house, spoke, call_topic("echo"), first)
        for number in range(3):
            assert await open_bus_house.caller.call(request("echo", number)) == number
        ran = list(spoke.skill.runs)
        assert codes(await deliver(open_bus_house, spoke, call_topic("echo"), first)) == [ErrorCode.EXPIRED]
        assert spoke.skill.runs == ran


async def test_a_cancel_that_overtakes_its_call_is_the_calls_outcome(open_bus_house: House) -> None:
    async with open_bus_house.spoke() as spoke:
        seal, call = Seal(HUB, open_bus_house.hub), make_call()
        topic = topics.CONTROL.build(device="lamp_pi", call=call.id)
        cancel = seal.seal(topic, Control(kind="cancel", id=call.id, instance="main", epoch=1))
        assert codes(await deliver(open_bus_house, spoke, topic, cancel)) == [ErrorCode.CANCELLED]
        late = seal.seal(call_topic("echo"), call)
        replies = await deliver(open_bus_house, spoke, call_topic("echo"), late)
        assert codes(replies) == [ErrorCode.CANCELLED]
        assert spoke.skill.runs == []


async def test_a_start_without_a_reservation_runs_nothing(open_bus_house: House) -> None:
    async with open_bus_house.spoke() as spoke:
        identifier = uuid7()
        topic = topics.CONTROL.build(device="lamp_pi", call=identifier)
        control = Control(kind="start", id=identifier, instance="main", epoch=1)
        start = Seal(HUB, open_bus_house.hub).seal(topic, control)
        assert codes(await deliver(open_bus_house, spoke, topic, start)) == [ErrorCode.EXPIRED]
        assert spoke.skill.runs == []


async def test_a_start_given_twice_runs_once(open_bus_house: House) -> None:
    async with open_bus_house.spoke() as spoke:
        seal, call = Seal(HUB, open_bus_house.hub), make_call(accept=True)
        await deliver(open_bus_house, spoke, call_topic("echo"), seal.seal(call_topic("echo"), call))
        topic = topics.CONTROL.build(device="lamp_pi", call=call.id)
        start = seal.seal(topic, Control(kind="start", id=call.id, instance="main", epoch=1))
        replies = await deliver(open_bus_house, spoke, topic, start, times=3)
        assert len(set(replies)) == 1
        assert spoke.skill.runs == ["echo"]


async def test_a_retained_call_is_ignored(open_bus_house: House) -> None:
    async with open_bus_house.intruder() as bus:
        payload = Seal(HUB, open_bus_house.hub).seal(call_topic("echo"), make_call())
        await bus.publish(call_topic("echo"), payload, retain=True, confirmed=True)
        async with open_bus_house.spoke() as spoke:
            await settle(spoke.link)
            assert spoke.skill.runs == []


async def test_results_that_another_device_forged_are_dropped(open_bus_house: House) -> None:
    house = open_bus_house
    asked: asyncio.Queue[Message] = asyncio.Queue()
    async with house.spoke("lamp_pi") as lamp, house.spoke("evil_pi") as evil, house.intruder() as bus:
        await bus.subscribe(topics.CALL.filter(device="lamp_pi"), asked.put_nowait)
        async with asyncio.TaskGroup() as tasks:
            seen: list[object] = []
            waiting = tasks.create_task(house.caller.call(request("wait"), seen.append))
            call = topics.CALL.parse((await asked.get()).payload)
            assert isinstance(call, Call)
            forged = Result(id=call.id, epoch=1, value="forged")
            await house.publish_as("lamp_pi", evil.key, call.id, forged)
            await house.publish_as("evil_pi", evil.key, call.id, forged)
            await house.publish_as(
                "lamp_pi", evil.key, call.id, Progress(id=call.id, epoch=1, seq=0, value=1)
            )
            await house.publish_as(
                "lamp_pi", lamp.key, uuid7(), Result(id=call.id, epoch=1, value="other id")
            )
            await house.publish_as("lamp_pi", lamp.key, call.id, Result(id=call.id, epoch=9, value="epoch"))
            await settle(house.link)
            lamp.skill.let_go.set()
            assert await waiting == "waited"
        assert seen == []
        assert house.caller.dropped.total() == 5


async def test_a_device_that_floods_with_results_does_not_flood_the_log(
    open_bus_house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house = open_bus_house
    async with house.spoke("lamp_pi") as lamp:
        for _ in range(200):
            identifier = uuid7()
            await house.publish_as("lamp_pi", lamp.key, identifier, Result(id=identifier, epoch=1, value=1))
        await settle(house.link)
    assert house.caller.dropped.total() == 200
    assert caplog.text.count("dropped a reply") <= 25


async def test_a_result_before_start_is_not_believed(open_bus_house: House) -> None:
    house = open_bus_house
    async with house.spoke() as spoke:
        reservation = await house.caller.reserve(request("echo", 1))
        identifier = reservation.call.id
        await house.publish_as(
            "lamp_pi", spoke.key, identifier, Result(id=identifier, epoch=1, value="early")
        )
        await settle(house.link)
        assert await house.caller.start(reservation) == 1


PAYLOADS = st.one_of(
    st.binary(max_size=300),
    st.just(b""),
    st.builds(lambda text: b'{"v":1,"kind":"call","id":"' + text + b'"}', st.binary(max_size=40)),
)
# Mosquitto hangs up on control characters itself.
LEVELS = st.text(
    st.characters(codec="utf-8", exclude_characters="+#/", exclude_categories=["C", "Z"]),
    min_size=1,
    max_size=12,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    messages=st.lists(
        st.tuples(st.sampled_from(["call", "control", "signed", "signed json"]), LEVELS, LEVELS, PAYLOADS),
        max_size=8,
    )
)
async def test_whatever_comes_on_a_call_or_control_topic_the_spoke_lives_and_runs_nothing(
    messages: list[tuple[str, str, str, bytes]], fuzzed: tuple[House, Spoke]
) -> None:
    house, spoke = fuzzed
    seal = Seal(HUB, house.hub)
    for kind, one, other, payload in messages:
        topic = (
            f"devices/lamp_pi/control/{one}" if kind == "control" else f"devices/lamp_pi/calls/{one}/{other}"
        )
        if kind.startswith("signed"):
            body = payload if kind == "signed" else b'{"v":1,"x":' + str(len(payload)).encode() + b"}"
            payload = (
                seal.sign(topic, body)
                if body.startswith(b"{") and body.endswith(b"}") and len(body) > 6
                else body
            )
        await house.link.publish(topic, payload)
    await settle(house.link)
    assert await house.caller.call(request("echo", 7)) == 7
    assert set(spoke.skill.runs) == {"echo"}


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(messages=st.lists(st.tuples(st.booleans(), LEVELS, PAYLOADS), max_size=8))
async def test_whatever_comes_on_a_result_topic_the_hub_lives_and_other_calls_go_on(
    messages: list[tuple[bool, str, bytes]], fuzzed: tuple[House, Spoke]
) -> None:
    house, spoke = fuzzed
    async with asyncio.TaskGroup() as tasks:
        spoke.skill.let_go.clear()
        spoke.skill.running.clear()
        waiting = tasks.create_task(house.caller.call(request("wait")))
        await spoke.skill.running.wait()
        (open_topic,) = house.caller._open
        for on_open, level, payload in messages:
            await spoke.link.publish(
                open_topic if on_open else f"devices/lamp_pi/results/main/{level}", payload
            )
            if on_open and len(payload) > 6 and payload.startswith(b"{") and payload.endswith(b"}"):
                await spoke.link.publish(open_topic, Seal(HUB, spoke.key).sign(open_topic, payload))
        spoke.skill.let_go.set()
        assert await waiting == "waited"
