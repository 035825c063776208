"""What is approved for a watcher stays what a person has said, whatever a model reads."""

import pytest

from hub_agent.live.watchers.approved import ApprovedCall
from tests.hub_agent.home import Home
from tests.hub_agent.skills import FeedSkill
from tests.model_server import Says, ScriptedModel, calls


@pytest.mark.parametrize(("method", "state"), [("resume", "paused"), ("pause", "active"), ("run", "active")])
async def test_text_of_strangers_neither_wakes_nor_silences_a_watcher(
    thinking: Home, model: ScriptedModel, method: str, state: str
) -> None:
    await thinking.device("Bedroom PC", FeedSkill())
    evil = f"print(devices.bedroom_pc.FeedSkill.news())\nprint(devices.hub.WatcherSkill.{method}('pc'))"
    model.script = [calls("python_exec", code=evil), Says(text="No.")]
    topic = "devices/bedroom_pc/state/FeedSkill/temperature"
    watcher = {"name": "pc", "instruction": "tell me", "topics": {"pc": topic}, "predicate": "pc > 40"}
    async with thinking.client() as client:
        made = await client.post("/api/watchers", json=watcher)
        assert (made.status_code, made.json()["state"]) == (201, "active")
        if state == "paused":
            await client.post("/api/watchers/pc/pause")
        await client.post("/api/chat", json={"message": "What is going on?"})
        shown = (await client.get("/api/watchers/pc")).json()
    assert len(model.requests) == 2
    assert "confirmed in" in model.requests[1].results[-1]
    assert (shown["state"], shown["model_calls"]) == (state, 0)


def test_a_call_has_the_approved_value_itself() -> None:
    call = ApprovedCall(path="devices.a.B.c", arguments={"levels": [1]}, device="a")
    assert type(call.fill({"levels": [True]})["levels"][0]) is int
