"""Questions that are changed and asked again, and those that nothing could answer: what is left of them."""

from typing import Any

import httpx

from tests.hub_agent.home import Home
from tests.hub_agent.skills import LampSkill
from tests.hub_agent.test_long_conversations import say
from tests.hub_server.test_http_direct_calls import call, post
from tests.model_server import Says, ScriptedModel, calls


async def read(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/api/conversations/c1")).json()["exchanges"]
    return found


async def replace(client: httpx.AsyncClient, turn: str, message: str, **more: str) -> httpx.Response:
    body = {"message": message, "conversation": "c1", "replaces": turn, **more}
    return await client.post("/api/chat", json=body)


async def test_a_changed_question_takes_the_place_of_what_came_after_it(
    thinking: Home, model: ScriptedModel
) -> None:
    model.script = lambda _: Says(text="Noted.")
    async with thinking.client() as client:
        turns = [(await say(client, said))["turn"] for said in ("a cake", "with cherries", "and cream")]
        new = (await replace(client, turns[1], "with plums")).json()["turn"]
        assert model.requests[-1].said("user")[:-1] == ["a cake"]
        assert "with plums" in model.requests[-1].said("user")[-1]
        assert [each["replaced_by"] for each in await read(client)] == [None, new, new, None]
        _, found = await post(client, call("hub", "MemorySkill.search_conversations", query="cherries plums"))
        assert [each["question"] for each in found] == ["with plums"]
        assert "replaced" in (await client.get("/api/conversations/c1/export?format=markdown")).text
        # The first question of all can be changed, too; the conversation is then called by the new one.
        await replace(client, turns[0], "a pie")
        assert (await client.get("/api/conversations")).json()[0]["asked"] == "a pie"
        again = await replace(client, turns[1], "with pears")
        assert (again.status_code, len(await read(client))) == (404, 5)


async def test_what_replaced_turns_changed_is_told(thinking: Home, model: ScriptedModel) -> None:
    lamp = LampSkill()
    device = await thinking.device("Bedroom PC", lamp)
    path = f"devices.{device.id}.LampSkill"
    model.script = [
        calls("python_exec", code=f"x = {path}.status(); {path}.turn_on(20)"),
        Says(text="On."),
        calls("python_exec", code="print(x)"),
        Says(text="It was off."),
    ]
    async with thinking.client() as client:
        turn = (await say(client, "make it less dark"))["turn"]
        (change,) = (await client.get(f"/api/turns/{turn}/changes")).json()["changes"]
        assert (change["device_name"], change["method"], change["outcome"]) == (
            "Bedroom PC",
            "turn_on",
            "result",
        )
        assert (await replace(client, turn, "was it dark?")).status_code == 200
        # A program that came after it does not know the variables of one that was replaced.
        assert "NameError" in model.requests[-1].results[0]
        assert (await client.get("/api/turns/unknown/changes")).status_code == 404


async def test_a_question_that_nothing_can_answer_is_kept_with_the_reason(
    home: Home,
) -> None:
    bob = await home.hub.registry.accounts.add("Bob", role="member")
    device = await home.device("Bedroom PC", LampSkill())
    async with home.client() as client, home.client(await home.token(bob)) as other:
        asked = {"message": "write a poem", "conversation": "c1", "turn": "t1"}
        assert (await client.post("/api/chat", json=asked)).status_code == 503
        (kept,) = await read(client)
        assert (kept["outcome"], kept["reason"], kept["answer"]) == ("failed", "no_model", None)
        assert kept["problem"] == "no model is configured"
        assert (await client.get("/api/turns/t1")).json()["reason"] == "no_model"
        assert (await replace(other, "t1", "a song")).status_code == 404
    async with home.client(device.token) as own:
        # It may answer itself, under the same id.
        assert (await own.post("/api/chat", json={**asked, "turn": "t2"})).status_code == 503
        assert (await own.post("/api/turns/t2/cancel")).json() == {"state": "not_started"}
        assert (await replace(own, "t1", "turn on the lamp")).status_code == 403
