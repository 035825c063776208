"""Where the time of a turn went, as its person and an admin see it."""

import asyncio
import tracemalloc
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import httpx
from sqlmodel import func, insert, select

from agent_core.models.entries import Model, ModelEntry, Models
from chat.turns import Turns
from hub_agent import limits
from hub_agent.chat.traces import Traces
from hub_agent.tables import TraceRow
from hub_registry.storage.store import open_store
from hub_registry.storage.tables import now
from tests.hub_agent.home import Home, chunks, events_of, open_home, says, wait_for
from tests.hub_agent.skills import LampSkill, LockSkill, SlowSkill
from tests.hub_server.test_http_chat import URL, stream
from tests.model_server import Fails, Says, ScriptedModel, calls

TURN = {"x-strawberry-turn": "t1"}


async def shown(client: httpx.AsyncClient, turn: str = "t1") -> dict[str, Any]:
    answer = await client.get(f"/api/turns/{turn}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def parts(turn: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["kind"], each["name"], each["outcome"]) for each in turn["spans"]]


async def test_each_part_of_a_turn_is_seen_with_its_time_and_what_was_said(
    thinking: Home, model: ScriptedModel
) -> None:
    device = await thinking.device("Bedroom PC", LampSkill())
    code = "devices.bedroom_pc.LampSkill.turn_on(30)"
    model.script = [calls("python_exec", code=code), Says(text="The lamp is <b>on</b>.")]
    async with thinking.client() as client:
        await stream(client, says("make it less dark"), **TURN)
        turn = await shown(client)
        (listed,) = (await client.get("/api/turns")).json()["turns"]
    path = "devices.bedroom_pc.LampSkill.turn_on"
    assert parts(turn) == [
        ("hub", "prompt", "ok"),
        ("hub", "gateway", "ok"),
        ("model", "house", "ok"),
        ("tool", "python_exec", "ok"),
        ("sandbox", "program", "ok"),
        ("skill", path, "ok"),
        ("bus", "LampSkill.turn_on call", "ok"),
        ("model", "house", "ok"),
    ]
    assert [each["parent"] for each in turn["spans"]] == [None, None, None, None, 3, 4, 5, None]
    *_, asked, tool, program, skill, on_bus, _ = turn["spans"]
    assert tool["detail"]["arguments"] == {"code": code}
    assert "30 percent" in tool["detail"]["result"]
    assert skill["detail"] == {"arguments": {"level": 30}, "result": "The lamp is at 30 percent."}
    assert skill["device"] == on_bus["device"] == device.id
    assert 0 <= on_bus["detail"]["ran_ms"] <= on_bus["ms"] + 1
    assert 0 < program["detail"]["run_ms"] <= program["ms"]
    assert 0 < asked["detail"]["first_ms"] <= asked["ms"]
    assert (turn["input_tokens"], turn["output_tokens"], turn["cost"]) == (22, 14, None)
    assert (turn["outcome"], turn["model"], turn["answer"]) == (
        "answered",
        "house",
        "The lamp is <b>on</b>.",
    )
    assert sum(turn["ms_by_kind"].values()) <= turn["ms"] + 5
    assert listed == {key: turn[key] for key in listed}


async def test_a_sentence_shows_its_call_and_what_a_person_took_to_answer(home: Home) -> None:
    await home.device("Door", LockSkill())
    body, headers = says("unlock the door", stream=True), {"x-strawberry-confirm": "true", **TURN}
    async with home.client() as client:
        async with client.stream("POST", URL, json=body, headers=headers) as response:
            async for chunk in chunks(response):
                for event in events_of([chunk]):
                    if event["kind"] == "confirmation":
                        running = await shown(client)
                        await client.post(
                            f"/api/turns/t1/confirmations/{event['id']}", json={"approve": False}
                        )
        turn = await shown(client)
    assert (running["state"], running["outcome"]) == ("running", None)
    assert parts(running)[-1] == ("confirmation", "LockSkill.unlock", "running")
    assert parts(turn) == [
        ("skill", "devices.door.LockSkill.unlock", "failed"),
        ("confirmation", "LockSkill.unlock", "failed"),
    ]
    assert turn["spans"][1]["parent"] == 0
    assert (turn["mode"], turn["outcome"], turn["model"]) == ("sentence", "answered", None)


async def test_a_model_that_fails_is_seen_beside_the_one_that_answers(
    tmp_path: Path, model: ScriptedModel
) -> None:
    def entry(name: str, url: str) -> Model:
        return Model(ModelEntry(name=name, provider="openai", model="scripted", base_url=url))

    usable = (entry("gone", "http://127.0.0.1:9/v1"), entry("house", model.base_url))
    model.script = [Says(text="Hello.")]
    async with open_home(tmp_path / "home", models=Models(usable=usable)) as home, home.client() as client:
        await stream(client, says("hello"), **TURN)
        turn = await shown(client)
    assert parts(turn)[2:] == [("model", "gone", "failed"), ("model", "house", "ok")]
    assert "cannot be reached" in turn["spans"][2]["detail"]["error"]


async def test_a_turn_that_was_cut_short_says_how_far_it_came(tmp_path: Path, model: ScriptedModel) -> None:
    model.script = [Fails(status=400, message="no such model")]
    slow = SlowSkill()
    async with open_home(tmp_path / "home", model_url=model.base_url) as home, home.client() as client:
        await home.device("Bedroom PC", slow)
        await client.post("/api/chat", json={"message": "hm?", "turn": "t1"})
        failed = await shown(client)
        assert failed["outcome"] == "failed"
        assert "no such model" in failed["problem"]
        assert parts(failed)[-1] == ("model", "house", "failed")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.post("/api/chat", json={"message": "take your time", "turn": "t2"}))
            await wait_for(slow.begun)
            await client.post("/api/turns/t2/cancel")
        stopped = await shown(client, "t2")
        assert (stopped["outcome"], parts(stopped)[-1][::2]) == ("stopped", ("bus", "cancelled"))


