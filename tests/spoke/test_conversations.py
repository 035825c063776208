"""The record of conversations, read at a spoke: the hub's where that is there, else the spoke's cache."""

from typing import Any

from tests.hub_agent.home import Home
from tests.spoke.home import Place
from tests.spoke.talk import Talker, open_talker


async def at_spoke(talker: Talker, path: str) -> Any:
    async with talker.client() as client:
        return (await client.get(path)).json()


async def at_hub(home: Home, path: str) -> Any:
    async with home.client() as client:
        return (await client.get(path)).json()


async def test_a_conversation_that_went_on_at_two_places_is_one_record_in_order_of_time(
    home: Home, talker: Talker
) -> None:
    await talker.say("one")
    talker.line.drop()
    await talker.say("two")
    async with home.client() as client:
        said = {"message": "three", "conversation": talker.conversation}
        assert (await client.post("/api/chat", json=said)).status_code == 200
    await talker.say("four")
    path = f"/api/conversations/{talker.conversation}"
    here, there = await at_spoke(talker, path), await at_hub(home, path)
    # What was said elsewhere while the hub is away is not read.
    assert [each["question"] for each in here["exchanges"]] == ["one", "two", "four"]
    assert [each["question"] for each in there["exchanges"]] == ["one", "three"]

    talker.line.restore()
    await talker.say("five")
    shown = (await at_hub(home, path))["exchanges"]
    assert [(each["question"], each["answer"], each["mode"]) for each in shown] == [
        ("one", "The hub answers.", "online"),
        ("two", "The spoke answers.", "offline"),
        ("three", "The hub answers.", "online"),
        ("four", "The spoke answers.", "offline"),
        ("five", "The hub answers.", "online"),
    ]
    assert [each["device"] == talker.spoke.device for each in shown] == [True, True, False, True, True]
    assert await at_spoke(talker, path) == await at_hub(home, path)
    listed = await at_spoke(talker, "/api/conversations")
    assert listed == await at_hub(home, "/api/conversations")
    assert [(each["id"], each["asked"]) for each in listed] == [(talker.conversation, "one")]


async def test_a_question_that_nobody_could_answer_is_recorded_too(home: Home, place: Place) -> None:
    question = "Why,\n" + "oh why, " * 20
    async with open_talker(home, place) as talker:
        talker.line.drop()
        assert (await talker.say(question)).mode == "no_model"
        (known,) = await at_spoke(talker, "/api/conversations")
        shown = await at_spoke(talker, f"/api/conversations/{talker.conversation}")
    assert known["asked"] == "Why, " + "oh why, " * 9 + "oh…"
    (exchange,) = shown["exchanges"]
    assert (exchange["question"], exchange["answer"], exchange["mode"]) == (question, None, None)


async def test_hub_and_spoke_give_the_same_errors(home: Home, talker: Talker) -> None:
    assert await at_spoke(talker, "/api/conversations") == []
    for path in ("/api/conversations/nothing", "/api/conversations?limit=0", "/api/conversations/c?limit=x"):
        async with talker.client() as spoke, home.client() as hub:
            here, there = await spoke.get(path), await hub.get(path)
        assert here.status_code == there.status_code == (404 if "nothing" in path else 422)
        assert here.json() == there.json()


async def test_a_conversation_is_renamed_and_exported_at_a_spoke(home: Home, talker: Talker) -> None:
    await talker.say("one")
    await talker.say("two")
    path = f"/api/conversations/{talker.conversation}"
    async with talker.client() as client:
        assert (await client.patch(path, json={"title": "Numbers"})).status_code == 200
        assert (await client.patch("/api/conversations/none", json={"title": "x"})).status_code == 404
    assert (await at_hub(home, path))["title"] == "Numbers"
    assert await at_spoke(talker, f"{path}/export") == await at_hub(home, f"{path}/export")
    last = (await at_spoke(talker, path))["exchanges"][1]["turn"]
    talker.line.drop()
    assert [each["question"] for each in (await at_spoke(talker, f"{path}?before={last}"))["exchanges"]] == [
        "one"
    ]


async def test_a_conversation_is_deleted_at_the_hub_and_here(home: Home, talker: Talker) -> None:
    path = f"/api/conversations/{talker.conversation}"
    await talker.say("one", turn="t1")
    talker.line.drop()
    await talker.say("two")
    async with talker.client() as client:
        answer = await client.delete(path)
        assert answer.status_code == 503, "the record is at the hub"
        talker.line.restore()
        assert (await client.delete(path)).status_code == 204
        assert (await client.delete(path)).status_code == 404
        assert (await client.get(path)).status_code == 404
    talker.line.drop()
    assert await at_spoke(talker, "/api/conversations") == []
    assert await at_hub(home, "/api/conversations") == []
    talker.line.restore()
    # Its turns are not run again.
    assert "hub received this message before" in (await talker.say("one", turn="t1")).last["message"]
