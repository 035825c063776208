"""The fake Ollama through the official client, and over the wire where that client says too little."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import ollama
import pytest

from tests.model_server import Breaks, Fails, Hangs, Says, ScriptedCall, calls
from tests.model_server.ollama import FakeModel, FakeOllama

Serve = Callable[..., FakeOllama]
USER = {"role": "user", "content": "Is anybody home?"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "dim",
        "description": "Dim a lamp.",
        "parameters": {"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]},
    },
}
QWEN = FakeModel("qwen3:4b")


def client(server: FakeOllama) -> ollama.AsyncClient:
    return ollama.AsyncClient(host=server.origin)


def test_it_says_that_it_runs_and_its_version(ollama_with: Serve) -> None:
    server = ollama_with(version="0.12.6")
    assert httpx.get(server.origin).text == "Ollama is running"
    assert httpx.get(f"{server.origin}/api/version").json() == {"version": "0.12.6"}
    assert httpx.get(f"{server.origin}/api/nothing").status_code == 404


async def test_models_are_listed_and_shown(ollama_with: Serve) -> None:
    server = ollama_with(models=[QWEN, FakeModel("gemma3", capabilities=("completion",), family="gemma3")])
    async with client(server) as asking:
        first, second = (await asking.list()).models
        shown = await asking.show("gemma3")
    assert (first.model, first.size, second.model) == ("qwen3:4b", 2_020_000, "gemma3:latest")
    assert first.details is not None
    assert (first.details.parameter_size, first.details.quantization_level) == ("4.0B", "Q4_K_M")
    assert shown.capabilities == ["completion"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["gemma3.context_length"] == 40_960


def test_the_other_api_lists_models_too(ollama_with: Serve) -> None:
    server = ollama_with(models=[QWEN, FakeModel("gemma3")])
    listed = httpx.get(f"{server.base_url}/models").json()
    assert [model["id"] for model in listed["data"]] == ["qwen3:4b", "gemma3:latest"]


async def test_a_chat_comes_whole_or_in_pieces(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="Nobody is home."), Says(text="Still nobody is here.")], models=[QWEN])
    async with client(server) as asking:
        whole = await asking.chat("qwen3:4b", [USER])
        pieces = [piece async for piece in await asking.chat("qwen3:4b", [USER], stream=True)]
    assert (whole.message.content, whole.done, whole.done_reason) == ("Nobody is home.", True, "stop")
    assert whole.eval_count == 7
    assert len(pieces) > 2
    assert "".join(piece.message.content or "" for piece in pieces) == "Still nobody is here."
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]


async def test_tool_calls_come_with_arguments_as_objects(ollama_with: Serve) -> None:
    server = ollama_with([calls("dim", level=3)] * 2, models=[QWEN])
    async with client(server) as asking:
        whole = await asking.chat("qwen3:4b", [USER], tools=[TOOL])
        pieces = [piece async for piece in await asking.chat("qwen3:4b", [USER], tools=[TOOL], stream=True)]
    for message in (whole.message, pieces[0].message):
        assert message.tool_calls is not None
        assert (message.tool_calls[0].function.name, message.tool_calls[0].function.arguments) == (
            "dim",
            {"level": 3},
        )
    assert server.requests[0].tools == ["dim"]


async def test_thoughts_come_in_a_field_of_their_own(ollama_with: Serve) -> None:
    thinker = FakeModel("thinker", capabilities=("completion", "thinking"))
    server = ollama_with([Says(text="Yes.", reasoning="Hm.")], models=[thinker])
    async with client(server) as asking:
        answer = await asking.chat("thinker", [USER], think=True)
    assert (answer.message.thinking, answer.message.content) == ("Hm.", "Yes.")


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"model": "absent"}, 404, "model 'absent' not found"),
        ({"model": ""}, 400, "model is required"),
        ({"model": "mute", "tools": [TOOL]}, 400, "mute:latest does not support tools"),
        ({"model": "mute", "think": True}, 400, "does not support thinking"),
        ({"messages": "hello"}, 400, "cannot unmarshal"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
            400,
            "cannot unmarshal",
        ),
        (
            {
                "messages": [
                    USER,
                    {"role": "assistant", "tool_calls": [{"function": {"name": "dim", "arguments": "{}"}}]},
                ]
            },
            400,
            "arguments",
        ),
        ({"tools": [{"type": "function"}]}, 400, "cannot unmarshal"),
    ],
)
def test_what_ollama_refuses_is_refused(
    ollama_with: Serve, fields: dict[str, Any], status: int, says: str
) -> None:
    server = ollama_with(models=[QWEN, FakeModel("mute", capabilities=("completion",))])
    body = {"model": "qwen3:4b", "messages": [USER], **fields}
    answer = httpx.post(f"{server.origin}/api/chat", json=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert server.requests == []


def test_a_body_that_is_no_json_is_refused(ollama_with: Serve) -> None:
    server = ollama_with(models=[QWEN])
    answer = httpx.post(f"{server.origin}/api/chat", content=b"<chat>")
    assert (answer.status_code, answer.json()["error"][:17]) == (400, "invalid character")
    assert httpx.post(f"{server.origin}/api/chat").json() == {"error": "missing request body"}


def test_the_other_api_refuses_in_its_own_form(ollama_with: Serve) -> None:
    server = ollama_with(models=[FakeModel("mute", capabilities=("completion",))])
    url = f"{server.base_url}/chat/completions"
    absent = httpx.post(url, json={"model": "absent", "messages": [USER]})
    assert absent.status_code == 404
    assert absent.json()["error"]["type"] == "not_found_error"
    tools = httpx.post(url, json={"model": "mute", "messages": [USER], "tools": [TOOL]})
    assert "does not support tools" in tools.json()["error"]["message"]
    empty = httpx.post(url, json={"model": "mute", "messages": []})
    assert empty.status_code == 400


async def test_errors_reach_the_official_client(ollama_with: Serve) -> None:
    server = ollama_with([Fails(status=503, message="server busy"), Breaks(text="So ")], models=[QWEN])
    async with client(server) as asking:
        with pytest.raises(ollama.ResponseError, match="not found") as absent:
            await asking.show("absent")
        with pytest.raises(ollama.ResponseError, match="server busy"):
            await asking.chat("qwen3:4b", [USER])
        with pytest.raises(httpx.RemoteProtocolError):
            [piece async for piece in await asking.chat("qwen3:4b", [USER], stream=True)]
    assert absent.value.status_code == 404


async def test_a_client_that_leaves_is_noticed(ollama_with: Serve) -> None:
    server = ollama_with([Hangs()], models=[QWEN])
    impatient = httpx.Timeout(30, read=0.2)
    async with ollama.AsyncClient(host=server.origin, timeout=impatient) as asking:
        with pytest.raises(httpx.ReadTimeout):
            await asking.chat("qwen3:4b", [USER])
    assert server.wait_for_requests(1)
    assert server.requests[0].abandoned.wait(30)


async def test_an_answer_that_hangs_in_the_middle_shows_its_beginning_and_notices_who_leaves(
    ollama_with: Serve,
) -> None:
    server = ollama_with([Hangs(text="It begins, ")], models=[QWEN])
    async with client(server) as asking:
        pieces, came = await asking.chat("qwen3:4b", [USER], stream=True), ""
        while came != "It begins, ":
            came += (await anext(pieces)).message.content or ""
        await pieces.aclose()
    assert server.requests[0].abandoned.wait(30)


async def test_what_does_not_fit_into_the_context_is_forgotten(ollama_with: Serve) -> None:
    server = ollama_with(lambda seen: Says(text=str(len(seen.kept))), models=[QWEN])
    long = [
        {"role": "system", "content": "Be brief."},
        *({"role": "user", "content": "x" * 8_000} for _ in range(4)),
        USER,
    ]
    async with client(server) as asking:
        by_default = await asking.chat("qwen3:4b", long)
        asked_for = await asking.chat("qwen3:4b", long, options={"num_ctx": 16_384})
        too_much = await asking.chat("qwen3:4b", long, options={"num_ctx": 1_000_000})
        running = (await asking.ps()).models
    assert by_default.message.content == "4"
    assert asked_for.message.content == too_much.message.content == "6"
    assert [request.num_ctx for request in server.requests] == [4096, 16_384, 40_960]
    assert server.requests[0].kept[0]["role"] == "system"
    assert server.requests[0].kept[-1] == USER
    assert [(model.model, model.context_length) for model in running] == [("qwen3:4b", 40_960)]


def test_the_other_api_takes_no_context_length(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="x")], models=[QWEN])
    body = {"model": "qwen3:4b", "messages": [USER], "num_ctx": 16_384, "options": {"num_ctx": 16_384}}
    assert httpx.post(f"{server.base_url}/chat/completions", json=body).status_code == 200
    assert server.requests[0].num_ctx == 4096


def test_the_other_api_answers_as_openai_does(ollama_with: Serve) -> None:
    reply = Says(text="I dim it.", calls=(ScriptedCall(name="dim", arguments={"level": 3}),))
    server = ollama_with([reply, reply], models=[QWEN])
    url, body = (
        f"{server.base_url}/chat/completions",
        {"model": "qwen3:4b", "messages": [USER], "tools": [TOOL]},
    )
    choice = httpx.post(url, json=body).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I dim it.", "tool_calls")
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"level": 3}'
    lines = httpx.post(url, json={**body, "stream": True}).text.split("\n\n")
    assert lines[-2] == "data: [DONE]"
    assert '"index": 0' in "".join(lines)


async def test_a_chat_without_messages_loads_the_model(ollama_with: Serve) -> None:
    server = ollama_with(models=[QWEN])
    async with client(server) as asking:
        answer = await asking.chat("qwen3:4b", [], options={"num_ctx": 8192})
        (running,) = (await asking.ps()).models
    assert (answer.done_reason, running.context_length) == ("load", 8192)


async def test_a_pull_tells_how_far_it_is_and_then_the_model_is_there(ollama_with: Serve) -> None:
    server = ollama_with(library=[FakeModel("llama3.2", layers=(800, 80))])
    async with client(server) as asking:
        steps = [step async for step in await asking.pull("llama3.2", stream=True)]
        (model,) = (await asking.list()).models
    assert [step.status for step in steps][:: len(steps) - 1] == ["pulling manifest", "success"]
    assert [(step.completed, step.total) for step in steps if step.total == 800][-1] == (800, 800)
    assert model.model == "llama3.2:latest"


async def test_a_pull_that_was_left_goes_on_where_it_was(ollama_with: Serve) -> None:
    server = ollama_with(library=[FakeModel("llama3.2", layers=(800,))])
    # Its third piece of eight is the last one.
    server.held_pull = 5
    async with client(server) as asking:
        steps = await asking.pull("llama3.2", stream=True)
        async for step in steps:
            if step.completed == 300:
                break
        await steps.aclose()  # type: ignore[attr-defined]
        server.held_pull = None
        first = [step async for step in await asking.pull("llama3.2", stream=True)][1]
    assert first.completed == 300


async def test_a_pull_fails_as_ollama_lets_it_fail(ollama_with: Serve) -> None:
    server = ollama_with(library=[FakeModel("llama3.2")])
    server.pull_error = "max retries exceeded"
    async with client(server) as asking:
        with pytest.raises(ollama.ResponseError, match="file does not exist"):
            [step async for step in await asking.pull("absent", stream=True)]
        with pytest.raises(ollama.ResponseError, match="max retries exceeded"):
            [step async for step in await asking.pull("llama3.2", stream=True)]
        with pytest.raises(ollama.ResponseError, match="file does not exist"):
            await asking.pull("absent")
        assert (await asking.list()).models == []


async def test_what_is_loaded_is_shown_with_its_context_and_until_when(ollama_with: Serve) -> None:
    server = ollama_with(
        lambda seen: Says(text="Yes."), models=[QWEN, FakeModel("gemma3"), FakeModel("phi4")]
    )
    async with client(server) as asking:
        assert list((await asking.ps()).models) == [], "a model that was pulled is not loaded yet"
        await asking.chat("qwen3:4b", [USER], options={"num_ctx": 8192})
        [piece async for piece in await asking.chat("gemma3", [USER], stream=True, keep_alive=-1)]
        await asking.chat("phi4", [USER], keep_alive="1h30m")
        for_ever, long, short = (await asking.ps()).models
    assert [model.name for model in (for_ever, long, short)] == ["gemma3:latest", "phi4:latest", "qwen3:4b"]
    assert (short.model, short.size, short.size_vram, short.context_length) == (
        "qwen3:4b",
        2_020_000,
        0,
        8192,
    )
    assert short.details is not None
    assert (short.details.family, short.details.quantization_level) == ("qwen3", "Q4_K_M")
    assert short.digest == QWEN.digest
    now = datetime.now(UTC)
    assert for_ever.expires_at is not None
    assert long.expires_at is not None
    assert short.expires_at is not None
    assert for_ever.expires_at.year > 2300
    assert timedelta(hours=1) < long.expires_at - now <= timedelta(hours=1.5)
    assert timedelta(minutes=1) < short.expires_at - now <= timedelta(minutes=5), (
        "as long as Ollama's default"
    )


async def test_a_model_is_let_go_at_once_where_that_is_asked_for(ollama_with: Serve) -> None:
    server = ollama_with(lambda seen: Says(text="Yes."), models=[QWEN])
    async with client(server) as asking:
        await asking.chat("qwen3:4b", [USER])
        assert len((await asking.ps()).models) == 1
        assert (await asking.chat("qwen3:4b", [], keep_alive=0)).done_reason == "unload"
        assert list((await asking.ps()).models) == []
        await asking.chat("qwen3:4b", [USER], keep_alive="0s")
        assert list((await asking.ps()).models) == []


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"model": "absent"}, 404, "model 'absent' not found"),
        ({"model": 5}, 400, "cannot unmarshal number into Go struct field ChatRequest.model of type string"),
        ({"stream": "no"}, 400, "ChatRequest.stream of type bool"),
        ({"keep_alive": "soon"}, 400, 'time: invalid duration "soon"'),
        ({"keep_alive": True}, 400, "Unsupported type: 'bool'"),
        ({"options": []}, 400, "ChatRequest.options"),
        ({"options": {"num_ctx": "many"}}, 500, 'option "num_ctx" must be of type integer'),
    ],
)
def test_what_is_refused_loads_nothing(
    ollama_with: Serve, fields: dict[str, Any], status: int, says: str
) -> None:
    server = ollama_with(models=[QWEN])
    answer = httpx.post(f"{server.origin}/api/chat", json={"model": "qwen3:4b", "messages": [USER], **fields})
    assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text
    assert httpx.get(f"{server.origin}/api/ps").json() == {"models": []}


def test_what_is_loaded_cannot_be_posted(ollama_with: Serve) -> None:
    server = ollama_with(models=[QWEN])
    assert httpx.post(f"{server.origin}/api/ps", json={}).status_code == 405
    assert httpx.get(f"{server.origin}/api/chat").status_code == 405
    assert httpx.post(f"{server.origin}/api/show", json={"model": ["qwen3"]}).status_code == 400
