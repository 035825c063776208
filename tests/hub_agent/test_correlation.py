"""The ids that join the lines of hub and spoke."""

from agent_core.skills.skill import Skill
from contracts.correlation import ids
from tests.hub_agent.home import Home
from tests.model_server import Says, ScriptedModel, calls


class NotingSkill(Skill):
    """Writes down what it works for."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    def note(self) -> None:
        """Note the ids."""
        self.seen.append(dict(ids()))


async def test_a_skill_works_for_the_turn_and_the_call_of_its_hub(
    thinking: Home, model: ScriptedModel
) -> None:
    await thinking.device("Bedroom PC", skill := NotingSkill())
    model.script = [calls("python_exec", code="devices.bedroom_pc.NotingSkill.note()"), Says(text="Done.")]
    async with thinking.client() as http:
        answer = await http.post(
            "/api/chat", json={"message": "note it", "turn": "turn-1"}, headers={"X-Request-ID": "mine"}
        )
        other = await http.get("/api/health", headers={"X-Request-ID": "two\twords"})
    assert answer.headers["x-request-id"] == "mine"
    assert len(other.headers["x-request-id"]) == 36
    (seen,) = skill.seen
    assert seen["turn"] == answer.json()["turn"]
    assert len(seen["call"]) == 36
