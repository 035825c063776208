"""The hub's search, by words and by meaning."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_core.models.entries import Model, ModelEntry
from agent_core.skills.skill import Skill
from tests.embedding_server import EmbeddingServer
from tests.hub_agent.home import open_home


class MealSkill(Skill):
    """Food."""

    def lunch(self) -> str:
        """Serve pasta with tomato sauce."""
        return "pasta"


def office() -> list[Skill]:
    """Make skills that have nothing to do with food."""
    papers = (
        "contract",
        "letter",
        "invoice",
        "passport",
        "ticket",
        "diploma",
        "stamp",
        "cheque",
        "visa",
        "form",
    )

    def sign(self: Skill) -> str:
        return "signed"

    made = []
    for paper in papers:
        documented = type(sign)(sign.__code__, globals(), "sign")
        documented.__doc__ = f"Sign a {paper}."
        documented.__annotations__ = {"return": str}
        made.append(type(f"{paper.title()}Skill", (Skill,), {"sign": documented, "__doc__": "Papers."})())
    return made


@pytest.mark.parametrize("has_model", [False, True])
async def test_the_hub_finds_by_meaning(tmp_path: Path, has_model: bool) -> None:
    with EmbeddingServer() as server:
        entry = ModelEntry(name="embeddings", provider="openai", model="small", base_url=server.url)
        model = Model(entry) if has_model else None
        async with open_home(tmp_path / "home", embeddings=model) as home, home.client() as client:
            await home.device("Hall PC", MealSkill(), *office())
            results: list[dict[str, Any]] = []
            async with asyncio.timeout(60):
                # The vectors come in the background, and until its own has come it is not the nearest.
                while not results or "Meal" not in results[0]["path"]:
                    answer = await client.get("/api/skills/search", params={"q": "spaghetti"})
                    results = answer.json()["results"]
    assert results[0]["path"] == "devices.hall_pc.MealSkill.lunch"
    assert bool(server.texts) is has_model
