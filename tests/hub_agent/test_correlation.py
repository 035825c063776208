"""The ids that join the lines of hub and spoke."""

import json
import logging
from functools import partial

import pytest

from agent_core.skills.skill import Skill, skill_method
from contracts.tracing.correlation import ids
from deploy.logs.logs import JsonFormatter
from tests.hub_agent.home import Home
from tests.model_server import Says, ScriptedModel, calls


class NotingSkill(Skill):
    """Writes down what it works for."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    @skill_method()
    def note(self) -> None:
        """Note the ids."""
        self.seen.append(dict(ids()))
        logging.getLogger("strawberry.skills.NotingSkill").warning("noted")


class Lines(logging.Handler):
    """Keeps the lines that a log as JSON has."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, str]] = []
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


async def test_a_skill_works_for_the_request_the_turn_and_the_call_of_its_hub(
    thinking: Home, model: ScriptedModel, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    caplog.set_level(logging.DEBUG, "bus.rpc")
    logging.getLogger().addHandler(log := Lines())
    request.addfinalizer(partial(logging.getLogger().removeHandler, log))
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
    assert (seen["request"], seen["turn"]) == ("mine", answer.json()["turn"])
    assert len(seen["call"]) == 36
    told = [each["message"] for each in log.lines if each.items() >= seen.items()]
    # Lines of the hub, of the spoke and of the skill.
    assert [each.rpartition(".")[2] for each in told[:3]] == ["note is called", "note is called", "noted"]
