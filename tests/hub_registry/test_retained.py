"""What the broker retains: emptied when a skill or a device goes, purged on demand."""

import json
import os
import signal

import pytest

from bus.link import LinkSettings, open_link
from contracts import topics
from contracts.answers.devices import Purged
from contracts.errors import Disconnected
from hub_registry import limits
from hub_registry.bus.published import PublishedTopics
from hub_registry.devices.devices import DeviceChange
from hub_registry.devices.presence import PresenceState
from tests.hub_registry.hubs import open_hub
from tests.hub_registry.own_brokers import KINDS, logged_in, open_own
from tests.hub_registry.retained import retained, settled
from tests.hub_registry.spokes import FakeSpoke, eventually, registration
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.requirements import require

OWN = topics.HUB_STATUS.build(instance="main")


async def state(spoke: FakeSpoke, skill: str, name: str = "volume") -> str:
    """Publish a value of a skill."""
    topic = topics.STATE.build(device=spoke.device, skill=skill, property=name)
    await spoke.send(topic, b'{"v":1,"value":3,"at":"2026-01-01T00:00:00Z"}')
    return topic


# ---- skills that go


async def test_a_topic_that_cannot_be_emptied_does_not_keep_the_others(hub):
    topics_ = ["devices/tv/skills/+", await state(await hub.joined("TV"), "MediaSkill")]
    published = PublishedTopics(hub.link, hub.registry.directory, complain=lambda *_: None)
    # The device has a connection of its own: what it sent may come after what the hub sends.
    await settled(hub.outside, {OWN, topics_[1]})
    published.empty(topics_)
    await published.flush()
    await settled(hub.outside, {OWN})


async def test_a_skill_that_leaves_the_manifest_leaves_nothing_behind_and_the_others_stay(hub):
    spoke, other = await hub.joined("TV"), await hub.joined("Radio")
    await spoke.online(registration("MediaSkill"), registration("LampSkill", "turn_on"))
    await other.online(registration("MediaSkill"))
    kept = {
        await state(spoke, "MediaSkill"),
        await state(other, "MediaSkill"),
        await state(other, "LampSkill"),
    }
    gone = {await state(spoke, "LampSkill"), await state(spoke, "LampSkill", "brightness")}
    assert gone <= await retained(hub.outside)
    payload = spoke.registration_payload(registration("MediaSkill"))
    await spoke.status(skills={"MediaSkill": payload})
    await settled(
        hub.outside,
        {OWN, *kept}
        | {each.status_topic for each in (spoke, other)}
        | {each.skill_topic("MediaSkill") for each in (spoke, other)},
    )


async def test_a_skill_that_vanished_while_the_hub_was_away_is_swept_when_it_is_back(
    tmp_path, mosquitto, hub_key
):
    settings = LinkSettings(urls=(mosquitto.url,), client_id="tv")
    async with open_link(settings) as link:
        async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
            spoke = await hub.joined("TV")
            alone = FakeSpoke(link, hub_id=hub.registry.hub_id, device="tv", key=spoke.key)
            await alone.online(registration("MediaSkill"), registration("LampSkill"))
            await state(alone, "LampSkill")
            await eventually(lambda: hub.skills(spoke) == {"MediaSkill", "LampSkill"})
        alone.epoch += 1
        await alone.online(registration("MediaSkill"))
        # Of this one the hub never had rows.
        await alone.send(alone.skill_topic("OldSkill"), alone.registration_payload(registration("OldSkill")))
        async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
            payload = alone.registration_payload(registration("MediaSkill"))
            await alone.status(skills={"MediaSkill": payload})
            await settled(hub.outside, {OWN, alone.status_topic, alone.skill_topic("MediaSkill")})


async def test_nothing_is_swept_as_long_as_it_is_unknown_what_a_device_has(tmp_path, mosquitto, hub_key):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        await spoke.online(registration("MediaSkill"))
        await state(spoke, "MediaSkill")
        await eventually(lambda: hub.skills(spoke) == {"MediaSkill"})
        await spoke.status("offline")
        before = await retained(hub.outside)
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        await eventually(lambda: hub.state(spoke) is PresenceState.OFFLINE)
        await hub.settled()
        assert before <= await retained(hub.outside)


