"""Being there, and staying the one that decides what the bus says about it."""

import asyncio
import os
import time
from datetime import timedelta

import pytest

from bus.rpc import EpochClock
from contracts import topics
from contracts.devices.presence import Heartbeat, HubStatus
from contracts.errors import ConfigError
from identity.envelope import Seal
from identity.keys import KeyPair
from spoke.app import open_spoke
from spoke.presence.status import OwnStatus
from tests.mosquitto import Mosquitto
from tests.spoke.home import DEVICE, HUB, BusSide, Place, StandInHub, on_bus, serving, wait_for

STATUS = topics.STATUS.build(device=DEVICE)
SKILL = topics.SKILL.build(device=DEVICE, skill="JournalSkill")
BRIEF = '''
from spoke import Skill


class BriefSkill(Skill):
    """Is not there for long."""

    def tell(self) -> None:
        """Publish a value."""
        self.state("mood", 1)
'''
BROKEN = '''
from spoke import Skill


class BrokenSkill(Skill):
    """Does not come up."""

    async def setup(self) -> None:
        self.state("mood", 1)
        raise RuntimeError("no such hardware")

    def tell(self) -> None:
        """Never runs."""
'''
QUIET_S = 0.4
"""How long a test listens before it says that nothing came; many times what an answer takes."""


def device_seal(place: Place) -> Seal:
    """The device's own seal: a replay carries a signature that holds."""
    return Seal(HUB, KeyPair.load(place.home / "spoke" / "key.pem"))


async def test_each_start_has_a_higher_epoch_whatever_the_clock_says(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()) as first:
        await bus.online()
    state = place.home / "spoke" / "state.json"
    state.write_text('{"epoch": 4102444800000}')
    async with open_spoke(place.settings(hub)) as second:
        status = await bus.online(2)
    assert first.epoch < second.epoch == status.epoch == 4102444800001


async def test_a_stopped_spoke_says_that_it_goes(hub: StandInHub, bus: BusSide, place: Place) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()):
        online = await bus.online()
    await wait_for(lambda: bus.statuses[-1].state == "offline", "the goodbye")
    assert bus.statuses[-1].order > online.order
    assert bus.statuses[-1].connection == online.connection


async def test_a_new_session_of_the_hub_is_answered_once(hub: StandInHub, bus: BusSide, place: Place) -> None:
    await bus.say_online("first")
    async with open_spoke(place.settings(hub, hub_wait_s=15.0), token=hub.invite()):
        # The retained status is there before the spoke first speaks.
        assert (await bus.online()).hub_session == "first"
        registered = len(bus.payloads(SKILL))
        await bus.say_online("second")
        status = await bus.online(2)
        assert status.hub_session == "second"
        await wait_for(lambda: len(bus.payloads(SKILL)) > registered, "the skills again")
        for session in ("second", "first"):
            await bus.say_online(session)
        await bus.say_online("older", started_at=bus.started_at - timedelta(days=1))
        await asyncio.sleep(QUIET_S)
    assert len([status for status in bus.statuses if status.state == "online"]) == 2
    assert len(set(bus.payloads(SKILL))) == 1


