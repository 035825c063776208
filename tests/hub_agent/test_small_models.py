"""A small model behind the hub: it calls skills of real devices as tools of its own."""

from pathlib import Path

from agent_core.models import Model, ModelEntry, Models
from agent_core.testing import Says, calls
from agent_core.testing.ollama import FakeModel, FakeOllama
from tests.hub_agent.home import chunks, events_of, open_home, says, text_of
from tests.hub_agent.skills import LampSkill


async def test_a_small_model_dims_the_lamp_that_the_message_is_about(
    tmp_path: Path, sandbox_files: Path
) -> None:
    bedroom, hall = LampSkill(), LampSkill()
    script = [calls("LampSkill_turn_on", level=30, device="hall_pc"), Says(text="The lamp is at 30 percent.")]
    with FakeOllama(script, models=[FakeModel("qwen3:1.7b")]) as ollama:
        small = ModelEntry(
            name="small", provider="ollama", model="qwen3:1.7b", base_url=ollama.origin, tools="native"
        )
        models = Models(usable=(Model(small),))
        async with open_home(tmp_path / "home", sandbox=sandbox_files, models=models) as home:
            await home.device("Bedroom PC", bedroom)
            await home.device("Hall PC", hall)
            async with (
                home.client() as client,
                client.stream(
                    "POST",
                    "/v1/chat/completions",
                    json={**says("a bit of light in the hall"), "stream": True},
                ) as response,
            ):
                seen = [chunk async for chunk in chunks(response)]
    assert text_of(seen) == "The lamp is at 30 percent."
    assert hall.level == 30
    assert bedroom.level != 30
    final = events_of(seen)[-1]
    assert (final["mode"], final["model"]) == ("online", "small")
    first, last = ollama.requests
    assert first.tools[0] == "search_skills"
    assert "LampSkill_turn_on" in first.tools
    assert "python_exec" not in first.tools
    assert "30 percent" in last.results[0]
    assert ollama.refused == []
