"""What is heard on the bus and on the home broker."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from bus.link import Link, LinkSettings, open_link
from contracts.access import Principal
from contracts.errors import InvalidTopic, NotFound
from contracts.wire import Json
from hub_live import limits
from hub_live.topics import Feed, Gap, LastHeard, Sample, field, open_feed
from hub_live.topics.samples import SampleMemory
from hub_registry.storage.store import open_store
from tests.brokers import Bus
from tests.hub_agent.home import linked, wait_for
from tests.hub_registry.spokes import eventually
from tests.mosquitto import Mosquitto

DISK = "devices/nas/state/SystemSkill/disk"
MEMORY = "devices/nas/state/SystemSkill/memory"


@pytest.fixture
async def hub(any_bus: Bus) -> AsyncIterator[Link]:
    """The hub's link to each kind of bus."""
    async with linked(await any_bus.link_settings(Principal("hub", "main"))) as link:
        yield link


@pytest.fixture
async def nas(any_bus: Bus) -> AsyncIterator[Link]:
    """A device on the same bus."""
    async with linked(await any_bus.link_settings(Principal("device", "nas"))) as link:
        yield link


@pytest.fixture
async def heard(tmp_path: Path) -> AsyncIterator[LastHeard]:
    async with open_store(tmp_path / "hub.db") as store:
        yield LastHeard(store, instance="main")


@pytest.fixture
async def feed(hub: Link, heard: LastHeard) -> AsyncIterator[Feed]:
    async with open_feed(hub, None, heard) as opened:
        yield opened


async def test_followers_share_a_topic_and_each_hears_each_message_once(feed: Feed, nas: Link) -> None:
    heard: dict[str, list[Sample]] = {"all": [], "states": [], "disk": [], "nas": []}
    with (
        feed.follow("#", heard["all"].append),
        feed.follow(DISK, heard["disk"].append),
        feed.follow("devices/+/state/SystemSkill/+", heard["states"].append),
        feed.follow("devices/nas/#", heard["nas"].append, sees=lambda topic: topic == DISK),
    ):
        await feed.settled()
        for value in (b"1", b"1", b"2"):
            await nas.publish(DISK, value, qos=0)
        await nas.publish(MEMORY, b"3", qos=0)
        await eventually(lambda: any(sample.topic == MEMORY for sample in heard["all"]))
    assert [sample.value for sample in heard["disk"]] == [1, 1, 2]
    assert [sample.value for sample in heard["nas"]] == [1, 1, 2]
    assert [sample.value for sample in heard["states"]] == [1, 1, 2, 3]
    assert [sample.value for sample in heard["all"]] == [1, 1, 2, 3]


async def test_filters_that_overlap_in_part_give_each_message_once(
    any_bus: Bus, feed: Feed, nas: Link
) -> None:
    if any_bus.kind == "nats":
        pytest.skip("NATS delivers a message once for each filter")
    heard: list[Sample] = []
    with (
        feed.follow("devices/nas/#", heard.append),
        feed.follow("devices/+/state/+/disk", heard.append),
    ):
        await feed.settled()
        for value in (b"1", b"1", b"2"):
            await nas.publish(DISK, value, qos=0)
        await eventually(lambda: heard and heard[-1].value == 2)
        assert [sample.value for sample in feed.history(DISK)] == [1, 1, 2]
    assert [sample.value for sample in heard] == [1, 1, 1, 1, 2, 2]


async def test_each_of_many_followers_has_a_topic_of_its_own(feed: Feed, nas: Link) -> None:
    heard: list[Sample] = []
    with ExitStack() as followers:
        for number in range(300):
            followers.enter_context(feed.follow(f"devices/nas/state/Disks/d{number}", heard.append))
        await feed.settled()
        await nas.publish("devices/nas/state/Disks/d299", b"1")
        await eventually(lambda: heard)


