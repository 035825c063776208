"""What people of one home see of one another, and what is left of somebody who is removed."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.claims import SCOPES, Scope
from hub_live.events.kinds import NotificationData
from hub_registry.access.accounts import User
from hub_registry.devices.devices import DeviceChange
from hub_registry.storage.tables import Table
from tests.hub_agent.home import Home, open_home, says
from tests.hub_agent.skills import LampSkill
from tests.model_server import Hangs, ScriptedModel

TOPIC = "devices/nas/state/SystemSkill/disk"
OWN: dict[str, str] = {
    "/api/conversations": "id",
    "/api/watchers": "name",
    "/api/timers": "text",
    "/api/captures": "id",
    "/api/memory": "text",
    "/api/events?last=9&follow=false&kind=notification": "subject",
}
"""What lists the things of a person, and the field in which the test writes whose they are."""
MANAGED = ("/api/watchers", "/api/captures", "/api/events?last=9&follow=false&kind=notification")
"""What an admin sees of all people."""


async def live_in(home: Home, user: User) -> None:
    """Leave something of each kind behind."""
    name = user.id
    async with home.client(await home.token(user)) as client:
        await post(client, "/api/chat", message="turn on the lamp", conversation=name)
        source = {"disk": {"topic": TOPIC}}
        await post(client, "/api/watchers", name=name, topics=source, instruction="x", predicate="disk > 1")
        await post(client, "/api/captures", topics=[TOPIC], path=f"{name}.jsonl")
        await post(client, "/api/memory", category="Own", text=name, private=True)
    live = home.hub.live
    await live.timers.add(user, name, due=None, schedule="every day at 7", missed="run")
    await live.events.publish(name, NotificationData(subject=name))


async def post(client: httpx.AsyncClient, route: str, **body: Any) -> None:
    answer = await client.post(route, json=body)
    assert answer.status_code in (200, 201), answer.text


async def seen(home: Home, path: str, token: str) -> set[str]:
    """Whose things are shown."""
    async with home.client(token) as client:
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        is_stream = answer.headers["content-type"].startswith("text/event-stream")
        events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
        listed = map(json.loads, events) if is_stream else answer.json()
        # The hub records what watchers see for itself.
        return {each[OWN[path]] for each in listed} - {"watchers"}


@pytest.fixture
async def family(home: Home) -> dict[str, User]:
    """An admin and a member who have something, and a guest who has nothing."""
    registry, device = home.hub.registry, await home.device("Bedroom PC", LampSkill())
    await registry.change_device(device.id, DeviceChange(shared=True))
    ada = await registry.accounts.add("Ada", role="member")
    bob = await registry.accounts.add("Bob", role="guest")
    for user in (registry.admin, ada):
        await live_in(home, user)
    return {"admin": registry.admin, "ada": ada, "bob": bob}


async def test_each_person_sees_their_own_and_an_admin_with_that_scope_manages_all(
    home: Home, family: dict[str, User]
) -> None:
    in_person: tuple[Scope, ...] = ("chat", "call", "confirm")
    for path in OWN:
        for name, scopes, expected in (
            ("ada", SCOPES, {"ada"}),
            ("bob", SCOPES, set()),
            ("admin", in_person, {"admin"}),
            ("admin", SCOPES, {"admin", "ada"} if path in MANAGED else {"admin"}),
        ):
            assert await seen(home, path, await home.token(family[name], scopes=scopes)) == expected, path
    strangers = [await home.token(family["bob"]), await home.token(scopes=in_person)]
    for token in strangers:
        async with home.client(token) as client:
            for path in ("conversations/ada", "watchers/ada", "captures/ada", "conversations/ada/export"):
                assert (await client.get(f"/api/{path}")).status_code == 404, path
            for path in ("watchers/ada", "captures/ada", "memory/ada", "conversations/ada"):
                assert (await client.delete(f"/api/{path}")).status_code in (403, 404), path
            for path in ("pause", "run", "approve"):
                tried = await client.post(f"/api/watchers/ada/{path}", json={"digest": ""})
                assert tried.status_code in (403, 404)
    assert await seen(home, "/api/watchers", await home.token(family["ada"])) == {"ada"}


async def test_of_a_removed_person_nothing_is_left_but_files(home: Home, family: dict[str, User]) -> None:
    async with home.client() as client:
        assert (await client.delete("/api/users/ada")).status_code == 200
        capture = (await client.get("/api/captures/ada")).json()
        assert (capture["owner"], capture["state"]) == ("admin", "stopped")
    for path in OWN:
        everything = {"admin", "ada"} if path == "/api/captures" else {"admin"}
        assert await seen(home, path, await home.token()) == everything, path
    assert "- ada" not in (home.directory / "hub" / "MEMORY.md").read_text()
    store = home.hub.registry.store
    left = await store.read(lambda session: rows_of(session, "ada"))
    assert left - {"audit"} == {"token"}


async def test_a_turn_that_runs_ends_with_its_person_and_leaves_nothing(
    tmp_path: Path, model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    model.script = [Hangs(text="Let me")]
    async with open_home(tmp_path / "home", model_url=model.base_url) as home:
        registry = home.hub.registry
        token = await home.token(await registry.accounts.add("Ada", role="member"))
        async with (
            home.client(token) as ada,
            home.client() as admin,
            ada.stream("POST", "/v1/chat/completions", json=says("hello", stream=True)) as stream,
        ):
            lines = stream.aiter_lines()
            await anext(line async for line in lines if "Let me" in line)
            assert (await admin.delete("/api/users/ada")).status_code == 200
            assert "the turn was cancelled" in "".join([line async for line in lines])
        assert await registry.store.read(lambda session: rows_of(session, "ada")) == {"token"}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def rows_of(session: Any, user: str) -> set[str]:
    """The tables in which something of a person is."""
    connection = session.connection()
    return {
        table.name
        for table in Table.metadata.tables.values()
        for column in {"user", "owner", "watcher"} & set(table.columns.keys())
        if connection.exec_driver_sql(f'SELECT 1 FROM "{table}" WHERE "{column}" = ?', (user,)).first()
    }


@pytest.mark.parametrize("way", ["log out", "everywhere", "role", "removed", "password"])
async def test_streams_of_a_session_end_with_it(home: Home, way: str) -> None:
    registry = home.hub.registry
    ada = await registry.accounts.add("Ada", role="member")
    code = (await registry.people.make_code(ada.id)).code
    origin = home.hub.url
    async with httpx.AsyncClient(base_url=origin, headers={"origin": origin}, timeout=120) as browser:
        answer = await browser.post("/api/setup", json={"code": code, "password": "correct horse"})
        assert answer.status_code == 200, answer.text
        async with browser.stream("GET", "/api/events") as stream, home.client() as admin:
            lines = stream.aiter_lines()
            assert await anext(lines) == ": events"
            match way:
                case "log out":
                    ended = await browser.delete("/api/session")
                case "everywhere":
                    ended = await browser.delete("/api/sessions")
                case "role":
                    ended = await admin.patch("/api/users/ada", json={"role": "guest"})
                case "removed":
                    ended = await admin.delete("/api/users/ada")
                case _:
                    change = {"old": "correct horse", "new": "battery staple"}
                    ended = await browser.put("/api/session/password", json=change)
            assert ended.status_code in (200, 204), ended.text
            assert [line async for line in lines if line] == []
