"""The hub as the brain of a real Home Assistant, through Home Assistant's own integration of Ollama.

2024.3.3 has none, so it is that of a later version. Its client of Ollama keeps the path of an address.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.home_assistant.server import HomeAssistant, install_later
from tests.home_assistant.test_inward import CONFIGURATION, connected, hub_beside
from tests.hub_agent.home import Home
from tests.model_server import Says, ScriptedModel, calls


@pytest.fixture
async def brainy(home_assistant_directory: Path) -> AsyncIterator[HomeAssistant]:
    """A running Home Assistant with the integration, not yet set up."""
    opened = HomeAssistant(home_assistant_directory, configuration=CONFIGURATION)
    install_later(home_assistant_directory, "ollama")
    async with opened as running:
        yield running


async def use_as_brain(assistant: HomeAssistant, home: Home) -> str:
    """Set up the integration with the hub's address; the id of its conversation agent."""
    url = f"{home.hub.url}/ollama/k/{await home.token(scopes=('chat',))}"
    return await assistant.set_up("ollama", {"url": url}, {"model": "strawberry:latest"})


async def said(assistant: HomeAssistant, agent: str, text: str, conversation: str | None = None) -> Any:
    """What Home Assistant answers to a sentence."""
    given = {"conversation_id": conversation} if conversation else {}
    return await assistant.command("conversation/process", text=text, agent_id=agent, **given)


def speech(answer: Any) -> str:
    """The words of an answer."""
    return str(answer["response"]["speech"]["plain"]["speech"])


async def test_it_holds_a_conversation_and_switches_a_light_through_the_hub(
    brainy: HomeAssistant, tmp_path: Path, model: ScriptedModel, sandbox_files: Path
) -> None:
    program = "devices.hub.HomeAssistantSkill.turn_on(name='Kitchen Light')"
    model.script = [
        Says(text="Nice to meet you, Ann."),
        calls("python_exec", code=program),
        Says(text="It is bright now, Ann."),
    ]
    opened = hub_beside(brainy, tmp_path / "home", model_url=model.base_url, sandbox=sandbox_files)
    async with opened as home:
        await connected(home)
        agent = await use_as_brain(brainy, home)
        first = await said(brainy, agent, "I am Ann and I like it bright when I cook.")
        assert speech(first) == "Nice to meet you, Ann."
        second = await said(brainy, agent, "I am going to cook.", first["conversation_id"])
        assert speech(second) == "It is bright now, Ann."
        await brainy.until("light.kitchen", "on")
        # What was said before came with the second message, as the integration keeps it.
        assert "Nice to meet you, Ann." in json.dumps(model.requests[1].body)
        # Without a model, by a sentence.
        assert speech(await said(brainy, agent, "turn off the kitchen light")) == "Turned off Kitchen Light."
        await brainy.until("light.kitchen", "off")
