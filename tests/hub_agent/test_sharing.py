"""Whose devices are whose: what is private to one person exists for nobody else."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from agent_core.skills.skill import Skill, skill_method
from contracts import topics
from contracts.devices.presence import State
from hub_registry.access.accounts import User
from hub_registry.storage.tables import now
from tests.hub_agent.home import Device, Home
from tests.hub_agent.skills import AnywhereSkill, LampSkill
from tests.hub_registry.spokes import eventually
from tests.model_server import Says, ScriptedModel, calls

SECRETS = ("diary", "laptop")
"""Words that are in everything of the private device, and nowhere else."""


class DiarySkill(Skill):
    """A diary."""

    def __init__(self) -> None:
        self.read = 0

    @skill_method(read_only=True, sentences={"en": ["read my diary", "what did I write"]})
    def entry(self) -> str:
        """Read the diary."""
        self.read += 1
        return "Dear diary"


@dataclass
class Family:
    """Anna with a laptop of her own, and two people who have nothing to do with it; a lamp is everybody's."""

    home: Home
    anna: User
    laptop: Device
    diary: DiarySkill
    lamp: LampSkill
    log: list[str]
    clients: dict[str, httpx.AsyncClient]

    async def call(self, who: str, device: str, path: str, **kwargs: Any) -> tuple[int, Any]:
        """Call a method as one of them."""
        skill, method = path.split(".")
        body = {"device": device, "skill": skill, "method": method, "kwargs": kwargs}
        answer = await self.clients[who].post("/api/skills/call", json=body)
        return answer.status_code, answer.json()

    async def text(self, who: str, path: str, /, **query: str) -> str:
        """Return all that one of them is shown, in small letters."""
        answer = await self.clients[who].get(path, params=query)
        return f"{answer.status_code} {answer.text}".lower()


@pytest.fixture
async def family(thinking: Home) -> AsyncIterator[Family]:
    """People, devices, and a client with a token for each of them."""
    home, log = thinking, list[str]()
    accounts = home.hub.registry.accounts
    people = {
        "anna": await accounts.add("Anna", role="member"),
        "ben": await accounts.add("Ben", role="member"),
        "guest": await accounts.add("Guest", role="guest"),
        "admin": home.hub.registry.admin,
    }
    diary, lamp = DiarySkill(), LampSkill()
    laptop = await home.device("Laptop", diary, LampSkill(), AnywhereSkill(log, "laptop"))
    async with home.client() as admin:
        change = {"owner": "anna", "aliases": ["my laptop"], "area": "Laptop corner"}
        assert (await admin.patch(f"/api/devices/{laptop.id}", json=change)).status_code == 200
    await home.device("Hall PC", lamp, AnywhereSkill(log, "hall"), shared=True)
    clients = {name: home.client(await home.token(user)) for name, user in people.items()}
    yield Family(home, people["anna"], laptop, diary, lamp, log, clients)
    await asyncio.gather(*(client.aclose() for client in clients.values()))


PAGES: list[tuple[str, dict[str, str]]] = [
    ("/api/skills", {}),
    ("/api/skills/search", {"q": "read the diary on the laptop"}),
    ("/api/skills/search", {}),
    ("/api/skills/methods", {}),
    ("/api/skills/sentence", {"q": "read my diary"}),
    ("/api/skills/sentence", {"q": "burn my diary"}),
    ("/api/skills/describe", {"path": "LampSkill"}),
    ("/api/prompt", {"message": "what is on the laptop?"}),
    ("/api/world", {}),
    ("/api/nodes", {}),
    ("/api/bus/latest", {"topic": "devices/#"}),
    ("/api/bus/latest", {"topic": "#"}),
    ("/api/devices", {}),
]


