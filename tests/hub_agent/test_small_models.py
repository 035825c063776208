"""A small model behind the hub: it calls skills of real devices as tools of its own."""

from pathlib import Path
from typing import Any

from agent_core.models.entries import Model, ModelEntry, Models
from tests.hub_agent.home import Home, chunks, events_of, open_home, says, text_of
from tests.hub_agent.skills import LampSkill
from tests.model_server import Says, calls
from tests.model_server.ollama import FakeModel, FakeOllama

SCRIPT = [
    calls("LampSkill_turn_on", level=30, device="hall_pc"),
    Says(text="The lamp is at 30 percent."),
    calls("LampSkill_turn_on", level=20, device="bedroom_pc"),
    Says(text="That one, too."),
]


async def ask(home: Home, message: str) -> list[Any]:
    body, headers = {**says(message), "stream": True}, {"x-strawberry-conversation": "c1"}
    async with (
        home.client() as client,
        client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response,
    ):
        return [chunk async for chunk in chunks(response)]


async def test_a_small_model_dims_the_lamps_that_the_messages_are_about(
    tmp_path: Path, sandbox_files: Path
) -> None:
    bedroom, hall = LampSkill(), LampSkill()
    with FakeOllama(SCRIPT, models=[FakeModel("qwen3:1.7b")]) as ollama:
        small = ModelEntry(
            name="small", provider="ollama", model="qwen3:1.7b", base_url=ollama.origin, tools="native"
        )
        models = Models(usable=(Model(small),))
        async with open_home(tmp_path / "home", sandbox=sandbox_files, models=models) as home:
            await home.device("Bedroom PC", bedroom)
            await home.device("Hall PC", hall)
            seen = await ask(home, "a bit of light from the lamp in the hall")
            assert (hall.level, bedroom.level) == (30, 0)
            # What this one is about stands in the message before.
            later = await ask(home, "and upstairs")
    assert (hall.level, bedroom.level) == (30, 20)
    assert (text_of(seen), text_of(later)) == ("The lamp is at 30 percent.", "That one, too.")
    final = events_of(seen)[-1]
    assert (final["mode"], final["model"]) == ("online", "small")
    first, second, third, _ = ollama.requests
    assert first.tools[0] == "search_skills"
    assert "python_exec" not in first.tools
    assert "LampSkill_turn_on" in first.tools
    assert "LampSkill_turn_on" in third.tools
    assert "30 percent" in second.results[0]
    assert ollama.refused == []