async def test_what_no_follower_may_see_is_not_kept(feed: Feed, nas: Link) -> None:
    heard: list[Sample] = []
    with feed.follow("devices/nas/#", heard.append, sees=lambda topic: topic == DISK):
        await feed.settled()
        await nas.publish(MEMORY, b"1", qos=0)
        await nas.publish(DISK, b"2", qos=0)
        await eventually(lambda: heard)
        assert [sample.topic for sample in feed.known("devices/#")] == [DISK]


async def test_the_ring_has_what_was_heard(feed: Feed, nas: Link) -> None:
    last = asyncio.Event()
    with feed.follow(DISK, lambda sample: last.set() if sample.value == 9 else None):
        await feed.settled()
        assert feed.latest(DISK) is None
        for value in range(10):
            await nas.publish(DISK, str(value).encode())
        await wait_for(last)
        history = feed.history(DISK)
        assert [sample.value for sample in history] == list(range(10))
        assert feed.latest(DISK) is history[-1]
        assert feed.history(DISK, since=history[4].at)[0].at >= history[4].at
        assert feed.known("devices/nas/#") == [history[-1]]
    # What nobody follows any more may be out of date.
    await feed.settled()
    assert feed.latest(DISK) is None


async def test_a_topic_that_is_asked_for_is_known_from_what_the_broker_retains(feed: Feed, nas: Link) -> None:
    await nas.publish(DISK, b'{"value": 93.5}', retain=True, confirmed=True)
    # A busy broker may need longer than is waited for.
    await eventually(partial(feed.fetch, DISK))
    (found,) = await feed.fetch(DISK)
    assert (found.value, found.retained) == ({"value": 93.5}, True)
    await nas.publish(DISK, b'{"value": 94}', retain=True)
    await eventually(lambda: (now := feed.latest(DISK)) and field(now.value, "value") == 94)
    assert await feed.fetch("devices/nas/state/+/memory") == []


async def test_the_broker_holds_what_a_slow_follower_has_no_time_for(feed: Feed, nas: Link) -> None:
    heard: list[Json] = []

    def take(sample: Sample) -> None:
        time.sleep(0.0002)
        heard.append(sample.value)

    with feed.follow(DISK, take):
        await feed.settled()
        for value in range(2_000):
            await nas.publish(DISK, str(value).encode(), qos=0)
        await eventually(lambda: heard and heard[-1] == 1_999)
    assert heard == list(range(2_000))


async def test_a_filter_that_the_broker_refuses_is_known_as_such(feed: Feed) -> None:
    with feed.follow("elsewhere/#", print), feed.follow(DISK, print):
        await feed.settled()
        assert "elsewhere" in (feed.refusal("elsewhere/here") or "")
        assert feed.refusal(DISK) is None


async def test_a_follower_that_fails_keeps_nothing_from_the_others(feed: Feed, nas: Link) -> None:
    heard: list[Sample] = []

    def fail(_: Sample) -> None:
        raise RuntimeError("on purpose")

    with feed.follow(DISK, fail), feed.follow(DISK, heard.append):
        await feed.settled()
        await nas.publish(DISK, b"1")
        await eventually(lambda: heard)


async def test_a_lost_connection_is_a_gap_that_is_reported_when_it_begins_and_when_it_ends(
    mosquitto: Mosquitto, heard: LastHeard
) -> None:
    gaps: list[Gap] = []
    samples: list[Sample] = []
    settings = LinkSettings(urls=(mosquitto.url,), client_id="hub", backoff_s=0.02, backoff_max_s=0.1)
    async with linked(settings) as link, open_feed(link, None, heard) as feed:
        feed.on_gap(gaps.append)
        with feed.follow("devices/#", samples.append):
            await feed.settled()
            mosquitto.stop()
            await eventually(lambda: gaps)
            assert gaps[0].until is None
            assert feed.gaps() == gaps
            mosquitto.start()
            await eventually(lambda: len(gaps) == 2)
            await link.publish(DISK, b"1")
            await eventually(lambda: samples)
    assert gaps[1].since == gaps[0].since
    assert gaps[1].until is not None
    assert gaps[1].until > gaps[1].since
    assert feed.gaps() == gaps[1:]
    assert feed.gaps(since=gaps[1].until + 1) == []