async def test_nobody_else_is_shown_a_private_device_in_any_list(family: Family) -> None:
    await publish_state(family)
    for path, query in PAGES:
        for who in ("ben", "guest"):
            shown = await family.text(who, path, **query)
            assert shown.startswith("200"), (path, shown)
            assert not [word for word in SECRETS if word in shown.replace(query.get("q", "-"), "")], (
                who,
                path,
            )
    # Anna has it in each of those that list something.
    for path, query in PAGES:
        if path not in ("/api/nodes", "/api/skills/describe"):
            shown = await family.text("anna", path, **query)
            assert any(word in shown for word in SECRETS), path
    # An admin manages all devices, and has no more of other people's than they have.
    assert "laptop" in await family.text("admin", "/api/devices")
    assert "laptop" not in await family.text("admin", "/api/skills")
    assert "laptop" not in await family.text("admin", "/api/world")


async def test_who_asks_for_a_private_device_by_name_learns_nothing_of_it(family: Family) -> None:
    """The answers are those for a device that does not exist, word by word."""
    for name in ("laptop", "Laptop", "my laptop"):
        unknown = name.replace("p", "q").replace("L", "l")
        for who in ("ben", "guest"):
            ask = family.clients[who]

            async def told(path: str, called: str, ask: httpx.AsyncClient = ask) -> tuple[int, str]:
                answer = await ask.get(path.format(called))
                return answer.status_code, answer.text.replace(called, "NAME")

            for path in ("/api/devices/{}", "/api/nodes?device={}", "/api/skills/methods?device={}"):
                assert await told(path, name) == await told(path, unknown), (path, who)
            described = "/api/skills/describe?path=devices.{}.DiarySkill.entry"
            if " " not in name:
                assert (await told(described, name))[0] == 404
            status, body = await family.call(who, name, "DiarySkill.entry")
            absent = await family.call(who, unknown, "DiarySkill.entry")
            assert (status, body["code"]) == (404, "unknown_skill")
            assert json.dumps(body).replace(name, "NAME") == json.dumps(absent[1]).replace(unknown, "NAME")
    change = {"shared": True}
    for who, status in (("ben", 404), ("guest", 404)):
        assert (await family.clients[who].patch("/api/devices/laptop", json=change)).status_code == status
    assert (await family.call("anna", "laptop", "DiarySkill.entry"))[0] == 200
    assert (await family.call("admin", "laptop", "DiarySkill.entry"))[0] == 404
    assert family.diary.read == 1


async def test_no_way_of_calling_leads_to_a_private_device(family: Family, model: ScriptedModel) -> None:
    script: list[Says] = []
    model.script = script
    for who in ("ben", "admin"):
        client = family.clients[who]
        code = "devices.laptop.DiarySkill.entry()"
        ran = (await client.post("/api/exec", json={"code": code})).json()
        assert ran["status"] == "error"
        assert "no device 'laptop'" in ran["error"], ran
        said = (await client.post("/api/exec", json={"code": code, "device": "laptop"})).json()
        assert said["code"] == "unknown_skill"
        # A sentence that only the laptop knows goes to the model, and its program finds nothing.
        script += [
            calls("search_skills", query="diary"),
            calls("describe_function", path="devices.laptop.DiarySkill.entry"),
            calls("python_exec", code=code),
            Says(text="There is no diary."),
        ]
        answered = (await client.post("/api/chat", json={"message": "read my diary"})).json()
        assert answered["mode"] == "online", answered
        results = model.requests[-1].results
        assert "no device 'laptop'" in results[-1]
        assert '"results": []' in results[0] or "DiarySkill" not in results[0], results[0]
        assert (await client.post("/api/chat", json={"message": "hi", "device": "laptop"})).status_code == 404
        # What devices answer to a query is asked with the same rights.
        query = {"filter": "devices/+/calls/DiarySkill/entry"}
        assert (await family.call(who, "hub", "BusSkill.query", **query))[1]["result"] == []
        watcher = {
            "name": f"spy-{who}",
            "instruction": "read it",
            "topics": ["devices/hall_pc/state/LampSkill/level"],
            "predicate": "level > 1",
            "allow": [{"path": "devices.laptop.DiarySkill.entry"}],
        }
        assert (await client.post("/api/watchers", json=watcher)).status_code == 404
    assert family.diary.read == 0
    # The same lamp is on both devices; only one of them is there for Ben, so nobody is asked which is meant.
    said = (await family.clients["ben"].post("/api/chat", json={"message": "turn on the lamp"})).json()
    assert (said["mode"], family.lamp.level) == ("sentence", 100)