async def test_a_device_may_not_have_values_without_end(tmp_path, mosquitto, hub_key, monkeypatch):
    monkeypatch.setattr(limits, "STATES", 3)
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        await spoke.online(registration("MediaSkill"))
        await eventually(lambda: hub.skills(spoke) == {"MediaSkill"})
        values = [await state(spoke, "MediaSkill", f"value{number}") for number in range(5)]
        left = {spoke.status_topic, spoke.skill_topic("MediaSkill"), *values[:3]}
        await settled(hub.outside, {OWN, *left})
        assert "more than the 3 retained topics allowed" in hub.problems(spoke)


async def test_a_device_may_not_fill_the_broker_with_large_values(tmp_path, mosquitto, hub_key, monkeypatch):
    monkeypatch.setattr(limits, "RETAINED_BYTES", 5_000)
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        small, grown = await state(spoke, "MediaSkill", "small"), await state(spoke, "MediaSkill", "grown")
        await spoke.send(grown, bytes(6_000))
        await settled(hub.outside, {OWN, small})
        assert "more than the 5000 retained bytes allowed" in hub.problems(spoke)


# ---- devices


async def test_a_rename_leaves_nothing_behind(own):
    async with logged_in(own, "TV") as tv:
        await tv.spoke.online(registration("MediaSkill"))
        await state(tv.spoke, "MediaSkill")
        await tv.spoke.heartbeat()
        await eventually(lambda: own.skills(tv.spoke) == {"MediaSkill"})
        before = await retained(own.outside)
        await own.registry.change_device("tv", DeviceChange(name="Projector", aliases=["beamer"]))
        await tv.spoke.online(registration("MediaSkill"))
        assert await retained(own.outside) == before


async def test_removing_a_device_that_is_talking_empties_all_that_it_ever_had(own):
    async with logged_in(own, "TV") as tv:
        await tv.spoke.online(registration("MediaSkill"), registration("LampSkill"))
        await tv.spoke.heartbeat()
        for number in range(300):
            await state(tv.spoke, "GoneSkill", f"value{number}")
        await own.service.remove_device("tv")
        await settled(own.outside, {OWN})


async def test_a_value_with_a_name_that_is_no_name_is_emptied(own):
    async with logged_in(own, "TV") as tv:
        await tv.spoke.online(registration("MediaSkill"))
        await eventually(lambda: own.skills(tv.spoke) == {"MediaSkill"})
        before = await retained(own.outside)
        await tv.spoke.send(f"devices/tv/state/MediaSkill/{'x' * 60_000}", b"{}")
        await eventually(lambda: "a name that is not allowed" in own.problems(tv.spoke))
        await settled(own.outside, before)


async def test_what_a_device_left_while_the_broker_was_away_is_emptied_when_it_is_back(
    tmp_path, mosquitto, hub_key
):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        await spoke.online(registration("MediaSkill"))
        await state(spoke, "MediaSkill")
        await eventually(lambda: hub.skills(spoke) == {"MediaSkill"})
        await spoke.status("offline")
        await eventually(lambda: hub.state(spoke) is PresenceState.OFFLINE)
        stopped = mosquitto.pid
        os.kill(stopped, signal.SIGSTOP)
        try:
            hub.link.reconnect()
            await eventually(lambda: not hub.link.connected)
            await hub.service.remove_device("tv")
        finally:
            os.kill(stopped, signal.SIGCONT)
        await settled(hub.outside, {OWN})


async def test_a_device_that_was_removed_long_ago_is_swept_wherever_it_is_seen(tmp_path, mosquitto, hub_key):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        stranger = topics.STATUS.build(device="of_another_hub")
        await hub.service.remove_device("tv")
    async with open_link(LinkSettings(urls=(mosquitto.url,), client_id="late")) as link:
        for topic in (spoke.status_topic, spoke.skill_topic("MediaSkill"), stranger):
            await link.publish(topic, b"{}", retain=True)
        async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
            await settled(hub.outside, {OWN, stranger})


# ---- purging


