"""Skills called over HTTP, without a model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from sqlmodel import col, select
from starlette.requests import Request

from agent_core.skills.skill import skill_method
from chat.http.requests import read
from hub_agent.settings import QuotaSettings
from hub_registry.access.token_rows import TokenRequest
from hub_registry.storage.tables import AuditRow, now
from identity.keys import KeyPair
from tests.hub_agent.home import Home, open_home, wait_for
from tests.hub_agent.skills import AnywhereSkill, LampSkill, LockSkill, SlowSkill
from tests.hub_registry.spokes import eventually


def call(device: str, path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    skill, method = path.split(".")
    return {"device": device, "skill": skill, "method": method, "args": list(args), "kwargs": kwargs}


async def post(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[int, Any]:
    answer = await client.post("/api/skills/call", json=body)
    data = answer.json()
    return answer.status_code, data.get("result", data)


async def test_a_device_is_named_by_key_id_name_or_alias(home: Home) -> None:
    lamp = LampSkill()
    device = await home.device("Bedroom PC", lamp)
    async with home.client() as client:
        await client.patch(f"/api/devices/{device.id}", json={"name": "Study PC", "aliases": ["the box"]})
        for name in ("study_pc", "bedroom_pc", "Study PC", "the box"):
            status, result = await post(client, call(name, "LampSkill.turn_on", level="40"))
            assert (status, result) == (200, "The lamp is at 40 percent.")
        assert (await post(client, call("study_pc", "LampSkill.status"))) == (200, 40)


async def test_a_result_comes_in_words_where_they_are_wanted(home: Home) -> None:
    await home.device("Bedroom PC", LampSkill())
    async with home.client() as client:
        body = {**call("bedroom_pc", "LampSkill.status"), "text": True}
        assert (await client.post("/api/skills/call", json=body)).json() == {"result": 0, "text": "Level 0."}


async def test_a_mistake_is_told_with_the_nearest_names_and_runs_nothing(home: Home) -> None:
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp)
    async with home.client() as client:
        for body, expected, named in (
            (call("bedrom_pc", "LampSkill.turn_on"), (404, "unknown_skill"), "bedroom_pc"),
            (call("bedroom_pc", "LampSkil.turn_on"), (404, "unknown_skill"), "LampSkill"),
            (call("bedroom_pc", "LampSkill.turn_onn"), (404, "unknown_skill"), "turn_on"),
            (call("bedroom_pc", "LampSkill.turn_on", lvl=4), (422, "bad_arguments"), "level"),
            (call("bedroom_pc", "LampSkill.turn_on", level="high"), (422, "bad_arguments"), "level"),
            (call("bedroom_pc", "LampSkill.turn_on", 1, 2), (422, "bad_arguments"), "level"),
        ):
            status, error = await post(client, body)
            assert (status, error["code"]) == expected
            assert named in f"{error['detail']} {error['hint']}", error
        wrong: Any
        for wrong in ({"device": "x"}, {**call("bedroom_pc", "LampSkill.turn_on"), "extra": 1}, [], "x"):
            answer = await client.post("/api/skills/call", json=wrong)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert lamp.level == 0


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "[1e400]", '"\\ud800"', '{"\\udfff":1}'])
async def test_what_no_json_has_is_refused_before_it_reaches_anything(home: Home, value: str) -> None:
    await home.device("Bedroom PC", lamp := LampSkill())
    body = json.dumps(call("bedroom_pc", "LampSkill.turn_on", level="VALUE")).replace('"VALUE"', value)
    async with home.client() as client:
        answer = await client.post(
            "/api/skills/call", content=body, headers={"Content-Type": "application/json"}
        )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), answer.text
    assert "not valid JSON" in answer.json()["detail"]
    assert lamp.level == 0


async def test_a_skill_that_fails_says_why_without_a_traceback(home: Home) -> None:
    await home.device("Bedroom PC", LampSkill())
    async with home.client() as client:
        status, error = await post(client, call("bedroom_pc", "LampSkill.fail"))
    assert (status, error["code"]) == (502, "skill_error")
    assert "Bedroom PC" in error["detail"]
    assert "the bulb is broken" in error["detail"]
    assert "Traceback" not in str(error)


async def test_an_offline_device_is_named_with_where_else_the_skill_is(home: Home) -> None:
    one = await home.device("Bedroom PC", LampSkill())
    await home.device("Kitchen Pi", LampSkill())
    await one.spoke.status("offline")
    entry = home.hub.registry.directory.get(one.id)
    assert entry is not None
    await eventually(lambda: not entry.connected)
    async with home.client() as client:
        status, error = await post(client, call("bedroom_pc", "LampSkill.turn_on"))
    assert (status, error["code"]) == (503, "offline")
    assert "Bedroom PC" in error["detail"]
    assert "kitchen_pi" in error["hint"]


async def test_a_device_that_goes_away_in_mid_call_is_named_with_where_else_it_can_be_read(
    home: Home,
) -> None:
    slow = SlowSkill()
    one = await home.device("Bedroom PC", slow)
    await home.device("Kitchen Pi", SlowSkill())
    async with home.client() as client:
        waiting = asyncio.get_running_loop().create_task(post(client, call("bedroom_pc", "SlowSkill.watch")))
        await wait_for(slow.begun)
        await one.spoke.status("offline")
        status, error = await waiting
    assert (status, error["code"]) == (503, "offline")
    assert "Bedroom PC" in error["detail"]
    assert "kitchen_pi" in error["hint"]


async def test_any_device_serves_a_call_to_the_hub(home: Home) -> None:
    log: list[str] = []
    one = await home.device("Bedroom PC", AnywhereSkill(log, "one"))
    await home.device("Kitchen Pi", AnywhereSkill(log, "two"))
    async with home.client() as client:
        assert await post(client, call("hub", "AnywhereSkill.work", "dishes")) == (200, "dishes done")
        await one.spoke.status("offline")
        entry = home.hub.registry.directory.get(one.id)
        assert entry is not None
        await eventually(lambda: not entry.connected)
        assert await post(client, call("hub", "AnywhereSkill.work", "laundry")) == (200, "laundry done")
        status, error = await post(client, call("hub", "LampSkill.turn_on"))
        assert (status, error["code"]) == (404, "unknown_skill")
    assert len(log) == 2
    assert log[1] == "two: laundry"


async def test_a_confirm_method_runs_once_for_each_yes_to_exactly_this_call(home: Home) -> None:
    lock = LockSkill()
    await home.device("Door Pi", lock, shared=True)
    body = call("Door Pi", "LockSkill.unlock", door="front")
    other = await home.token(await home.hub.registry.accounts.add("Bob", role="member"))
    async with home.client() as client, home.client(other) as bob:
        status, asked = await post(client, body)
        assert (status, asked["code"]) == (409, "needs_confirmation")
        assert (asked["device_name"], asked["method"]) == ("Door Pi", "LockSkill.unlock")
        assert asked["arguments"] == {"door": "front"}
        yes = {"confirmation": asked["confirmation"]}

        back = call("Door Pi", "LockSkill.unlock", door="back")
        assert (await post(client, {**back, **yes}))[0] == 409
        assert (await post(bob, {**body, **yes}))[0] == 409
        assert (await post(client, {**body, "confirmation": "invented"}))[0] == 409
        assert lock.opened == []

        # The same arguments by position are the same call.
        same = call("door_pi", "LockSkill.unlock", "front")
        assert await post(client, {**same, **yes}) == (200, "front is open")
        assert (await post(client, {**body, **yes}))[0] == 409
    assert lock.opened == ["front"]


async def test_where_any_device_may_serve_the_most_careful_ones_word_holds(home: Home) -> None:
    log: list[str] = []

    class Careful(AnywhereSkill):
        @skill_method(confirm=True)
        def work(self, task: str) -> str:
            """Do a piece of work."""
            return super().work(task)

    Careful.__name__ = "AnywhereSkill"
    await home.device("Bedroom PC", AnywhereSkill(log, "one"))
    await home.device("Kitchen Pi", Careful(log, "two"))
    async with home.client() as client:
        body = call("hub", "AnywhereSkill.work", "dishes")
        status, asked = await post(client, body)
        assert (status, asked["code"]) == (409, "needs_confirmation")
        assert log == []
        yes = {"confirmation": asked["confirmation"]}
        assert await post(client, {**body, **yes}) == (200, "dishes done")
    assert len(log) == 1


async def test_a_guest_may_look_and_not_act(home: Home) -> None:
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp, shared=True)
    guest = await home.hub.registry.accounts.add("Guest", role="guest")
    async with home.client(await home.token(guest)) as client:
        assert await post(client, call("bedroom_pc", "LampSkill.status")) == (200, 0)
        status, error = await post(client, call("bedroom_pc", "LampSkill.turn_on"))
    assert (status, error["code"]) == (403, "refused")
    assert lamp.level == 0


async def test_a_device_calls_others_only_with_the_scope_and_confirms_nothing(home: Home) -> None:
    lock = LockSkill()
    pi = await home.device("Door Pi", lock)
    async with home.client(pi.token) as client:
        status, error = await post(client, call("door_pi", "LockSkill.unlock"))
        assert (status, error["code"]) == (403, "forbidden")
        assert "call" in error["detail"]


async def test_a_device_cannot_confirm_what_its_owner_was_asked(home: Home) -> None:
    lock = LockSkill()
    await home.device("Door Pi", lock)
    registry = home.hub.registry
    remote = await registry.devices.add("Remote", owner=registry.admin.id)
    key = KeyPair.generate()
    home.keys[key.kid] = key
    token = await registry.authority.issue(
        TokenRequest(
            kind="device",
            subject=remote.id,
            owner=registry.admin.id,
            scopes=("call",),
            lifetime_s=600,
            key=key.public,
        )
    )
    body = call("Door Pi", "LockSkill.unlock", door="front")
    async with home.client() as client, home.client(token) as device:
        _, asked = await post(client, body)
        status, _ = await post(device, {**body, "confirmation": asked["confirmation"]})
        assert status == 403
        status, refused = await post(device, body)
        assert (status, refused["code"]) == (409, "needs_confirmation")
        assert "confirmation" not in refused
    assert lock.opened == []


async def test_a_program_without_the_scope_is_not_given_a_confirmation(home: Home) -> None:
    lock = LockSkill()
    await home.device("Door Pi", lock)
    body = call("Door Pi", "LockSkill.unlock", door="front")
    async with home.client() as owner, home.client(await home.token(scopes=("call",))) as program:
        status, refused = await post(program, body)
        assert (status, refused["code"]) == (409, "needs_confirmation")
        assert "confirmation" not in refused
        assert "--confirm on" in refused["hint"]
        _, asked = await post(owner, body)
        assert (await post(program, {**body, "confirmation": asked["confirmation"]}))[0] == 403
    assert lock.opened == []


async def test_a_client_that_leaves_cancels_the_call(home: Home) -> None:
    slow = SlowSkill()
    await home.device("Bedroom PC", slow)
    async with home.client() as client:
        waiting = asyncio.get_running_loop().create_task(
            client.post("/api/skills/call", json=call("bedroom_pc", "SlowSkill.wait"))
        )
        await wait_for(slow.begun)
        waiting.cancel()
        await wait_for(slow.stopped)


async def test_a_revoked_token_ends_the_call_that_it_began(home: Home) -> None:
    slow = SlowSkill()
    await home.device("Bedroom PC", slow)
    authority = home.hub.registry.authority
    token = await home.token()
    async with home.client(token) as client:
        waiting = asyncio.get_running_loop().create_task(post(client, call("bedroom_pc", "SlowSkill.wait")))
        await wait_for(slow.begun)
        await authority.revoke([authority.check(token).jti])
        status, error = await waiting
    assert (status, error["code"]) == (401, "unauthorized")
    await wait_for(slow.stopped)


@pytest.mark.parametrize(
    ("path", "module", "body"),
    [
        ("/api/skills/call", "chat.operations.serving", call("pc", "LampSkill.turn_on")),
        ("/api/chat", "chat.http.routes", {"message": "turn on the lamp"}),
    ],
)
async def test_a_token_that_is_revoked_while_its_request_is_read_does_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, path: str, module: str, body: dict[str, Any]
) -> None:
    await home.device("PC", lamp := LampSkill())
    authority, token = home.hub.registry.authority, await home.token()

    async def slowly(request: Request, kind: type[BaseModel], **_: Any) -> BaseModel:
        given = await read(request, kind)
        await authority.revoke([authority.check(token).jti])
        return given

    monkeypatch.setattr(f"{module}.read", slowly)
    async with home.client(token) as client:
        assert (await client.post(path, json=body)).status_code == 401
    assert lamp.level == 0


async def test_every_call_is_in_the_audit_with_its_outcome_and_without_its_arguments(home: Home) -> None:
    device = await home.device("Bedroom PC", LampSkill(), LockSkill())
    before = now()
    async with home.client() as client:
        await post(client, call("bedroom_pc", "LampSkill.turn_on", level=41))
        await post(client, call("bedroom_pc", "LampSkill.fail"))
        await post(client, call("bedroom_pc", "LockSkill.unlock", door="secret door"))

    async def audited() -> list[AuditRow]:
        rows = select(AuditRow).order_by(col(AuditRow.id))
        return await home.hub.registry.store.read(lambda session: list(session.exec(rows)))

    async def written() -> bool:
        return len(await audited()) == 3

    await eventually(written)
    records = await audited()
    assert [(record.method, record.outcome) for record in records] == [
        ("turn_on", "result"),
        ("fail", "skill_error"),
        ("unlock", "needs_confirmation"),
    ]
    for record in records:
        assert record.device == device.id
        assert record.user == record.actor["user"] == home.hub.registry.admin.id
        assert record.at >= before
        assert len(record.arguments) == 64
        assert "secret" not in str(record)


@pytest.mark.parametrize(
    ("path", "slow", "quick"),
    [
        ("/api/skills/call", call("pc", "SlowSkill.wait"), call("pc", "LampSkill.status")),
        ("/api/exec", {"code": "devices.pc.SlowSkill.wait()"}, {"code": "1"}),
    ],
)
async def test_what_one_token_may_not_have_at_once_waits_and_delays_no_other(
    tmp_path: Path, sandbox_files: Path, path: str, slow: dict[str, Any], quick: dict[str, Any]
) -> None:
    quotas = QuotaSettings(calls=1, lasting=1, programs=1, waiting=1)
    async with open_home(tmp_path / "home", sandbox=sandbox_files, quotas=quotas) as home:
        await home.device("PC", skill := SlowSkill(), LampSkill())
        async with home.client() as flood, home.client(await home.token()) as other:
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(flood.post(path, json=slow)) for _ in range(3)]
                # One runs, one waits, and for the third there is no room.
                await asyncio.wait(asked, timeout=60, return_when=asyncio.FIRST_COMPLETED)
                assert [each.result().status_code for each in asked if each.done()] == [429]
                await wait_for(skill.begun)
                assert (await other.post(path, json=quick)).status_code == 200
                skill.go.set()
            assert sorted(each.result().status_code for each in asked) == [200, 200, 429]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/skills/call", call("pc", "SlowSkill.wait")),
        ("/api/exec", {"code": "devices.pc.SlowSkill.wait()"}),
    ],
)
async def test_a_revoked_token_ends_what_waits_for_its_turn(
    tmp_path: Path, sandbox_files: Path, path: str, body: dict[str, Any]
) -> None:
    quotas = QuotaSettings(calls=1, lasting=1, programs=1, waiting=1)
    async with open_home(tmp_path / "home", sandbox=sandbox_files, quotas=quotas) as home:
        await home.device("PC", SlowSkill())
        authority, token = home.hub.registry.authority, await home.token()
        async with home.client(token) as client, asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(client.post(path, json=body)) for _ in range(3)]
            # One runs, one waits, and for the third there is no room.
            await asyncio.wait(asked, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            await authority.revoke([authority.check(token).jti])
        assert sorted(each.result().status_code for each in asked) == [401, 401, 429]
