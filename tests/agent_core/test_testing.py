import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.model_server import Fails, Hangs, Says, ScriptedModel, calls

Serve = Callable[..., ScriptedModel]
USER = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}


def post(server: ScriptedModel, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.base_url}/chat/completions", json={"model": "m", **body})


def test_a_list_is_served_in_order_and_then_ends(serve: Serve) -> None:
    server = serve([Says(text="one"), calls("t", a=1)])
    first, second, third = (post(server, messages=[USER]) for _ in range(3))
    assert first.json()["choices"][0]["message"]["content"] == "one"
    call = second.json()["choices"][0]["message"]["tool_calls"][0]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("t", {"a": 1})
    assert third.status_code == 500
    assert "ends after 2" in third.text


def test_a_function_sees_the_request(serve: Serve) -> None:
    server = serve(lambda seen: Says(text=seen.said("user")[-1].upper()))
    assert post(server, messages=[USER]).json()["choices"][0]["message"]["content"] == "HI"


def test_an_answer_that_hangs_in_the_middle_shows_its_beginning_and_notices_who_leaves(serve: Serve) -> None:
    server = serve([Hangs(text="It begins, ")])
    body = {"model": "m", "messages": [USER], "stream": True}
    came = ""
    with httpx.stream("POST", f"{server.base_url}/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line:
                came += json.loads(line.removeprefix("data: "))["choices"][0]["delta"].get("content", "")
            if came == "It begins, ":
                break
    assert server.requests[0].abandoned.wait(30)


def test_a_status_can_be_scripted_and_a_key_asked_for(serve: Serve) -> None:
    assert post(serve([Fails(status=429)]), messages=[USER]).status_code == 429
    assert post(serve([Says(text="x")], api_key="k"), messages=[USER]).status_code == 401


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "not empty"),
        ([{"role": "bot", "content": "x"}], "unknown role"),
        ([{"role": "user", "content": ""}], "must not be empty"),
        ([USER, {"role": "tool", "tool_call_id": "c", "content": "x"}], "must answer a preceding"),
        ([USER, {"role": "assistant", "tool_calls": [CALL]}, USER], "without an answer: c"),
        ([USER, {"role": "assistant", "tool_calls": [CALL]}], "without an answer: c"),
        ([USER, {"role": "assistant", "content": ""}], "needs content or tool calls"),
        ([USER, {"role": "assistant", "tool_calls": [CALL, CALL]}], "an id of its own"),
    ],
)
def test_what_no_real_server_takes_is_refused(
    serve: Serve, messages: list[dict[str, Any]], says: str
) -> None:
    server = serve([Says(text="never")])
    response = post(server, messages=messages)
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]
    assert len(server.refused) == 1
    assert server.requests == []


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [USER], "model": ""},
        {"messages": [USER], "tools": []},
        {"messages": [USER], "tools": [{"type": "function", "function": {"name": "a b"}}]},
        {"messages": [USER], "tool_choice": "required"},
    ],
)
def test_requests_with_wrong_fields_are_refused(serve: Serve, body: dict[str, Any]) -> None:
    assert post(serve([Says(text="never")]), **body).status_code == 400


def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps([{"kind": "says", "text": "hello"}, {"kind": "fails", "status": 503}]), "utf-8"
    )
    command = [sys.executable, "-m", "tests.model_server", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            body = {"model": "m", "messages": [USER]}
            assert "hello" in httpx.post(f"{url}/chat/completions", json=body).text
            assert httpx.post(f"{url}/chat/completions", json=body).status_code == 503
            assert httpx.get(f"{url}/models").json()["data"][0]["id"] == "scripted"
        finally:
            process.kill()
