"""What pages with forms ask for: schemas, sentences, heartbeats, timers, changes of the world."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx

from contracts import topics
from contracts.devices.presence import Heartbeat, State
from hub_registry.storage.tables import now
from tests.hub_agent.home import Home
from tests.hub_agent.skills import LampSkill, LockSkill
from tests.hub_registry.spokes import eventually
from tests.hub_server.test_http_direct_calls import call, post


async def got(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_methods_come_with_their_schemas_and_can_be_few(home: Home) -> None:
    await home.device("Bedroom PC", LampSkill(), LockSkill())
    async with home.client() as client:
        await client.patch("/api/devices/bedroom_pc", json={"area": "Bedroom"})
        found = await got(client, "/api/skills/methods", device="bedroom pc", skill="LampSkill")
        [lamp] = found["skills"]
        assert (lamp["device"], lamp["area"], lamp["unavailable"]) == ("bedroom_pc", "Bedroom", "")
        turn_on = lamp["methods"][0]
        assert turn_on["path"] == "devices.bedroom_pc.LampSkill.turn_on"
        assert turn_on["parameters"]["properties"]["level"] == {"type": "integer", "default": 100}
        assert turn_on["flags"] == ["idempotent"]
        assert turn_on["sentences"]["de"] == ["schalte das licht ein"]
        plain = await got(client, "/api/skills/methods", arguments=0)
        names = {(each["device"], method["name"]) for each in plain["skills"] for method in each["methods"]}
        assert {("bedroom_pc", "status"), ("hub", "timers")} <= names
        assert ("bedroom_pc", "unlock") not in names


async def test_a_sentence_is_tried_and_calls_nothing(home: Home) -> None:
    lamps = [LampSkill(), LampSkill()]
    for name, lamp in zip(("Bedroom PC", "Kitchen Pi"), lamps, strict=True):
        await home.device(name, lamp)
    async with home.client() as client:
        here = await got(client, "/api/skills/sentence", q="Turn on the lamp!", device="kitchen pi")
        assert [each["path"] for each in here["calls"]] == ["devices.kitchen_pi.LampSkill.turn_on"]
        assert here["calls"][0]["flags"] == ["idempotent"]
        either = await got(client, "/api/skills/sentence", q="turn on the lamp")
        assert len(either["calls"]) == 2
        assert "On which device" in either["question"]
        german = await got(client, "/api/skills/sentence", q="schalte das Licht ein", language="de-AT")
        assert len(german["calls"]) == 2
        none = await got(client, "/api/skills/sentence", q="sing to the lamp")
        assert (none["calls"], none["question"]) == ([], None)
        assert "turn on lamp" in none["examples"]
    assert [lamp.level for lamp in lamps] == [0, 0]


async def test_a_device_shows_what_its_heartbeats_say_and_the_load_of_an_hour(home: Home) -> None:
    device = await home.device("Bedroom PC", LampSkill())
    beat = Heartbeat(seq=1, uptime_s=90, mode="alone", load=0.25, memory_mb=80)
    await device.spoke.send(topics.HEARTBEAT.build(device=device.id), beat.model_dump_json().encode())
    async with home.client() as client:

        async def heard() -> Any:
            return (await got(client, "/api/devices/bedroom_pc"))["loads"]

        await eventually(heard)
        [shown] = await got(client, "/api/devices")
        one = await got(client, "/api/devices/Bedroom PC")
        [[at, load, memory]] = one["loads"]
    assert (shown["mode"], shown["load"], shown["memory_mb"], shown["uptime_s"]) == ("alone", 0.25, 80, 90)
    assert shown["loads"] is None
    assert (time.time() - at < 60, load, memory) == (True, 0.25, 80)
    entry = home.hub.registry.directory.get(device.id)
    assert entry is not None
    for _ in range(1_000):
        entry.hear(beat, now())
    assert len(entry.loads) == 1


async def test_a_person_has_their_own_timers_and_a_guest_removes_none(home: Home) -> None:
    guest = await home.hub.registry.accounts.add("Gus", role="guest")
    async with home.client() as client:
        await post(client, call("hub", "WatcherSkill.set_timer", minutes=5, text="tea"))
        [tea] = await got(client, "/api/timers")
        async with home.client(await home.token(guest)) as other:
            assert await got(other, "/api/timers") == []
            assert (await other.delete(f"/api/timers/{tea['id']}")).status_code == 403
        assert (await client.delete("/api/timers/coffee")).status_code == 404
        assert (await client.delete("/api/timers/tea")).json()["id"] == tea["id"]
        assert await got(client, "/api/timers") == []


async def _events(response: httpx.Response) -> AsyncIterator[Any]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


async def test_changes_of_the_world_follow_as_they_happen(home: Home) -> None:
    device = await home.device("Bedroom PC", LampSkill())
    topic = topics.STATE.build(device=device.id, skill="LampSkill", property="power")

    async def power(value: str) -> None:
        await device.spoke.send(topic, State(value=value, at=now()).model_dump_json().encode())

    async with home.client() as client:
        async with client.stream("GET", "/api/world", params={"follow": "true"}) as response:
            events = _events(response)
            first = await anext(events)
            assert {each["kind"] for each in first["things"]} == {"device", "skill"}
            for value in ("on", "off"):
                await power(value)
                [lamp] = (await anext(events))["things"]
                assert (lamp["name"], lamp["state"]) == ("LampSkill power", value)
            await device.spoke.status("offline")
            [gone] = (await anext(events))["things"]
            assert (gone["kind"], gone["state"]) == ("device", "offline")
            await client.delete(f"/api/devices/{device.id}")
            left = {tuple(each) for each in (await anext(events))["gone"]}
            assert ("device", "devices.bedroom_pc") in left
        assert (await client.get("/api/world", params={"follow": "perhaps"})).status_code == 422
