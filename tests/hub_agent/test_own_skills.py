"""Skills of the hub itself: found, called and checked like those of devices, and run in its process."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlmodel import col, select

from agent_core.sentences.templates import sentence_problems
from agent_core.skills.loading.exposure import expose
from agent_core.skills.skill import skill_method
from hub_agent.calls.own_skills import Asking, HubSkill
from hub_registry.access.token_rows import TokenRequest
from hub_registry.storage.tables import AuditRow
from hub_server.resources import RESOURCES
from identity.keys import KeyPair
from tests.hub_agent.home import Home, says, wait_for
from tests.hub_agent.skills import FeedSkill
from tests.hub_registry.spokes import eventually, registration
from tests.hub_server.test_http_direct_calls import call, post
from tests.model_server import Says, ScriptedModel, calls


class DeviceSkill(HubSkill):
    """Notes about the devices of this home."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.asked: list[Asking] = []
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()

    @skill_method(read_only=True, sentences={"en": ["which device notes are there"]})
    async def list_notes(self) -> list[str]:
        """List the notes about devices."""
        self.asked.append(self.asking)
        return self.notes

    @skill_method()
    async def add_note(self, text: str) -> str:
        """Add a note about a device."""
        self.asked.append(self.asking)
        if self.asking.untrusted:
            self.asking.need_confirmation(f"{text!r} would be noted")
        self.notes.append(text)
        return f"{len(self.notes)} notes"

    @skill_method(confirm=True)
    async def clear_notes(self) -> None:
        """Forget all notes about devices."""
        self.notes.clear()

    @skill_method(timeout_s=0.2)
    async def wait(self, forever: bool = True) -> None:
        """Wait for a note."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


@pytest.fixture
async def noting(home: Home) -> AsyncIterator[DeviceSkill]:
    skill = DeviceSkill()
    async with home.hub.own.offering([skill]):
        yield skill


async def test_it_is_found_described_and_called_like_the_skill_of_a_device(
    home: Home, noting: DeviceSkill
) -> None:
    # Under load the index may be later than the first search.
    await eventually(lambda: home.hub.registry.search.sync() is None)
    async with home.client() as client:
        found = (await client.get("/api/skills/search", params={"q": "notes about a device"})).json()
        [added] = [each for each in found["results"] if each["path"].endswith(".add_note")]
        assert (added["path"], added["devices"]) == ("devices.hub.DeviceSkill.add_note", ["hub"])
        text = (await client.get("/api/skills/describe", params={"path": added["path"]})).json()["text"]
        assert "def add_note(text: str) -> str" in text
        assert "# devices: hub" in text
        assert await post(client, call("hub", "DeviceSkill.add_note", text="old")) == (200, "1 notes")
        assert await post(client, call("hub", "DeviceSkill.list_notes")) == (200, ["old"])
        status, error = await post(client, call("hub", "DeviceSkill.add_notes"))
        assert (status, error["code"]) == (404, "unknown_skill")
        assert "add_note" in error["hint"]
        spoken = (await client.post("/api/chat", json={"message": "which device notes are there"})).json()
        assert spoken["mode"] == "sentence"
    assert [entry.key for entry in home.hub.registry.directory.entries()] == []


async def test_rights_hold_and_every_call_is_in_the_audit(home: Home, noting: DeviceSkill) -> None:
    guest = await home.hub.registry.accounts.add("Guest", role="guest")
    async with home.client(await home.token(guest)) as client:
        assert (await post(client, call("hub", "DeviceSkill.list_notes")))[0] == 200
        status, error = await post(client, call("hub", "DeviceSkill.add_note", text="x"))
        assert (status, error["code"]) == (403, "refused")
    async with home.client() as client:
        body = call("hub", "DeviceSkill.clear_notes")
        noting.notes.append("kept until a person agrees")
        status, error = await post(client, body)
        assert (status, error["code"], noting.notes != []) == (409, "needs_confirmation", True)
        assert (await post(client, {**body, "confirmation": error["confirmation"]}))[0] == 200
        status, error = await post(client, call("hub", "DeviceSkill.wait"))
        assert (status, error["code"]) == (504, "timeout")
    assert noting.notes == []
    assert noting.stopped.is_set()
    assert noting.asked[0].user == guest

    async def outcomes() -> list[tuple[str, str, str]]:
        chosen = select(AuditRow).order_by(col(AuditRow.id))
        rows = await home.hub.registry.store.read(lambda session: session.exec(chosen).all())
        return [(row.device, row.method, row.outcome) for row in rows]

    expected = [
        ("hub", "list_notes", "result"),
        ("hub", "add_note", "refused"),
        ("hub", "clear_notes", "needs_confirmation"),
        ("hub", "clear_notes", "result"),
        ("hub", "wait", "timeout"),
    ]

    async def is_written() -> bool:
        return await outcomes() == expected

    await eventually(is_written)


async def test_a_client_that_leaves_stops_the_call(home: Home, noting: DeviceSkill) -> None:
    async with home.client() as client, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(client.post("/api/skills/call", json=call("hub", "DeviceSkill.wait")))
        await wait_for(noting.begun)
        waiting.cancel()
    await wait_for(noting.stopped)


async def test_a_turn_tells_what_it_has_read_and_asks_where_the_skill_wants_it(
    thinking: Home, model: ScriptedModel
) -> None:
    await thinking.device("Bedroom PC", FeedSkill())
    skill = DeviceSkill()
    read = "print(devices.bedroom_pc.FeedSkill.news())"
    model.script = [
        calls("python_exec", code="devices.hub.DeviceSkill.add_note('mine')"),
        calls("python_exec", code=f"{read}\ndevices.hub.DeviceSkill.add_note('theirs')"),
        Says(text="done"),
    ]
    async with thinking.hub.own.offering([skill]), thinking.client() as client:
        headers = {"X-Strawberry-Conversation": "c1"}
        answer = await client.post("/v1/chat/completions", json=says("note it"), headers=headers)
        assert answer.status_code == 200
    assert skill.notes == ["mine"]
    assert [(each.untrusted, each.confirmed) for each in skill.asked] == [(False, False), (True, False)]
    assert {each.actor.turn for each in skill.asked} == {answer.headers["x-strawberry-turn"]}


async def test_every_sentence_of_the_hubs_own_skills_can_be_used(home: Home) -> None:
    skills = [expose(skill)[0] for skill in home.hub.live.skills]
    methods = [method.contract for skill in skills for method in skill.methods.values()]
    assert len([method for method in methods if method.sentences]) >= 5
    assert [problem for method in methods for problem in sentence_problems(method)] == []


async def test_each_operation_that_is_marked_for_a_skill_is_a_method_of_one(home: Home) -> None:
    marked = {each.skill for resource in RESOURCES for each in resource.operations if each.skill}
    methods = {name for skill in home.hub.live.skills for name in expose(skill)[0].methods}
    assert marked
    assert marked <= methods


async def test_a_method_made_of_an_operation_keeps_its_right_and_answers_without_phrases(home: Home) -> None:
    registry, key = home.hub.registry, KeyPair.generate()
    pi = await home.device("Pi")
    home.keys[key.kid] = key
    asked = TokenRequest(
        kind="device", subject=pi.id, owner="admin", scopes=("call",), lifetime_s=600, key=key.public
    )
    token = await registry.authority.issue(asked)
    guest = await home.token(await registry.accounts.add("Guest", role="guest"))
    wanted = {
        "name": "disk",
        "topics": ["devices/pi/state/S/disk"],
        "instruction": "x",
        "predicate": "disk > 9",
    }
    listing, pausing = call("hub", "WatcherSkill.list"), call("hub", "WatcherSkill.pause", name="disk")
    reading = call("hub", "BusSkill.query", filter="devices/+/state/#")
    async with home.client() as owner, home.client(token) as device, home.client(guest) as visitor:
        assert (await owner.post("/api/watchers", json=wanted)).status_code == 201
        for client, body in ((device, listing), (device, pausing), (device, reading), (visitor, pausing)):
            status, error = await post(client, body)
            assert (status, error["code"]) == (403, "refused")
        assert await post(visitor, listing) == (200, [])
        [shown] = (await owner.get("/api/watchers")).json()
        [read] = (await post(owner, listing))[1]
        assert shown.pop("phrases")["reason"]["template"] == "there is no value of {name} yet"
        assert read == shown
        assert (await post(owner, pausing))[1]["state"] == "paused"


async def test_its_name_is_refused_to_a_device(home: Home) -> None:
    device = await home.device("Bedroom PC")
    await device.spoke.online(registration("DeviceSkill", "add_note"))
    entry = home.hub.registry.directory.get(device.id)
    await eventually(lambda: entry.problems)
    assert "reserved for the hub's own skill" in entry.problems[0].message
    assert entry.skills == {}


async def test_only_a_reserved_name_is_offered(home: Home) -> None:
    class PlainSkill(HubSkill):
        async def look(self) -> None:
            """Look."""

    with pytest.raises(ValueError, match="not reserved"):
        async with home.hub.own.offering([PlainSkill()]):
            pass