async def test_a_hub_status_with_another_key_or_of_another_hub_is_not_believed(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    topic = topics.HUB_STATUS.build(instance="main")
    status = HubStatus(state="online", started_at=bus.started_at, session="forged")
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        for seal in (Seal(HUB, KeyPair.generate()), Seal("other-home", hub.key)):
            await bus.link.publish(topic, seal.seal(topic, status), retain=True)
        await bus.link.publish(topic, status.model_dump_json().encode(), retain=True)
        await asyncio.sleep(QUIET_S)
    assert [status.hub_session for status in bus.statuses if status.state == "online"] == [None]


async def test_a_late_will_is_answered_with_a_new_connection(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
        first = await bus.online()
        # The will of this very connection, as a broker would send it that took the device for dead.
        own = OwnStatus(device_seal(place), device=DEVICE, epoch=spoke.epoch, manifest={})
        wills = [own.begin() for _ in range(first.connection)]
        await bus.link.publish(STATUS, wills[-1].payload, retain=True)
        status = await bus.online(2)
        assert (status.epoch, status.connection) == (spoke.epoch, first.connection + 1)
        assert await bus.retained(STATUS) == bus.payloads(STATUS)[-1]
        assert await bus.call("write", "still here") == "wrote still here"


@pytest.mark.parametrize("broker_url", ["embedded"], indirect=True)
async def test_a_machine_whose_clock_was_set_logs_in_again(
    hub: StandInHub, bus: BusSide, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        # The time of calls is that of the start; a proof needs the present one.
        monkeypatch.setattr(EpochClock, "now", lambda _: time.time() - 3_600)
        await bus.link.publish(STATUS, b"{}", retain=True)
        await bus.online(2)


@pytest.mark.parametrize("false", [b"", b"{}", b'{"v":1,"kind":"status","state":"offline"}'])
async def test_a_false_status_of_its_own_is_said_again(
    hub: StandInHub, bus: BusSide, place: Place, false: bytes
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()):
        first = await bus.online()
        await bus.link.publish(STATUS, false, retain=True)
        assert (await bus.online(2)).connection == first.connection + 1
        assert await bus.retained(STATUS) == bus.payloads(STATUS)[-1]


async def test_a_replayed_status_of_its_own_is_said_again(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()):
        first = await bus.online()
        await bus.link.publish(STATUS, bus.payloads(STATUS)[0], retain=True)
        status = await wait_for(
            lambda: next((one for one in bus.statuses if one.order > first.order), None), "a new status"
        )
        assert status.connection == first.connection + 1


async def test_a_clone_with_its_key_is_named_in_the_log(
    hub: StandInHub, bus: BusSide, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
        await bus.online()
        clone = OwnStatus(device_seal(place), device=DEVICE, epoch=spoke.epoch + 1, manifest={})
        clone.begin()
        await bus.link.publish(STATUS, clone.online(hub_session=None).payload, retain=True)
        await wait_for(lambda: "another spoke publishes as garage_pc" in caplog.text, "the word of it")


async def test_a_skill_that_was_removed_while_the_spoke_was_off_leaves_nothing_behind(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    place.add_skill("brief.py", BRIEF)
    brief = topics.SKILL.build(device=DEVICE, skill="BriefSkill")
    value = topics.STATE.build(device=DEVICE, skill="BriefSkill", property="mood")
    async with open_spoke(place.settings(hub), token=hub.invite()):
        await bus.online()
        assert await bus.call("tell", skill="BriefSkill") is None
        await wait_for(lambda: bus.payloads(brief) and bus.payloads(value), "the skill and its value")
    (place.skills / "brief.py").unlink()
    async with open_spoke(place.settings(hub)):
        status = await bus.online(2)
        assert set(status.skills) == {"JournalSkill"}
        await wait_for(lambda: bus.payloads(brief)[-1] == b"", "the registration to be cleared")
        assert await bus.retained(brief) == b""
        # The value is the hub's to clear; nobody puts it back.
        await bus.link.publish(value, b"", retain=True, confirmed=True)
        await bus.say_online("new")
        await bus.online(3)
        assert await bus.call("write", "last") == "wrote last"
        assert bus.payloads(value)[-1] == b""
    assert set(status.skills) == {"JournalSkill"}


async def test_a_flood_of_false_statuses_is_not_answered_one_by_one(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    async with open_spoke(place.settings(hub, reclaim_s=3_600.0), token=hub.invite()):
        first = await bus.online()
        for number in range(20):
            await bus.link.publish(STATUS, b'{"false":%d}' % number, retain=True)
        await bus.online(2)
        for number in range(20):
            await bus.link.publish(STATUS, b'{"more":%d}' % number, retain=True)
        await asyncio.sleep(QUIET_S)
    assert max(status.connection for status in bus.statuses) == first.connection + 1


async def test_a_skill_whose_set_up_failed_is_registered_with_the_reason(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    place.add_skill("broken.py", BROKEN)
    async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
        await bus.online()
        assert await bus.call("note", 5) is None
        await wait_for(lambda: any("/state/" in message.topic for message in bus.seen), "a value")
    assert [problem.path for problem in spoke.problems]
    assert b"no such hardware" in bus.payloads(topics.SKILL.build(device=DEVICE, skill="BrokenSkill"))[-1]


async def test_heartbeats_tell_how_the_spoke_is(hub: StandInHub, bus: BusSide, place: Place) -> None:
    topic = topics.HEARTBEAT.build(device=DEVICE)
    await bus.say_online("here")
    async with open_spoke(place.settings(hub, heartbeat_s=0.05, hub_wait_s=15.0), token=hub.invite()):
        await wait_for(lambda: len(bus.payloads(topic)) >= 3, "heartbeats")
    beats = [topics.HEARTBEAT.parse(payload) for payload in bus.payloads(topic)]
    assert all(isinstance(beat, Heartbeat) for beat in beats)
    first, _, third = beats[:3]
    assert isinstance(first, Heartbeat)
    assert isinstance(third, Heartbeat)
    assert (first.seq, third.seq) == (1, 3)
    assert third.uptime_s >= first.uptime_s
    assert first.mode == "hub"
    assert first.memory_mb is not None
    assert first.memory_mb > 1


async def test_a_broker_that_is_killed_and_comes_back_finds_all_as_it_was(
    mosquitto: Mosquitto, hub_key: KeyPair, place: Place
) -> None:
    # The broker keeps nothing: whatever is there afterwards was said again.
    with serving(StandInHub(brokers=[mosquitto.url], key=hub_key)) as hub:
        async with (
            open_spoke(place.settings(hub), token=hub.invite()) as spoke,
            on_bus(hub, mosquitto.url) as bus,
        ):
            await spoke.announced()
            before = await wait_for(lambda: bus.statuses, "the first status")
            last, registrations = before[-1].connection, len(bus.payloads(SKILL))
            await asyncio.to_thread(mosquitto.kill)
            await wait_for(lambda: not spoke.connected and not bus.link.connected, "both to notice")
            await asyncio.to_thread(mosquitto.start)
            back = await wait_for(
                lambda: next((one for one in bus.statuses if one.connection > last), None),
                "the spoke to be back",
            )
            assert (back.epoch, back.state) == (spoke.epoch, "online")
            await wait_for(lambda: len(bus.payloads(SKILL)) > registrations, "the registration")
            # Whoever watches and whoever calls have a connection each, and come back each in their own time.
            await wait_for(lambda: bus.link.connected, "the caller to be back")
            assert await bus.call("write", "after") == "wrote after"
    assert place.journal == ["after"]


async def test_a_spoke_that_has_joined_starts_without_hub_and_broker_and_comes_when_they_do(
    mosquitto: Mosquitto, hub_key: KeyPair, place: Place
) -> None:
    hub = StandInHub(brokers=[mosquitto.url], key=hub_key)
    with serving(hub):
        async with open_spoke(place.settings(hub), token=hub.invite()):
            pass
    await asyncio.to_thread(mosquitto.kill)
    async with asyncio.TaskGroup() as tasks:

        async def come_back() -> None:
            await asyncio.sleep(0.3)
            await asyncio.to_thread(mosquitto.start)

        tasks.create_task(come_back())
        async with open_spoke(place.settings(hub)) as spoke:
            await asyncio.wait_for(spoke.announced(), 30)


async def test_two_spokes_of_one_home_are_one_too_many(hub: StandInHub, place: Place) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()):
        with pytest.raises(ConfigError, match=f"already runs with .* \\(process {os.getpid()}\\)"):
            async with open_spoke(place.settings(hub)):
                pass
    async with open_spoke(place.settings(hub)):
        pass
