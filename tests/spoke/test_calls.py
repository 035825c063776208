"""Calls through a whole spoke; the journal tells what really ran."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_core.skills.running.runner import RunnerSettings
from contracts import topics
from contracts.devices.rpc import Actor, Call, Control
from contracts.errors import CallError, ErrorCode
from identity.envelope import Seal
from identity.ids import uuid7
from identity.keys import KeyPair
from identity.logins.proofs import ProofCheck
from spoke.app import Spoke, open_spoke
from tests.spoke.home import ANNA, DEVICE, HUB, PATIENCE_S, BusSide, Place, StandInHub, wait_for

WRITE = topics.CALL.build(device=DEVICE, skill="JournalSkill", method="write")
BURN = topics.CALL.build(device=DEVICE, skill="JournalSkill", method="burn")


@pytest.fixture
async def spoke(hub: StandInHub, bus: BusSide, place: Place) -> AsyncIterator[Spoke]:
    """A spoke that the hub knows to be there."""
    async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
        await bus.online()
        yield spoke


def make_call(spoke: Spoke, **changes: Any) -> Call:
    given = {
        "id": uuid7(),
        "instance": "main",
        "epoch": spoke.epoch,
        "issued_at": datetime.now(UTC),
        "ttl_ms": 30_000,
        "actor": ANNA,
        "args": ["forged"],
    }
    return Call.model_validate(given | changes)


async def settle(bus: BusSide) -> None:
    """Let all that was published before arrive and be answered."""
    assert await bus.call("write", "last") == "wrote last"


async def ran_once_more(bus: BusSide, place: Place) -> None:
    """See the forged call's genuine form run, once; calls run side by side, so in any order."""
    await settle(bus)
    await wait_for(lambda: len(place.journal) >= 3, "the genuine call to run")
    assert sorted(place.journal) == ["forged", "last", "last"]


async def test_what_the_hub_did_not_sign_for_this_very_topic_never_runs(
    bus: BusSide, spoke: Spoke, place: Place
) -> None:
    call = make_call(spoke)
    other = topics.CALL.build(device="other_pc", skill="JournalSkill", method="write")
    device_key = KeyPair.load(place.home / "spoke" / "key.pem")
    genuine = bus.seal.seal(WRITE, call)
    for payload in (
        call.model_dump_json().encode(),
        Seal(HUB, KeyPair.generate()).seal(WRITE, call),
        Seal(HUB, device_key).seal(WRITE, call),
        Seal("other-home", bus.seal.key).seal(WRITE, call),
        bus.seal.seal(BURN, call.model_copy(update={"confirmed": True})),
        bus.seal.seal(other, call),
        genuine.replace(b"forged", b"edited"),
        genuine[:-20],
        b"",
    ):
        await bus.link.publish(WRITE, payload)
    await settle(bus)
    assert place.journal == ["last"]
    await bus.link.publish(WRITE, genuine)
    await ran_once_more(bus, place)


async def test_a_call_that_the_broker_kept_never_runs(hub: StandInHub, bus: BusSide, place: Place) -> None:
    settings = place.settings(hub)
    async with open_spoke(settings, token=hub.invite()) as first:
        await bus.online()
        epoch = first.epoch + 10**9
        call = bus.seal.seal(WRITE, make_call(first, epoch=epoch))
    (settings.directory / "state.json").write_text(json.dumps({"epoch": epoch - 1}))
    await bus.link.publish(WRITE, call, retain=True, confirmed=True)
    async with open_spoke(settings) as second:
        await bus.online(2)
        await settle(bus)
        assert (second.epoch, place.journal) == (epoch, ["last"])
        await bus.link.publish(WRITE, call)
        await ran_once_more(bus, place)