async def test_the_time_in_which_the_hub_did_not_run_is_a_gap(mosquitto: Mosquitto, heard: LastHeard) -> None:
    settings = LinkSettings(urls=(mosquitto.url,), client_id="hub")
    begin = time.time()
    async with linked(settings) as link, open_feed(link, None, heard) as feed:
        assert feed.gaps() == []
    end = time.time()
    async with linked(settings) as link, open_feed(link, None, heard) as feed:
        (gap,) = feed.gaps()
        assert begin <= gap.since <= end
        assert gap.until is not None
        assert gap.until >= end
    mosquitto.stop()
    async with open_link(settings, wait_s=0) as link, open_feed(link, None, heard) as feed:
        (gap,) = feed.gaps()
        assert gap.since >= end
        assert gap.until is None


async def test_the_home_broker_is_a_link_of_its_own_and_may_be_missing(feed: Feed) -> None:
    with pytest.raises(NotFound, match="no home broker"), feed.follow("zigbee2mqtt/#", print, link="home"):
        pass
    for wrong in ("", "a/#/b", "a+/b", "a\0b", "\ud800", "a" * 70_000):
        with pytest.raises(InvalidTopic), feed.follow(wrong, print):
            pass
    for wrong in ("a/+", "#", ""):
        with pytest.raises(InvalidTopic):
            await feed.publish(wrong, 1)


def test_full_memory_makes_room_for_many_messages_at_once() -> None:
    memory = SampleMemory(max_bytes=1_000_000)
    rings = [memory.make("home", f"t/{number}") for number in range(500)]
    made = 0
    for number in range(10_000):
        before = memory.size
        memory.add(rings[number % 500], Sample("home", "t", number, b"1"))
        made += memory.size < before
    assert 0 < made < 100, "with many topics it takes long each time"
    assert min(len(ring.samples) for ring in rings) > 1


def test_memory_is_bounded_over_all_topics_and_a_quiet_one_keeps_its_last_value() -> None:
    memory = SampleMemory(max_bytes=100_000)
    quiet = memory.make("bus", "quiet")
    memory.add(quiet, Sample("bus", "quiet", 0, b"1", retained=True))
    busy = memory.make("bus", "busy")
    for at in range(10_000):
        memory.add(busy, Sample("bus", "busy", at, b"x" * 50))
        assert memory.size <= 100_000
    assert len(quiet.samples) == 1
    assert 100 < len(busy.samples) < 400
    assert busy.samples[-1].at == 9_999
    # A topic for each message: the oldest of these go.
    for at in range(1_000):
        memory.add(memory.make("home", f"flood/{at}"), Sample("home", f"flood/{at}", 20_000 + at, b"1"))
    assert memory.size <= 100_000
    assert memory.get("home", "flood/999") is not None
    assert memory.get("home", "flood/0") is None
    assert memory.get("bus", "quiet") is quiet


def test_a_topic_keeps_as_many_messages_as_one_answer_lists() -> None:
    memory = SampleMemory(limits.FEED_BYTES)
    busy = memory.make("bus", "busy")
    sizes = set[int]()
    for at in range(limits.MOST_SAMPLES + 10):
        memory.add(busy, Sample("bus", "busy", at, b"1"))
        sizes.add(memory.size)
    assert busy.samples[0].at == 10
    assert len(sizes) == len(busy.samples) == limits.MOST_SAMPLES


def test_fields_of_decoded_payloads() -> None:
    value = {"state": {"temperature": 21.5, "lamps": [{"on": True}]}, "a.b": 1, "null": None}
    assert field(value, "state.temperature") == 21.5
    assert field(value, "state.lamps.0.on") is True
    assert field(value, "a.b") == 1
    assert field(value, None) is value
    for missing in ("nothing", "state.nothing", "state.lamps.7", "state.temperature.x", "state.lamps.x", "."):
        assert field(value, missing) is None