async def test_a_purge_empties_all_that_was_ever_published_and_the_hub_stays_silent(tmp_path, registry):
    for kind in KINDS:
        async with open_own(kind, tmp_path / kind, registry) as hub:
            # A watcher that listens by the same filters takes nothing away from the purge.
            for filter_ in (*topics.BRANCHES, OWN):
                await hub.link.subscribe(filter_, lambda _: None)
            device = await registry.devices.add(f"{kind} TV", owner="admin")
            for topic in (
                topics.STATUS.build(device=device.id),
                topics.STATE.build(device="unknown", skill="X", property="y"),
                topics.WATCHER.build(user="ann", watcher="door"),
                topics.HUB_STATUS.build(instance="second"),
                topics.USER_EVENT.build(user="ada", kind="turn"),
            ):
                await hub.outside.publish(topic, b"{}", retain=True, confirmed=True)
            assert await hub.service.purge() == Purged(6)
            assert await retained(hub.outside) == set()
            # Neither a reconnect nor another purge brings its status back.
            assert await hub.service.purge() == Purged(0)
            hub.link.reconnect()
            await eventually(lambda hub=hub: hub.link.connected)
            assert await retained(hub.outside) == set()


async def test_neither_a_purge_nor_a_removal_touches_what_others_keep_on_a_branch_of_the_same_name(
    tmp_path, mosquitto, hub_key
):
    theirs = {"devices/kitchen/temperature", "devices/tv/power", "hub/firmware", "users/ada"}
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        for topic in theirs:
            await hub.outside.publish(topic, b"on", retain=True, confirmed=True)
        device = await hub.registry.devices.add("TV", owner="admin")
        own = topics.STATE.build(device=device.id, skill="X", property="y")
        await hub.outside.publish(own, b"{}", retain=True, confirmed=True)
        await hub.service.remove_device(device.id)
        await settled(hub.outside, {OWN, *theirs})
        await hub.service.purge()
        assert await retained(hub.outside) == theirs


async def test_a_purge_reaches_all_of_a_broker_that_drops_what_does_not_fit_its_queue(tmp_path, hub_key):
    require(find_mosquitto() is not None, HINT)
    with Mosquitto(tmp_path, in_flight=5, queued=20) as short:
        async with open_hub(tmp_path / "hub", short.url, key=hub_key) as hub:
            for number in range(500):
                topic = topics.STATE.build(device="unknown", skill="X", property=f"value{number}")
                await hub.outside.publish(topic, b"{}", retain=True, confirmed=True)
            assert await hub.service.purge() == Purged(501)
            assert await retained(hub.outside) == set()


async def test_after_a_purge_neither_the_goodbye_nor_the_last_will_of_the_hub_comes_back(
    tmp_path, mosquitto, hub_key
):
    async with open_link(LinkSettings(urls=(mosquitto.url,), client_id="looking-on")) as link:
        async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
            await hub.service.purge()
        assert await retained(link) == set()
        async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
            assert await retained(link) == {OWN}
            await hub.service.purge()
            # The connection is cut as by a crash: the broker publishes what will there is.
            intruder = LinkSettings(urls=(mosquitto.url,), client_id="main")
            async with open_link(intruder):
                await eventually(lambda: not hub.link.connected)
                assert await retained(link) == set()


async def test_a_purge_tells_which_devices_are_still_there_and_what_other_brokers_kept(tmp_path, registry):
    async def of_the_home() -> Purged:
        return Purged(2, ("homeassistant/x/config",))

    async with (
        open_own("embedded", tmp_path / "broker", registry, purgers=(of_the_home,)) as hub,
        logged_in(hub, "TV") as tv,
    ):
        await tv.spoke.online(registration("MediaSkill"))
        await eventually(lambda: hub.skills(tv.spoke) == {"MediaSkill"})
        purged = await hub.service.purge()
        assert purged == Purged(5, ("homeassistant/x/config",), ("tv",))


async def test_a_purge_without_a_broker_is_refused_and_the_hub_speaks_on(tmp_path, mosquitto, hub_key):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        mosquitto.kill()
        await eventually(lambda: not hub.link.connected)
        with pytest.raises(Disconnected, match="not connected"):
            await hub.service.purge()
        mosquitto.start()
        await eventually(lambda: hub.outside.connected)
        await settled(hub.outside, {OWN})


# ---- retained messages that are lost


async def test_a_broker_that_lost_all_hears_a_new_session_of_the_hub(tmp_path, mosquitto, hub_key):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        sessions: list[str] = []
        await hub.outside.subscribe(
            OWN, lambda message: sessions.append(json.loads(message.payload)["session"])
        )
        await eventually(lambda: sessions)
        mosquitto.kill()
        mosquitto.start()
        await eventually(lambda: len(set(sessions)) == 2)
        await eventually(lambda: hub.outside.connected)
        await settled(hub.outside, {OWN})
