"""Quotas count by token: what one uses up is missing for no other, and people have a reserve."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from sqlmodel import col, select

from contracts.claims import Claims, PrincipalKind
from contracts.errors import TooManyRequests
from hub_agent.calls.rate import DailyVolume, FairQueue, Quota
from hub_agent.settings import HttpSettings, QuotaSettings
from hub_registry.storage.tables import AuditRow
from tests.hub_agent.home import Home, chunks, open_home, says
from tests.hub_agent.skills import LampSkill, LockSkill
from tests.hub_registry.spokes import eventually
from tests.model_server import Says, ScriptedModel


def claims(subject: str, *, kind: PrincipalKind = "device", scope: str = "chat", jti: str = "t") -> Claims:
    return Claims(
        iss="hub", sub=subject, kind=kind, own="ann", aud="http", scope=scope, iat=0, exp=1, jti=jti
    )


PERSON = claims("ann", kind="user", scope="chat confirm")


async def audited(home: Home) -> Sequence[AuditRow]:
    rows = select(AuditRow).order_by(col(AuditRow.id))
    return await home.hub.registry.store.read(lambda session: session.exec(rows).all())


async def test_a_device_that_floods_the_chat_slows_down_nothing_but_itself(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.script = [Says(text="Hello.")] * 9
    quotas = QuotaSettings(per_minute=1, burst=2)
    async with open_home(tmp_path / "home", model_url=model.base_url, quotas=quotas) as home:
        hall, kitchen = await home.device("Hall", LampSkill()), await home.device("Kitchen")
        hello, lamp = {"message": "hello"}, {"message": "turn on the lamp"}
        async with home.client(hall.token) as flood:
            for expected in (200, 200, 429):
                answer = await flood.post("/api/chat", json=hello)
                assert answer.status_code == expected
            assert int(answer.headers["retry-after"]) > 0
            # A sentence costs nothing, so it is not counted, not even here.
            assert (await flood.post("/api/chat", json=lamp)).status_code == 200
        for token in (kitchen.token, None):
            async with home.client(token) as other:
                assert (await other.post("/api/chat", json=hello)).status_code == 200

        async def noted() -> bool:
            return any(row.outcome == "rate_limited" for row in await audited(home))

        await eventually(noted)
        refused = next(row for row in await audited(home) if row.outcome == "rate_limited")
        assert (refused.method, refused.through, refused.token_name) == ("chat", hall.id, hall.id)


async def test_who_floods_the_api_is_told_when_to_come_back_and_delays_nobody_else(tmp_path: Path) -> None:
    http = HttpSettings(port=0, requests_per_minute=60)
    async with open_home(tmp_path / "home", http=http) as home:
        async with home.client() as flood:
            while (refused := await flood.get("/api/session")).status_code == 200:
                pass
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
            assert int(refused.headers["retry-after"]) > 0
            for path in ("/v1/models", "/ollama/api/tags", "/mcp"):
                while (await flood.get(path)).status_code != 429:
                    pass
        async with home.client(await home.token()) as other:
            assert (await other.get("/api/session")).status_code == 200


async def test_a_token_that_is_refused_is_in_the_audit(home: Home) -> None:
    async with home.client(await home.token(scopes=("chat", "confirm"))) as client:
        body = {"name": "more", "scopes": ["chat", "call"]}
        assert (await client.post("/api/tokens", json=body)).status_code == 403

    async def noted() -> bool:
        return any(row.method == "POST /api/tokens" for row in await audited(home))

    await eventually(noted)


def test_a_renewed_token_of_a_device_has_no_new_quota() -> None:
    quota = Quota(per_minute=1, burst=1)
    quota.spend(claims("hall", jti="first"), person=False)
    with pytest.raises(TooManyRequests):
        quota.spend(claims("hall", jti="renewed"), person=False)


def test_many_devices_together_leave_a_reserve_for_people() -> None:
    now = [0.0]
    quota = Quota(per_minute=60, burst=2, clock=lambda: now[0])
    served = 0
    for number in range(20):
        with suppress(TooManyRequests):
            quota.spend(claims(f"device{number}"), person=False)
            served += 1
    assert served == 6
    quota.spend(PERSON, person=True)
    quota.spend(PERSON, person=True)
    with pytest.raises(TooManyRequests):
        quota.spend(PERSON, person=True)
    now[0] += 1
    quota.spend(PERSON, person=True)


async def test_who_asks_for_little_does_not_wait_for_all_that_another_asked_for() -> None:
    queue = FairQueue(each=1, lasting=1, waiting=40)
    done: list[str] = []
    go = asyncio.Event()

    async def ask(name: str, holder: Claims) -> None:
        async with queue.turn(holder, person=holder is PERSON):
            await go.wait()
            done.append(name)

    many, other = claims("many"), claims("other")
    async with asyncio.TaskGroup() as tasks:
        for number in range(32):
            tasks.create_task(ask(f"many {number}", many))
        await asyncio.sleep(0)
        tasks.create_task(ask("other", other))
        await asyncio.sleep(0)
        go.set()
    assert done.index("other") == 1
    assert done[2:] == [f"many {number}" for number in range(1, 32)]


async def test_what_waits_takes_turns_by_token_and_one_that_is_cancelled_leaves_no_trace() -> None:
    queue = FairQueue(each=1, lasting=1, waiting=2)
    done: list[str] = []

    async def ask(holder: Claims) -> None:
        async with queue.turn(holder, person=holder is PERSON):
            done.append(holder.sub)

    # Three of four places, the last being for people.
    held = [claims(f"holds{number}") for number in range(3)]
    turns = [queue.turn(each, person=False) for each in held]
    for turn in turns:
        await turn.__aenter__()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(ask(claims(name))) for name in ("a", "a", "b")]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await ask(claims("a"))
        await ask(PERSON)
        waiting[0].cancel()
        await asyncio.sleep(0)
        for turn in turns:
            await turn.__aexit__(None, None, None)
        # It has its turn by now, and is cancelled before it can take it.
        waiting[1].cancel()
    assert done == ["ann", "b"]
    for name in ("later", "a"):
        await ask(claims(name))
        assert done[-1] == name


async def test_calls_that_wait_for_a_device_do_not_hold_up_others_of_their_token() -> None:
    queue = FairQueue(each=1, lasting=3, waiting=40)
    began: list[int] = []
    three, go = asyncio.Event(), asyncio.Event()

    async def ask(number: int) -> None:
        async with queue.turn(claims("hall"), person=False):
            began.append(number)
            if len(began) == 3:
                three.set()
            await go.wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(ask(number))
        await asyncio.sleep(0)
        assert began == [0]
        await three.wait()
        assert began == [0, 1, 2]
        go.set()
    assert began == [0, 1, 2, 3]


def test_so_much_is_recorded_in_a_day_and_then_no_more_until_time_has_passed() -> None:
    now = [0.0]
    volume = DailyVolume(rows=10, size=1_000, clock=lambda: now[0])
    volume.spend("hall", rows=40, size=100)
    with pytest.raises(TooManyRequests) as refused:
        volume.spend("hall", rows=1, size=1)
    assert refused.value.retry_after_s
    volume.spend("kitchen", rows=1, size=4_000)
    volume.charge("kitchen", 1_000)
    now[0] += 24 * 3_600
    volume.spend("hall", rows=10, size=0)
    with pytest.raises(TooManyRequests):
        volume.spend("kitchen", rows=1, size=1)


async def test_a_right_that_is_missing_is_in_the_audit_with_its_token(home: Home) -> None:
    device = await home.device("Hall", LampSkill())
    body = {"device": "hall", "skill": "LampSkill", "method": "turn_on"}
    async with home.client(device.token) as client:
        assert (await client.post("/api/devices", json={"name": "mine"})).status_code == 403
        for _ in range(60):
            assert (await client.post("/api/skills/call", json=body)).status_code == 403
    async with home.client() as person:
        assert (await person.post("/api/skills/call", json=body)).status_code == 200

    async def written() -> bool:
        return any(row.outcome == "result" for row in await audited(home))

    await eventually(written)
    rows = await audited(home)
    refused = [row for row in rows if row.outcome == "forbidden"]
    # Attempts that cost nothing do not fill the disk.
    assert 0 < len(refused) < 30
    assert {(row.method, row.through, row.token_name) for row in refused} == {
        (route, device.id, device.id) for route in ("POST /api/devices", "POST /api/skills/call")
    }
    (made,) = (row for row in rows if row.outcome == "result")
    assert (made.through, made.confirmed_by) == (None, None)
    assert made.token
    assert made.token_name


async def test_what_a_person_confirms_or_refuses_in_a_turn_is_in_the_audit(home: Home) -> None:
    lock = LockSkill()
    await home.device("Door", lock)
    async with home.client(**{"x-strawberry-confirm": "true"}) as client:
        for approve in (True, False):
            body = says("unlock the door", stream=True)
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                async for chunk in chunks(response):
                    question = chunk.get("x_strawberry", {}) if isinstance(chunk, dict) else {}
                    if question.get("kind") == "confirmation":
                        url = f"/api/turns/{question['turn']}/confirmations/{question['id']}"
                        assert (await client.post(url, json={"approve": approve})).status_code == 200
    assert lock.opened == ["front"]

    async def written() -> bool:
        return len(await audited(home)) == 2

    await eventually(written)
    rows = await audited(home)
    token = home.hub.registry.authority.check(home.admin_token).jti
    assert [(row.method, row.outcome, row.token, row.confirmed_by) for row in rows] == [
        ("unlock", "result", token, token),
        ("unlock", "refused", token, None),
    ]