async def test_what_any_device_may_do_is_done_by_one_that_the_person_has(family: Family) -> None:
    laptop = family.home.hub.registry.directory.resolve("laptop")
    async with family.home.client() as admin:
        order = {"devices": ["laptop", "hall_pc"]}
        assert (await admin.put("/api/skills/AnywhereSkill/providers", json=order)).status_code == 200
    assert (await family.call("ben", "hub", "AnywhereSkill.work", task="dishes"))[0] == 200
    assert (await family.call("anna", "hub", "AnywhereSkill.work", task="dishes"))[0] == 200
    assert family.log == ["hall: dishes", "laptop: dishes"]
    # Where only the laptop is left, nobody else has such a skill any more.
    await family.home.hub.registry.revoke_device("hall_pc")
    assert laptop.connected
    status, body = await family.call("ben", "hub", "AnywhereSkill.work", task="dishes")
    assert (status, body["code"]) == (404, "unknown_skill")
    assert "laptop" not in json.dumps(body)


async def publish_state(family: Family) -> str:
    """Publish a state of the laptop, and return its topic once the hub has it."""
    topic = topics.STATE.build(device=family.laptop.id, skill="DiarySkill", property="pages")
    payload = State(value=7, at=now()).model_dump_json().encode()
    await family.laptop.spoke.send(topic, payload)
    feed = family.home.hub.live.feed
    await eventually(lambda: feed.latest(topic) is not None)
    return topic


async def test_states_of_a_private_device_are_read_by_its_owner_alone(family: Family) -> None:
    topic = await publish_state(family)
    for path in ("/api/bus/latest", "/api/bus/history"):
        assert '"value":7' in await family.text("anna", path, topic=topic)
        for who in ("ben", "guest", "admin"):
            answer = await family.clients[who].get(path, params={"topic": topic})
            assert (answer.status_code, answer.json()["samples"]) == (200, []), (path, who)
    for who in ("ben", "guest"):
        for method, named in (
            ("latest", {"topic": topic}),
            ("history", {"topic": topic}),
            ("query", {"filter": topic}),
        ):
            _, answer = await family.call(who, "hub", f"BusSkill.{method}", **named)
            assert "7" not in json.dumps(answer["result"]).replace(topic, ""), method
        _, world = await family.call(who, "hub", "WorldSkill.get_world")
        assert not [word for word in SECRETS if word in json.dumps(world).lower()]


