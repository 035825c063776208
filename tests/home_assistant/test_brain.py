"""The hub as the brain of a real Home Assistant, through Home Assistant's own integration of Ollama.

The integration is that of 2024.4.4, the first version that has it, with what 2024.3.3 lacks put in its place.
Its client of Ollama is a later one, which keeps the path of an address.
"""

import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.home_assistant.server import HINT, VENV, HomeAssistant
from tests.home_assistant.test_inward import CONFIGURATION, connected, hub_beside
from tests.hub_agent.home import Home
from tests.model_server import Says, ScriptedModel, calls
from tests.requirements import require


def install_ollama(directory: Path) -> None:
    """Put the integration among the custom components of a Home Assistant that is not started yet."""
    wheel = next((VENV / "newer").glob("homeassistant-2024.4.4-*.whl"), None)
    require(wheel is not None, HINT)
    place = directory / "custom_components" / "ollama"
    place.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.startswith("homeassistant/components/ollama/"):
                (place / Path(name).name).write_bytes(files.read(name))
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps({**manifest, "version": "2024.4.4"}))
    flow = (place / "config_flow.py").read_text()
    later = "from homeassistant.data_entry_flow import FlowResult as ConfigFlowResult\n"
    flow = flow.replace("    ConfigFlowResult,\n", "").replace("import httpx\n", f"import httpx\n{later}", 1)
    (place / "config_flow.py").write_text(flow)


@pytest.fixture
async def brainy(home_assistant_directory: Path) -> AsyncIterator[HomeAssistant]:
    """A running Home Assistant with the integration, not yet set up."""
    opened = HomeAssistant(home_assistant_directory, configuration=CONFIGURATION)
    install_ollama(home_assistant_directory)
    async with opened as running:
        yield running


async def flow(assistant: HomeAssistant, path: str, body: dict[str, Any]) -> Any:
    """A step of setting up an integration, as its page does it."""
    headers = {"Authorization": f"Bearer {assistant.token}"}
    async with httpx.AsyncClient(base_url=assistant.url, headers=headers, verify=False) as client:
        answer = await client.post(f"/api/config/config_entries/flow{path}", json=body, timeout=120)
    assert answer.is_success, answer.text
    return answer.json()


async def use_as_brain(assistant: HomeAssistant, home: Home) -> str:
    """Set up the integration with the hub's address; the id of its conversation agent."""
    begun = await flow(assistant, "", {"handler": "ollama"})
    url = f"{home.hub.url}/ollama/k/{await home.token(scopes=('chat',))}"
    models = await flow(assistant, f"/{begun['flow_id']}", {"url": url})
    assert not models["errors"], (models, assistant.log())
    made = await flow(assistant, f"/{begun['flow_id']}", {"model": "strawberry:latest"})
    return str(made["result"]["entry_id"])


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


async def test_it_cannot_be_led_in_a_circle(
    brainy: HomeAssistant, tmp_path: Path, model: ScriptedModel, sandbox_files: Path
) -> None:
    program = """
for way in (
    lambda: devices.hub.HomeAssistantSkill.turn_on(name="script.ask"),
    lambda: devices.hub.HomeAssistantSkill.turn_on(name="script.ask_by_another"),
    lambda: devices.hub.HomeAssistantSkill.call_service("conversation.process", data={"text": "again"}),
    lambda: devices.hub.HomeAssistantSkill.call_service("automation.trigger", name="Asker"),
):
    try:
        way()
        print("it went round")
    except Exception as error:
        print(error)
"""
    model.script = [calls("python_exec", code=program), Says(text="I will not.")]
    opened = hub_beside(brainy, tmp_path / "home", model_url=model.base_url, sandbox=sandbox_files)
    async with opened as home:
        await connected(home)
        agent = await use_as_brain(brainy, home)
        assert speech(await said(brainy, agent, "Ask yourself something through me.")) == "I will not."
    [refusals] = model.requests[-1].results
    assert refusals.count("asks an assistant") == 2
    # A person would be asked before the other two, and Home Assistant has none.
    assert refusals.count("needs a person's confirmation") == 2
    assert "it went round" not in refusals
    assert len(model.requests) == 2