@pytest.fixture
def broker_an_hour_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a broker that is started next go by the same clock as the hub."""
    defaults = ProofCheck.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "clock", lambda: time.time() - 3_600)


@pytest.mark.usefixtures("broker_an_hour_behind")
async def test_a_machine_without_a_clock_judges_deadlines_by_the_hubs(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    hub.clock_ahead_s = -3_600.0
    async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
        await bus.online()
        call = make_call(spoke, issued_at=datetime.now(UTC) - timedelta(hours=1), ttl_ms=10_000)
        await bus.link.publish(WRITE, bus.seal.seal(WRITE, call))
        await wait_for(lambda: place.journal == ["forged"], "the call to run")


async def test_a_spoke_takes_the_hubs_time_anew_after_a_clock_was_set(
    hub: StandInHub, bus: BusSide, spoke: Spoke, place: Place
) -> None:
    async def call_of_two_hours_ago() -> None:
        call = make_call(spoke, issued_at=datetime.now(UTC) - timedelta(hours=2))
        await bus.link.publish(WRITE, bus.seal.seal(WRITE, call))
        await asyncio.sleep(0.05)

    hub.clock_ahead_s = -7_200.0
    async with asyncio.timeout(PATIENCE_S):
        while not place.journal:
            await call_of_two_hours_ago()
    hub.clock_ahead_s = 0.0
    # From the future, as the spoke still sees it; that does not keep it from running.
    await settle(bus)
    before = len(bus.seen)
    async with asyncio.timeout(PATIENCE_S):
        while not any(b'"expired"' in message.payload for message in bus.seen[before:]):
            await call_of_two_hours_ago()


async def test_a_call_from_before_a_restart_does_not_run_after_it(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()) as first:
        await bus.online()
        captured = bus.seal.seal(WRITE, make_call(first))
        await bus.link.publish(WRITE, captured)
        await wait_for(lambda: place.journal, "the first run")
    async with open_spoke(place.settings(hub)):
        await bus.online(2)
        await bus.link.publish(WRITE, captured)
        await settle(bus)
    assert place.journal == ["forged", "last"]


async def test_a_guest_may_only_look(bus: BusSide, spoke: Spoke, place: Place) -> None:
    guest = Actor(user="guest", read_only=True)
    await bus.call("write", "mine")
    assert await bus.call("read", actor=guest) == ["mine"]
    with pytest.raises(CallError) as error:
        await bus.call("write", "theirs", actor=guest, confirmed=True)
    assert error.value.code is ErrorCode.REFUSED
    assert place.journal == ["mine"]


async def test_a_method_that_wants_a_confirmation_runs_with_one_only(
    bus: BusSide, spoke: Spoke, place: Place
) -> None:
    with pytest.raises(CallError) as error:
        await bus.call("burn")
    assert error.value.code is ErrorCode.NEEDS_CONFIRMATION
    assert place.journal == []
    assert await bus.call("burn", confirmed=True) == "burnt"


@pytest.mark.parametrize(
    ("method", "args", "code"),
    [
        ("wriet", ["x"], ErrorCode.UNKNOWN_SKILL),
        ("_write", ["x"], ErrorCode.UNKNOWN_SKILL),
        ("write", [], ErrorCode.BAD_ARGUMENTS),
        ("slowly", ["a", "soon"], ErrorCode.BAD_ARGUMENTS),
    ],
)
async def test_what_does_not_fit_executes_nothing(
    bus: BusSide, spoke: Spoke, place: Place, method: str, args: list[Any], code: ErrorCode
) -> None:
    if method.startswith("_"):
        call = make_call(spoke, args=args)
        topic = f"devices/{DEVICE}/calls/JournalSkill/{method}"
        await bus.link.publish(topic, bus.seal.seal(topic, call))
    else:
        with pytest.raises(CallError) as error:
            await bus.call(method, *args)
        assert error.value.code is code
    await settle(bus)
    assert place.journal == ["last"]


async def test_of_a_call_that_cannot_be_stopped_the_spoke_says_nothing(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    place.add_gate()
    settings = place.settings(hub, runner=RunnerSettings(stop_grace_s=0.05))
    async with open_spoke(settings, token=hub.invite()) as spoke:
        await bus.online()
        call = make_call(spoke, args=["deaf"])
        insist = topics.CALL.build(device=DEVICE, skill="GateSkill", method="insist")
        payload = bus.seal.seal(insist, call)
        await bus.link.publish(insist, payload)
        await wait_for(lambda: place.journal, "the call to begin")
        control = topics.CONTROL.build(device=DEVICE, call=call.id)
        cancel = Control(kind="cancel", id=call.id, instance="main", epoch=spoke.epoch)
        await bus.link.publish(control, bus.seal.seal(control, cancel))
        await settle(bus)
        # The cancel is there, and its grace began before: in one loop it also ends before this.
        await asyncio.sleep(0.2)
        place.open_gate()
        await wait_for(lambda: "deaf done" in place.journal, "the method to end by itself")
        await bus.link.publish(insist, payload)
        await settle(bus)
        topic = topics.RESULT.build(device=DEVICE, instance="main", call=call.id)
        told = [one for one in bus.payloads(topic) if b'"kind":"progress"' not in one]
        assert told == [], "neither cancelled nor unknown: that is for the hub to conclude"
        # It is not repeated.
        assert place.journal == ["deaf begun", "last", "deaf done", "last"]


async def read_on(bus: BusSide) -> None:
    while True:
        await bus.call("read")


async def test_a_stopping_spoke_finishes_what_runs_and_takes_nothing_new(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    place.add_gate()
    async with asyncio.TaskGroup() as tasks:
        async with open_spoke(place.settings(hub, stop_grace_s=60.0), token=hub.invite()):
            await bus.online()
            running = tasks.create_task(bus.call("wait", "long", skill="GateSkill"))
            await wait_for(lambda: place.journal, "the call to begin")

            async def call_late() -> list[ErrorCode]:
                with pytest.raises(CallError) as looked:
                    await read_on(bus)
                with pytest.raises(CallError) as wrote:
                    await bus.call("write", "late")
                place.open_gate()
                return [looked.value.code, wrote.value.code]

            late = tasks.create_task(call_late())
        assert await running == "wrote long"
        assert await late == [ErrorCode.BUSY] * 2
    await wait_for(lambda: bus.statuses[-1].state == "offline", "the goodbye")
    assert place.journal == ["long begun", "long done"]


async def test_a_call_that_outlasts_the_grace_is_stopped(hub: StandInHub, bus: BusSide, place: Place) -> None:
    async with open_spoke(place.settings(hub, stop_grace_s=0.1), token=hub.invite()) as spoke:
        await bus.online()
        slowly = topics.CALL.build(device=DEVICE, skill="JournalSkill", method="slowly")
        call = make_call(spoke, args=["endless", 600.0])
        await bus.link.publish(slowly, bus.seal.seal(slowly, call))
        await wait_for(lambda: place.journal, "the call to begin")
    assert place.journal == ["endless begun"]


async def test_each_call_leaves_a_line_without_its_arguments(
    bus: BusSide, spoke: Spoke, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await bus.call("write", "my-secret", actor=Actor(user="anna", agent="assistant", turn="t-1"))
    with pytest.raises(CallError):
        await bus.call("write", "my-secret", "my-other-secret")
    lines = [record.getMessage() for record in caplog.records if record.name == "strawberry.audit"]
    assert len(lines) == 2
    assert "JournalSkill.write" in lines[0]
    assert "user=anna agent=assistant turn=t-1" in lines[0]
    assert "outcome=ok" in lines[0]
    assert "outcome=bad_arguments" in lines[1]
    assert "my-secret" not in "\n".join(lines)


async def test_a_broken_skill_is_reported_and_the_others_are_offered(
    hub: StandInHub, bus: BusSide, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.add_skill("broken.py", "def broken(:\n")
    place.add_skill(
        "unready.py",
        "from spoke import Skill\n\n\nclass UnreadySkill(Skill):\n"
        "    async def setup(self):\n        raise OSError('no such camera')\n\n"
        "    def look(self) -> str:\n        return ''\n",
    )
    async with open_spoke(place.settings(hub, samples=True), token=hub.invite()) as spoke:
        status = await bus.online()
        assert await bus.call("write", "fine") == "wrote fine"
    assert {"JournalSkill", "CalculatorSkill", "LampSkill"} <= set(spoke.skills)
    assert set(status.skills) - set(spoke.skills) == {"BrokenSkill", "UnreadySkill"}
    assert "UnreadySkill" not in spoke.skills
    assert "broken.py" in caplog.text
    assert "no such camera" in caplog.text
    assert len(spoke.problems) == 2