async def test_a_device_that_is_shared_is_everybodys_and_is_nobodys_again_at_once(family: Family) -> None:
    topic = await publish_state(family)
    seen: list[Any] = []
    anna, ben = family.clients["anna"], family.clients["ben"]
    assert (await anna.patch("/api/devices/laptop", json={"name": "Mine"})).status_code == 403
    shared = await anna.patch("/api/devices/laptop", json={"shared": True})
    assert (shared.status_code, shared.json()["shared"], shared.json()["owner"]) == (200, True, "anna")
    assert (await family.call("ben", "laptop", "DiarySkill.entry"))[0] == 200
    assert "laptop" in await family.text("ben", "/api/skills/search", q="diary")
    assert (await ben.patch("/api/devices/laptop", json={"shared": False})).status_code == 403
    assert (await family.call("guest", "laptop", "LampSkill.turn_on"))[1]["code"] == "refused"
    query = {"topic": topic, "follow": "true"}
    async with ben.stream("GET", "/api/bus/latest", params=query) as stream:
        lines = (json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: "))
        seen.append((await anext(lines))["value"]["value"])
        await publish_state(family)
        seen.append((await anext(lines))["value"]["value"])
        assert (await anna.patch("/api/devices/laptop", json={"shared": False})).status_code == 200
        # A stream that is open, and a search at once after it, show nothing of it any more.
        assert "laptop" not in await family.text("ben", "/api/skills/search", q="diary")
        await publish_state(family)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                seen.append(await anext(lines))
    assert seen == [7, 7]
    assert (await family.call("ben", "laptop", "DiarySkill.entry"))[0] == 404


async def test_a_device_acts_for_its_present_owner(family: Family) -> None:
    """Its token says who owned it when it joined; who owns it now is what counts."""
    async with family.home.client(family.laptop.token) as device:
        said = (await device.post("/api/chat", json={"message": "read my diary"})).json()
        assert (said["mode"], said["answer"]) == ("sentence", "Dear diary")
        async with family.home.client() as admin:
            await admin.patch("/api/devices/laptop", json={"owner": "ben"})
        assert (await device.post("/api/chat", json={"message": "read my diary"})).status_code == 200
    assert family.diary.read == 2
    assert (await family.call("ben", "laptop", "DiarySkill.entry"))[0] == 200
    assert (await family.call("anna", "laptop", "DiarySkill.entry"))[0] == 404


async def test_the_owner_of_a_device_says_what_it_may_do_and_that_counts_at_once(family: Family) -> None:
    home, path = family.home, "/api/devices/laptop"
    lamp = {"device": "hall_pc", "skill": "LampSkill", "method": "turn_on"}
    narrow = await home.token(family.anna, scopes=("chat", "confirm"))
    async with home.client(family.laptop.token) as device, home.client(narrow) as chatting:
        assert (await device.post("/api/skills/call", json=lamp)).status_code == 403
        assert (await family.clients["guest"].patch(path, json={"scopes": []})).status_code == 404
        for scopes in (["call"], ["admin"], ["chat", "chatt"]):
            refused = await chatting.patch(path, json={"scopes": scopes})
            assert refused.status_code in (403, 422), refused.text
        changed = await family.clients["anna"].patch(path, json={"scopes": ["call", "chat"]})
        assert (changed.status_code, changed.json()["scopes"]) == (200, ["chat", "call"])
        assert (await device.post("/api/skills/call", json=lamp)).status_code == 200
        renewed = (await device.post("/api/tokens/renew")).json()["token"]

        assert (await chatting.patch(path, json={"scopes": []})).json()["scopes"] == []
        for token in (family.laptop.token, renewed):
            async with home.client(token) as again:
                assert (await again.post("/api/skills/call", json=lamp)).status_code == 403
                assert (await again.post("/api/chat", json={"message": "read my diary"})).status_code == 403
    on_bus = home.hub.registry.authority.on_bus("device", "laptop")
    assert on_bus is not None
    assert on_bus.scopes == {"register"}
    async with home.client() as admin:
        log = (await admin.get("/api/audit", params={"q": "set_scopes"})).json()["entries"]
    assert [each["method"] for each in log] == ["set_scopes laptop ()", "set_scopes laptop (chat, call)"]


async def test_what_an_admin_shows_to_home_assistant_of_a_private_device_no_other_admin_sees(
    home: Home,
) -> None:
    laptop = await home.device("Laptop", DiarySkill())
    other = await home.token(await home.hub.registry.accounts.add("Ben", role="admin"))
    async with home.client() as own, home.client(other) as bens:
        shown = (await own.post("/api/home-assistant/expose", json={"path": "laptop"})).json()
        assert [each["path"] for each in shown["decisions"]] == [laptop.id]
        assert (await bens.get("/api/home-assistant")).json()["decisions"] == []
        hidden = await bens.post("/api/home-assistant/hide", json={"path": laptop.id})
        assert hidden.status_code == 404
