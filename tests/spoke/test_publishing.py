"""What skills publish by themselves, through a whole spoke."""

import asyncio

import pytest

from contracts import topics
from contracts.devices.presence import Emitted, State
from spoke.app import open_spoke
from spoke.presence import publishing
from tests.mosquitto import Mosquitto
from tests.spoke.home import DEVICE, BusSide, Place, StandInHub, on_bus, serving, wait_for

MOOD = topics.STATE.build(device=DEVICE, skill="JournalSkill", property="mood")
SHOUTED = topics.EVENT.build(device=DEVICE, name="shouted")


def states(bus: BusSide) -> list[State]:
    return [state for one in bus.payloads(MOOD) if isinstance(state := topics.STATE.parse(one), State)]


def events(bus: BusSide) -> list[Emitted]:
    return [event for one in bus.payloads(SHOUTED) if isinstance(event := topics.EVENT.parse(one), Emitted)]


async def test_a_value_stays_on_the_bus_and_an_event_names_its_skill(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        await bus.call("note", 7)
        await wait_for(lambda: bus.payloads(MOOD), "the value")
        assert await bus.retained(MOOD) == bus.payloads(MOOD)[-1]
        await bus.call("shout", 3)
        await wait_for(lambda: len(events(bus)) == 3, "the events")
    assert (states(bus)[0].value, states(bus)[0].unit) == (7, "%")
    assert [event.data for event in events(bus)] == [{"number": 0}, {"number": 1}, {"number": 2}]
    assert {event.skill for event in events(bus)} == {"JournalSkill"}


async def test_a_skill_that_floods_is_slowed_down_and_named(
    hub: StandInHub,
    bus: BusSide,
    place: Place,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, most in (("_WAITING_EVENTS", 10), ("_RATE", 0.1), ("_BURST", 5)):
        monkeypatch.setattr(publishing, name, most)
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        await bus.call("shout", 500)
        await wait_for(lambda: len(events(bus)) >= 5, "what is allowed at once")
        assert await bus.call("write", "still served") == "wrote still served"
        assert len(events(bus)) <= 15
    assert caplog.text.count("JournalSkill: events come too fast") == 1


async def test_a_skill_with_ever_new_values_keeps_the_first_and_is_named(
    hub: StandInHub,
    bus: BusSide,
    place: Place,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "_STATES", 2)
    place.add_skill(
        "filler.py",
        "from spoke import Skill\n\n\nclass FillerSkill(Skill):\n"
        "    def run(self) -> None:\n"
        "        for number in range(5):\n            self.state(f'value{number}', number)\n"
        "        self.state('value1', 7)\n",
    )
    kept = [topics.STATE.build(device=DEVICE, skill="FillerSkill", property=f"value{n}") for n in range(2)]
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        await bus.call("run", skill="FillerSkill")
        await wait_for(lambda: any(b'"value":7' in one for one in bus.payloads(kept[1])), "the last value")
    assert {one.topic for one in bus.seen if "/state/" in one.topic} == set(kept)
    assert caplog.text.count("FillerSkill: more than 2 values") == 1


async def test_of_a_value_that_changes_fast_the_last_one_arrives(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    place.add_skill(
        "meter.py",
        "from spoke import Skill\n\n\nclass MeterSkill(Skill):\n"
        "    def run(self) -> None:\n"
        "        for value in range(5_000):\n            self.state('level', value)\n",
    )
    topic = topics.STATE.build(device=DEVICE, skill="MeterSkill", property="level")
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        await bus.call("run", skill="MeterSkill")
        await wait_for(lambda: any(b'"value":4999' in one for one in bus.payloads(topic)), "the last value")
    assert len(bus.payloads(topic)) < 500


async def test_values_are_told_again_to_a_broker_that_forgot_them_and_events_are_not(
    mosquitto: Mosquitto, place: Place
) -> None:
    with serving(StandInHub(brokers=[mosquitto.url])) as hub:
        async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
            async with on_bus(hub, mosquitto.url) as bus:
                await bus.online()
                await bus.call("note", 7)
                await bus.call("shout", 1)
                await wait_for(lambda: events(bus) and states(bus), "both")
            await asyncio.to_thread(mosquitto.kill)
            await wait_for(lambda: not spoke.connected, "the spoke to notice")
            await asyncio.to_thread(mosquitto.start)
            async with on_bus(hub, mosquitto.url) as bus:
                await wait_for(lambda: states(bus), "the value again")
                await bus.online()
                assert await bus.call("write", "after") == "wrote after"
                assert states(bus)[-1].value == 7
                assert events(bus) == []
