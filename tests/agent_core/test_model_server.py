"""The scripted model refuses what real servers refuse, so that tests send nothing else."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.model_server import Says, ScriptedModel
from tests.model_server.ollama import FakeModel, FakeOllama

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}


def post(server: ScriptedModel, **body: Any) -> httpx.Response:
    body = {"model": "m", "messages": [USER], "stream": True, **body}
    return httpx.post(f"{server.base_url}/chat/completions", json=body)


def test_a_list_is_served_in_order_and_then_ends(serve: Callable[..., ScriptedModel]) -> None:
    server = serve([Says(text="one"), Says(text="two")], api_key="k")
    assert post(server).status_code == 401
    server.api_key = ""
    first, second, third = (post(server) for _ in range(3))
    assert ("one" in first.text, "two" in second.text) == (True, True)
    assert (third.status_code, "ends after 2" in third.text) == (500, True)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"messages": []}, "not empty"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "unknown role"),
        ({"messages": [{"role": "user", "content": ""}]}, "must not be empty"),
        ({"messages": [USER, {"role": "tool", "tool_call_id": "c", "content": "x"}]}, "answer a preceding"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, USER]}, "without an answer: c"),
        ({"messages": [USER, {"role": "assistant", "content": ""}]}, "needs content or tool calls"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [CALL, CALL]}]}, "an id of its own"),
        ({"model": ""}, "a model"),
        ({"tools": []}, "not empty"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "invalid tool name"),
        ({"tool_choice": "required"}, "needs tools"),
    ],
)
def test_what_no_real_server_takes_is_refused(
    serve: Callable[..., ScriptedModel], body: dict[str, Any], says: str
) -> None:
    server = serve([Says(text="never")])
    response = post(server, **body)
    assert (response.status_code, server.requests) == (400, [])
    assert says in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"model": "absent"}, 404, "model 'absent' not found"),
        ({"model": "mute", "tools": [{"type": "function"}]}, 400, "does not support tools"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "cannot unmarshal"),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, 400, "arguments"),
    ],
)
def test_what_ollama_refuses_is_refused(
    ollama_with: Callable[..., FakeOllama], body: dict[str, Any], status: int, says: str
) -> None:
    server = ollama_with(models=[FakeModel("qwen3"), FakeModel("mute", capabilities=("completion",))])
    answer = httpx.post(f"{server.origin}/api/chat", json={"model": "qwen3", "messages": [USER], **body})
    assert (answer.status_code, server.requests) == (status, [])
    assert says in answer.json()["error"]
