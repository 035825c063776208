"""Models over HTTP: their order, keys that are never shown, trying one, and Ollama."""

import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from agent_core.models.entries import read_entries, read_keys
from tests.hub_agent.home import Home, chunks
from tests.model_server import ScriptedModel
from tests.model_server.ollama import FakeModel, FakeOllama
from tests.model_server.script import calls

KEY = "sk-house-4711-secret"


@pytest.fixture
async def client(home: Home) -> AsyncIterator[httpx.AsyncClient]:
    async with home.client() as opened:
        yield opened


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOllama]:
    library = [FakeModel("gemma3:4b", layers=(900_000, 20_000))]
    with FakeOllama(models=[FakeModel("qwen3:4b")], library=library) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.origin)
        yield server


def scripted(model: ScriptedModel, name: str = "house", **more: Any) -> dict[str, Any]:
    return {"name": name, "provider": "openai", "model": "scripted", "base_url": model.base_url, **more}


async def test_the_order_is_written_and_asked_at_once_and_comments_stay(home, client, model):
    file = home.directory / "strawberry.toml"
    file.write_text('# Our house.\n[household]\nlanguage = "de"\n')
    put = await client.put("/api/models", json={"entries": [scripted(model, "a"), scripted(model, "b")]})
    assert put.status_code == 200, put.text
    assert [each["name"] for each in (await client.get("/api/models")).json()["models"]] == ["a", "b"]
    written = put.json()["entries"]
    await client.put("/api/models", json={"entries": [_bare(written[1]), _bare(written[0])]})
    assert [each["name"] for each in (await client.get("/api/models")).json()["models"]] == ["b", "a"]
    assert [entry.name for entry in read_entries(home.directory)] == ["b", "a"]
    assert file.read_text().startswith("# Our house.\n")
    await client.put("/api/models", json={"entries": []})
    assert (await client.get("/api/models")).json()["models"] == []


