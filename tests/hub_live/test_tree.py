"""The tree of topics as a client watches it: whole, newest, and never more than it reads."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx

from bus.link import LinkSettings
from hub_agent.settings import HomeLinkSettings
from hub_live.topics import Sample
from hub_live.topics.tree import MOST_TOPICS, Tree
from tests.hub_agent.home import Home, linked, open_home
from tests.hub_agent.skills import LampSkill
from tests.mosquitto import Mosquitto

STATE = "devices/nas/state/SystemSkill/disk"


async def events(client: httpx.AsyncClient, **query: Any) -> AsyncGenerator[dict[str, Any], None]:
    async with client.stream("GET", "/api/bus/tree", params=query) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def watch(client: httpx.AsyncClient, topic: str, value: Any, **query: Any) -> dict[str, dict[str, Any]]:
    """Watch until a topic has a value; return all topics by then."""
    seen: dict[str, dict[str, Any]] = {}
    async with aclosing(events(client, **query)) as stream:
        async for event in stream:
            seen |= {each["topic"]: each for each in event.get("topics", ())}
            if topic in seen and seen[topic]["value"] == value:
                return seen
    raise AssertionError("the stream ended")


def sample(topic: str, payload: bytes = b"1") -> Sample:
    return Sample("bus", topic, 1.0, payload)


async def test_each_topic_that_a_person_may_see_comes_with_its_last_message(home: Home) -> None:
    nas = await home.device("NAS", LampSkill())
    await nas.spoke.link.publish(STATE, b'{"value": 93.5}', retain=True, confirmed=True)
    async with home.client() as client:
        seen = await watch(client, STATE, {"value": 93.5})
        assert (seen[STATE]["retained"], seen[STATE]["bytes"], seen[STATE]["cut"]) == (True, 15, False)
        assert set(seen) >= {"devices/nas/status", "devices/nas/skills/LampSkill", "hub/main/status"}
        assert not any("heartbeat" in topic or "/calls/" in topic for topic in seen)
        assert seen["devices/nas/status"]["retained"]
        only = await watch(client, STATE, {"value": 93.5}, filter="devices/+/state/#")
        assert list(only) == [STATE]
        assert (await client.get("/api/bus/tree?filter=a/%23/b")).status_code == 422
        assert (await client.get("/api/bus/tree?filter=users/other/%23")).status_code == 403
        assert (await client.get("/api/bus/tree?link=home")).status_code == 404
    async with home.client(nas.token) as device:
        assert (await device.get("/api/bus/tree")).status_code == 403


async def test_the_broker_of_the_house_has_a_tree_too(tmp_path: Path, mosquitto: Mosquitto) -> None:
    async with linked(LinkSettings(urls=(mosquitto.url,), client_id="lamp")) as link:
        await link.publish("zigbee2mqtt/lamp", b"x" * 5_000, retain=True, confirmed=True)
    async with (
        open_home(tmp_path / "home", home_link=HomeLinkSettings(url=mosquitto.url)) as home,
        home.client() as client,
    ):
        seen = await watch(client, "zigbee2mqtt/lamp", "x" * 2_000 + "…", link="home")
    lamp = seen["zigbee2mqtt/lamp"]
    assert (lamp["cut"], lamp["bytes"], lamp["retained"]) == (True, 5_000, True)


def test_who_reads_slowly_gets_the_newest_of_each_topic_and_nothing_piles_up(home: Home) -> None:
    tree = Tree(home.hub.live.feed, "bus")
    for number in range(10_000):
        tree.put(sample("busy", b"%d" % number))
    tree.put(sample("quiet"))
    (busy, quiet), were_known = tree.take()
    assert (busy.value, busy.messages, quiet.value) == (9_999, 10_000, 1)
    assert not were_known
    assert not tree.changed.is_set()
    tree.put(sample("busy"))
    assert [each.topic for each in tree.take()[0]] == ["busy"]


def test_no_topic_starves_and_there_is_an_end_to_how_many_are_watched(home: Home) -> None:
    tree = Tree(home.hub.live.feed, "bus")
    for number in range(MOST_TOPICS + 10):
        tree.put(sample(f"t/{number}"))
    assert tree.is_full
    seen: list[str] = []
    while tree.changed.is_set():
        tree.put(sample("t/0"))  # changes all the time
        taken = [each.topic for each in tree.take()[0]]
        assert 0 < len(taken) <= 200
        seen += taken
        if len(set(seen)) == MOST_TOPICS:
            break
    assert len(set(seen)) == MOST_TOPICS
    assert len(seen) < MOST_TOPICS + 30


def test_who_has_seen_all_that_is_watched_is_told_once_that_there_is_more(home: Home) -> None:
    tree = Tree(home.hub.live.feed, "bus")
    for number in range(MOST_TOPICS):
        tree.put(sample(f"t/{number}"))
    while tree.changed.is_set():
        tree.take()
    for topic, is_news in (("one", True), ("another", False)):
        tree.put(sample(topic))
        assert (tree.is_full, tree.changed.is_set()) == (True, is_news)
        tree.take()
