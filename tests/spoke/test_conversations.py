"""Reading what was said at a spoke; and one conversation that went on at two places."""

from typing import Any

from tests.hub_agent.home import Home
from tests.hub_registry.spokes import eventually
from tests.spoke.home import Place
from tests.spoke.talk import Talker, open_talker


async def at_spoke(talker: Talker, path: str) -> Any:
    async with talker.client() as client:
        return (await client.get(path)).json()


async def at_hub(home: Home, path: str) -> Any:
    async with home.client() as client:
        return (await client.get(path)).json()


async def test_a_conversation_that_went_on_at_two_places_is_shown_alike_at_both(
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
    assert [each["question"] for each in here["exchanges"]] == ["one", "two", "four"]
    assert [each["question"] for each in there["exchanges"]] == ["one", "three"]

    talker.line.restore()
    await talker.say("five")

    async def is_alike() -> bool:
        return bool(await at_spoke(talker, path) == await at_hub(home, path))

    await eventually(is_alike)
    shown = (await at_spoke(talker, path))["exchanges"]
    assert [(each["question"], each["answer"], each["mode"]) for each in shown] == [
        ("one", "The hub answers.", "online"),
        ("two", "The spoke answers.", "offline"),
        ("three", "The hub answers.", "online"),
        ("four", "The spoke answers.", "offline"),
        ("five", "The hub answers.", "online"),
    ]
    assert [each.get("device") == talker.spoke.device for each in shown] == [True, True, False, True, True]
    assert shown == sorted(shown, key=lambda each: str(each["at"]))
    listed = await at_spoke(talker, "/api/conversations")
    assert listed == await at_hub(home, "/api/conversations")
    assert [(each["id"], each["asked"]) for each in listed] == [(talker.conversation, "one")]


async def test_a_question_that_nobody_could_answer_is_shown_too(home: Home, place: Place) -> None:
    question = "Why,\n" + "oh why, " * 20
    async with open_talker(home, place) as talker:
        talker.line.drop()
        assert (await talker.say(question)).mode == "no_model"
        (known,) = await at_spoke(talker, "/api/conversations")
        shown = await at_spoke(talker, f"/api/conversations/{talker.conversation}")
    assert known["asked"] == "Why, " + "oh why, " * 9 + "oh…"
    (exchange,) = shown["exchanges"]
    assert (exchange["question"], exchange["answer"], exchange["mode"]) == (question, None, None)


async def test_an_unknown_conversation_and_a_wrong_limit_are_said_as_by_the_hub(
    home: Home, talker: Talker
) -> None:
    assert await at_spoke(talker, "/api/conversations") == []
    for path in ("/api/conversations/nothing", "/api/conversations?limit=0", "/api/conversations/c?limit=x"):
        async with talker.client() as spoke, home.client() as hub:
            here, there = await spoke.get(path), await hub.get(path)
        assert here.status_code == there.status_code == (404 if "nothing" in path else 422)
        assert here.json() == there.json()