def _bare(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry as it is sent back: without what only the hub says of it."""
    return {key: entry[key] for key in entry if key not in ("key_variable", "has_key", "problem")}


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([{"name": "a", "provider": "opnai", "model": "m"}], "openai"),
        ([{"name": "a", "provider": "ollama", "model": "m", "base_url": "file:///etc/passwd"}], "http://"),
        ([{"name": "a", "provider": "ollama", "model": "m"}] * 2, "two models are named 'a'"),
        ([{"name": "a", "provider": "ollama", "model": "m", "api_key": "sk"}], "api_key"),
    ],
)
async def test_a_wrong_entry_changes_nothing_and_says_why(home, client, entries, says):
    answer = await client.put("/api/models", json={"entries": entries})
    assert answer.status_code == 422
    assert says in json.dumps(answer.json())
    assert not (home.directory / "strawberry.toml").exists()


async def test_a_key_is_written_for_its_owner_alone_and_never_shown(home, client, model, caplog):
    caplog.set_level(logging.DEBUG)
    await client.put("/api/models", json={"entries": [scripted(model, api_key_env="HOUSE_API_KEY")]})
    before = (await client.get("/api/models/settings")).json()["entries"][0]
    assert (before["has_key"], before["key_variable"]) == (False, "HOUSE_API_KEY")
    written = await client.put("/api/models/keys/HOUSE_API_KEY", json={"key": KEY})
    assert (written.status_code, written.content) == (204, b"")
    file = home.directory / ".env"
    assert file.stat().st_mode & 0o077 == 0
    assert read_keys(home.directory, {}) == {"HOUSE_API_KEY": KEY}
    # It is used at once.
    assert (await client.get("/api/models")).json()["models"][0]["name"] == "house"
    told = [(await client.get(path)).text for path in ("/api/models", "/api/models/settings", "/api/health")]
    assert '"has_key":true' in told[1]
    wrong = await client.put("/api/models/keys/HOUSE_API_KEY", json={"key": f"{KEY}\nPATH=/evil"})
    assert (wrong.status_code, "control character" in wrong.text) == (422, True)
    assert KEY not in "".join([*told, wrong.text, caplog.text])


OTHER_VARIABLES = ["PATH", "LD_PRELOAD", "OLLAMA_HOST", "HUB_DEVICE_TOKEN", "a_API_KEY", "X=Y_API_KEY"]


async def test_no_other_variable_is_written(home, client):
    for name in OTHER_VARIABLES:
        answer = await client.put(f"/api/models/keys/{name}", json={"key": "x"})
        assert answer.status_code == 422, name
        assert not (home.directory / ".env").exists()


async def test_a_model_is_tried_before_it_is_written(client, model):
    model.script = [calls("report_number", number=7)]
    entry = scripted(model, api_key_env="HOUSE_API_KEY")
    tried = (await client.post("/api/models/test", json={"entry": entry, "key": KEY})).json()
    assert (tried["tools"], tried["serves"], tried["problem"]) == ("calls", True, "")
    unknown = await client.post("/api/models/test", json={"name": "nothing"})
    assert unknown.status_code == 404
    dead = {**entry, "base_url": "http://127.0.0.1:9/v1", "api_key_env": None}
    refused = (await client.post("/api/models/test", json={"entry": dead})).json()
    assert refused["problem"]
    assert not refused["serves"]


async def test_ollama_is_listed_and_pulls_with_progress(client, ollama):
    (found,) = (await client.get("/api/ollama")).json()
    assert (found["address"], [each["name"] for each in found["models"]]) == (ollama.origin, ["qwen3:4b"])
    async with client.stream("POST", "/api/ollama/pull", json={"name": "gemma3:4b"}) as stream:
        steps = [step async for step in chunks(stream)]
    assert steps[-1] == {"done": True}
    shares = [step["completed"] / step["total"] for step in steps if step.get("total")]
    assert max(shares) == 1
    assert len(set(shares)) > 3
    async with client.stream("POST", "/api/ollama/pull", json={"name": "nothing:1b"}) as stream:
        steps = [step async for step in chunks(stream)]
    assert "no model nothing:1b" in steps[-1]["error"]["message"]


OTHER_ADDRESSES = [
    {"name": "qwen3:4b", "address": "http://169.254.169.254"},
    {"name": "10.0.0.1:8080/a/b"},
    {"name": "internal.lan/a/b"},
    {"name": "localhost/a/b"},
    {"name": "http://127.0.0.1/a"},
    {"name": "../../x"},
]


async def test_no_other_address_is_asked(client, ollama):
    for body in OTHER_ADDRESSES:
        answer = await client.post("/api/ollama/pull", json=body)
        assert answer.status_code in (404, 422), body


async def test_only_an_admin_changes_models(home, client):
    token = await home.token(scopes=["chat", "call", "confirm"])
    async with home.client(token) as program:
        for method, path, body in (
            ("GET", "/api/models/settings", None),
            ("PUT", "/api/models", {"entries": []}),
            ("POST", "/api/models/test", {"name": "x"}),
            ("PUT", "/api/models/keys/X_API_KEY", {"key": "x"}),
            ("GET", "/api/ollama", None),
            ("POST", "/api/ollama/pull", {"name": "x"}),
        ):
            assert (await program.request(method, path, json=body)).status_code == 403, path


@pytest.fixture
async def left_open(home: Home) -> AsyncIterator[httpx.AsyncClient]:
    async with await home.left_open() as browser:
        yield browser


async def test_a_stored_key_goes_to_another_address_only_with_the_password(home, client, left_open, model):
    entry = scripted(model, api_key_env="HOUSE_API_KEY")
    await client.put("/api/models/keys/HOUSE_API_KEY", json={"key": KEY})
    await client.put("/api/models", json={"entries": [entry]})
    path = {**entry, "base_url": f"{model.base_url}/other"}
    assert (await left_open.put("/api/models", json={"entries": [path]})).status_code == 200
    evil = {**entry, "name": "evil", "base_url": "http://evil.example/v1"}
    other_scheme = {**evil, "base_url": model.base_url.replace("http", "https")}
    for method, route, body in (
        ("PUT", "/api/models", {"entries": [entry, evil]}),
        ("POST", "/api/models/test", {"entry": evil}),
        ("POST", "/api/models/test", {"entry": other_scheme}),
        ("PUT", "/api/models", {"entries": [entry, {**evil, "api_key_env": None}]}),
        ("POST", "/api/agents", {"name": "evil"}),
    ):
        refused = await left_open.request(method, route, json=body)
        assert (refused.status_code, "password" in refused.text) == (403, True), route
    assert [each.name for each in read_entries(home.directory)] == ["house"]
    tricky = {**evil, "base_url": f"http://evil.example\\@{model.base_url.removeprefix('http://')}"}
    assert (await left_open.put("/api/models", json={"entries": [tricky]})).status_code == 422
    # What this browser has just entered it knows.
    await left_open.put("/api/models/keys/HOUSE_API_KEY", json={"key": "sk-own"})
    assert (await left_open.put("/api/models", json={"entries": [evil]})).status_code == 200


async def test_a_key_of_the_environment_is_not_freed_by_writing_one(home, left_open, model, monkeypatch):
    monkeypatch.setenv("HOUSE_API_KEY", KEY)
    await left_open.put("/api/models/keys/HOUSE_API_KEY", json={"key": "sk-own"})
    entry = scripted(model, api_key_env="HOUSE_API_KEY")
    assert (await left_open.put("/api/models", json={"entries": [entry]})).status_code == 403
