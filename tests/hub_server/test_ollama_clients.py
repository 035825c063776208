"""The hub as its official client knows Ollama: agents are models, and nothing is open without a token."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import ollama
import pytest

from agent_core.models.entries import choose
from deploy.logs.logs import RedactingFormatter
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill
from tests.hub_registry.spokes import eventually
from tests.model_server import ScriptedModel
from tests.model_server.script import Hangs, Says, calls

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Say how the weather is.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


@asynccontextmanager
async def client_of(home: Home, key: str = "") -> AsyncIterator[ollama.AsyncClient]:
    """The official client with a bearer token, or with one in its address."""
    headers = {} if key else {"Authorization": f"Bearer {home.admin_token}"}
    async with ollama.AsyncClient(f"{home.hub.url}/ollama{key}", headers=headers, verify=False) as client:
        yield client


@pytest.fixture
async def client(home: Home) -> AsyncIterator[ollama.AsyncClient]:
    async with client_of(home) as opened:
        yield opened


@pytest.fixture
async def asking(thinking: Home) -> AsyncIterator[ollama.AsyncClient]:
    """A client of a home with a model."""
    async with client_of(thinking) as opened:
        yield opened


async def test_agents_are_models(client: ollama.AsyncClient) -> None:
    listed = await client.list()
    assert [model.model for model in listed.models] == ["assistant:latest", "strawberry:latest"]
    assert [model.model for model in (await client.ps()).models] == ["assistant:latest", "strawberry:latest"]
    shown = await client.show("strawberry:latest")
    assert shown.capabilities == ["completion", "tools"]
    with pytest.raises(ollama.ResponseError, match="there is no agent 'llama3'") as refused:
        await client.show("llama3")
    assert refused.value.status_code == 404


async def test_a_message_is_answered_whole_and_in_lines(home: Home, client: ollama.AsyncClient) -> None:
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp)
    said = [{"role": "user", "content": "turn on the lamp"}]
    whole = await client.chat("strawberry", said)
    assert (whole.message.role, whole.message.content) == ("assistant", "The lamp is at 100 percent.")
    assert (whole.done, whole.done_reason) == (True, "stop")
    lamp.level = 0
    parts = [part async for part in await client.chat("assistant:latest", said, stream=True)]
    assert "".join(part.message.content or "" for part in parts) == "The lamp is at 100 percent."
    assert [part.done for part in parts[-2:]] == [False, True]
    assert lamp.level == 100
    generated = await client.generate("strawberry", "turn on the lamp")
    assert generated.response == "The lamp is at 100 percent."
    assert (await client.generate("strawberry")).done_reason == "load"
    assert (await client.chat("strawberry")).done_reason == "load"


async def test_history_goes_with_the_message_and_a_text_to_stop_at_ends_the_answer(
    asking: ollama.AsyncClient, model: ScriptedModel
) -> None:
    model.script = [Says(text="One, two, three.")] * 3
    said = [
        {"role": "system", "content": "Talk like a pirate."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "ahoy"},
        {"role": "user", "content": "count"},
    ]
    whole = await asking.chat("assistant", said, options={"stop": [", thr"]})
    parts = await asking.chat("assistant", said, options={"stop": [", thr"]}, stream=True)
    at_once = await asking.chat("assistant", said, options={"stop": ["One"]}, stream=True)
    assert [(part.message.content, part.done) async for part in at_once] == [("", True)]
    assert whole.message.content == "One, two"
    assert "".join([part.message.content or "" async for part in parts]) == "One, two"
    assert (whole.prompt_eval_count, whole.eval_count) == (11, 7)
    told = "\n".join(model.requests[0].said("user"))
    assert "pirate" in told
    assert "ahoy" in told


async def test_a_tool_of_the_client_is_called_by_the_client(
    asking: ollama.AsyncClient, model: ScriptedModel
) -> None:
    model.script = [calls("weather", town="Berlin"), Says(text="It rains in Berlin.")]
    said = [{"role": "user", "content": "how is the weather?"}]
    asked = await asking.chat("assistant", said, tools=[WEATHER])
    (call,) = asked.message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("weather", {"town": "Berlin"})
    assert model.requests[0].tools == ["weather"]
    assert "python_exec" not in model.requests[0].said("system")[0]
    answered = await asking.chat(
        "assistant",
        [*said, asked.message, {"role": "tool", "content": "rain", "tool_name": "weather"}],
        tools=[WEATHER],
    )
    assert answered.message.content == "It rains in Berlin."
    (result,) = model.requests[1].results
    assert '<data from="outside" of="weather">\nrain' in result


async def test_a_client_without_a_header_has_its_token_in_the_path(
    home: Home, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await home.token(scopes=("chat",))
    caplog.set_level(logging.DEBUG)
    async with client_of(home, f"/k/{token}") as client:
        assert (await client.list()).models
        with pytest.raises(ollama.ResponseError, match="Not Found"):
            await client.delete("strawberry")
    app, ended = f"{home.hub.url}/ollama", httpx.AsyncClient(timeout=60, verify=False)
    async with ended as http:
        for path in ("/api/tags", "/k//api/tags", "/k/nonsense/api/tags", "/api/version", "/"):
            assert (await http.get(f"{app}{path}")).status_code == 401, path
        assert (await http.get(f"{app}/k/{token}/api/version")).status_code == 200
        for slashes in ("//ollama/k", "/ollama//k", "/ollama/k/"):
            doubled = await http.get(f"{home.hub.url}{slashes}/{token}/api/version")
            assert doubled.status_code == 200, slashes
        missing = await http.get(f"{home.hub.url}/other/ollama/k/{token}/api/version")
        assert missing.status_code == 404
        assert token not in missing.text
        # As curl sends it, without saying that it is JSON.
        sent = await http.post(f"{app}/k/{token}/api/show", content=b'{"model": "strawberry"}')
        assert sent.status_code == 200
        calls_only = await home.token(scopes=("call",))
        assert (await http.get(f"{app}/k/{calls_only}/api/tags")).status_code == 403

        def broken(*_: object) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr("hub_server.http.ollama._listed", broken)
        assert (await http.get(f"{app}/k/{token}/api/tags")).status_code == 500
    audit = (await _audit(home)).text
    formatter = RedactingFormatter("%(message)s")
    hub_log = [formatter.format(each) for each in caplog.records if not each.name.startswith("http")]
    assert any("/ollama/api/tags failed" in line for line in hub_log)
    for secret in (token, calls_only):
        assert secret not in "\n".join(
            each.getMessage() for each in caplog.records if each.name[:4] != "http"
        )
        assert secret not in "\n".join(hub_log)
        assert secret not in audit


async def _audit(home: Home) -> httpx.Response:
    async with home.client() as admin:
        return await admin.get("/api/audit")


async def test_leaving_a_stream_cancels_its_turn(
    thinking: Home, asking: ollama.AsyncClient, model: ScriptedModel
) -> None:
    model.script = [Hangs(text="I think ")]
    said = [{"role": "user", "content": "think"}]
    parts = await asking.chat("assistant", said, stream=True)
    async for _ in parts:
        break
    assert isinstance(parts, AsyncGenerator)
    await parts.aclose()
    async with thinking.client() as admin:

        async def stopped() -> bool:
            (turn,) = (await admin.get("/api/turns")).json()["turns"]
            return bool(turn["outcome"] == "stopped")

        await eventually(model.requests[0].abandoned.is_set)
        await eventually(stopped)


async def test_an_error_is_a_text(asking: ollama.AsyncClient, model: ScriptedModel) -> None:
    model.script = lambda _: Says(text="")
    with pytest.raises(ollama.ResponseError, match="sent an empty answer"):
        await asking.chat("assistant", [{"role": "user", "content": "hello"}])
    with pytest.raises(ollama.ResponseError, match="sent an empty answer"):
        async for _ in await asking.chat("assistant", [{"role": "user", "content": "hello"}], stream=True):
            pass
    with pytest.raises(ollama.ResponseError, match="must be 'image/png', 'image/jpeg'"):
        await asking.generate("assistant", "what is this?", images=[b"no picture"])


async def test_a_family_that_asks_without_a_model_is_named_no_command(tmp_path: Path) -> None:
    asked, models = [{"role": "user", "content": "Why?"}], choose((), {}, home=tmp_path)
    async with open_home(tmp_path / "home", models=models) as home, client_of(home) as client:
        with pytest.raises(ollama.ResponseError, match="An admin can add one under Models") as whole:
            await client.chat("strawberry", asked)
        with pytest.raises(ollama.ResponseError, match="An admin can add one under Models") as in_lines:
            async for _ in await client.chat("strawberry", asked, stream=True):
                pass
    assert "strawberry" not in whole.value.error + in_lines.value.error