async def test_the_list_is_filtered_and_read_page_by_page(home: Home) -> None:
    await home.device("Bedroom PC", LampSkill())
    async with home.client() as client:
        for number in range(5):
            body = {"message": "turn on the lamp", "turn": f"t{number}", "conversation": f"c{number % 2}"}
            await client.post("/api/chat", json=body)

        async def turns(query: str) -> list[str]:
            answer = await client.get(f"/api/turns?{query}")
            assert answer.status_code == 200, answer.text
            return [each["turn"] for each in answer.json()["turns"]]

        assert await turns("") == ["t4", "t3", "t2", "t1", "t0"]
        assert await turns("conversation=c1") == ["t3", "t1"]
        assert await turns("outcome=failed") == []
        refused = (await client.get("/api/turns?outcome=foo")).json()["detail"]
        assert "'failed'" in refused
        assert "'running'" in refused
        assert await turns("outcome=answered&since=1h&limit=1") == ["t4"]
        assert await turns("since=2999-01-01") == []
        assert await turns("since=1960-01-01&limit=1") == ["t4"]
        page = (await client.get("/api/turns?limit=3")).json()
        assert await turns(f"limit=3&before={page['next']}".replace("+", "%2B")) == ["t1", "t0"]
        for wrong in (
            "before=x",
            "before=0001-01-01T00:00:00%2B14:00 u t",
            "since=100000000d",
            f"since={'1s' * 21}",
        ):
            assert (await client.get(f"/api/turns?{wrong}")).status_code == 422, wrong
        assert (await client.get("/api/turns?outcome=good")).status_code == 422
        await client.delete("/api/conversations/c1")
        assert await turns("") == ["t4", "t2", "t0"]
        assert (await client.get("/api/turns/t1")).status_code == 404


async def test_what_others_said_is_theirs_also_for_an_admin(home: Home) -> None:
    lamp = await home.device("Bedroom PC", LampSkill(), shared=True)
    ann = await home.hub.registry.accounts.add("Ann", role="member")
    async with home.client(await home.token(ann)) as client:
        await client.post("/api/chat", json={"message": "turn on the lamp", "turn": "t1"})
        assert (await shown(client))["question"] == "turn on the lamp"
    async with home.client() as admin:
        turn = await shown(admin)
        assert (turn["user"], turn["question"], turn["answer"], turn["did"]) == (ann.id, None, None, [])
        assert [each["kind"] for each in turn["spans"]] == ["skill", "bus"]
        assert set(turn["spans"][0]["detail"]) | set(turn["spans"][1]["detail"]) == {"ran_ms"}
        assert len((await admin.get("/api/turns")).json()["turns"]) == 1
    async with home.client(await home.token(scopes=("chat",))) as without:
        assert (await without.get("/api/turns/t1")).status_code == 404
        assert (await without.get("/api/turns")).json()["turns"] == []
    async with home.client(lamp.token) as device:
        assert (await device.get("/api/turns")).status_code == 403


async def test_forgetting_many_old_traces_takes_no_memory_for_each(tmp_path: Path) -> None:
    begun = now()
    plain = {"user": "ada", "ms": {}, "spans": b"", "left_out": 0}
    rows = [
        {**plain, "turn": str(number), "at": begun + timedelta(seconds=number)}
        for number in range(limits.TRACES_KEPT + 3_000)
    ]
    async with open_store(tmp_path / "hub" / "hub.db") as store:
        traces = Traces(store, running=cast("Turns", None))
        # The first time takes what stays.
        await traces.trim()
        await store.write(lambda session: session.execute(insert(TraceRow), rows))
        tracemalloc.start()
        try:
            await traces.trim()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        oldest = await store.read(lambda session: session.exec(select(func.min(TraceRow.at))).one())

    assert oldest == begun + timedelta(seconds=3_000)
    assert peak < 300_000
