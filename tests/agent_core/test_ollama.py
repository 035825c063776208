"""Ollama in the product: where it is, which models it has, and asking them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from agent_core.gateway.fallback import RetryPolicy
from agent_core.gateway.ollama import chat_tools
from agent_core.gateway.opening import open_gateway
from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    FellBack,
    Gateway,
    GatewayEvent,
    ModelRequest,
    Remark,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agent_core.loop import TurnRequest, run_turn
from agent_core.models.entries import GatewayKind, ModelEntry, choose
from agent_core.models.ollama import ollama_address, open_ollama
from agent_core.provenance import Prompt
from contracts.chat.messages import ChatImage, Notice, TurnEvent, TurnFinal
from contracts.errors import ConfigError, GatewayError, NotFound
from tests.model_server import Breaks, Fails, Garbles, Hangs, Says, ScriptedModel, calls
from tests.model_server.ollama import FakeModel, FakeOllama

Serve = Callable[..., FakeOllama]
QWEN = FakeModel("qwen3:4b")
MUTE = FakeModel("mute", capabilities=("completion",))
QUESTION = ModelRequest("Be brief.", (UserMessage(Prompt("Hello?")),))
DIM = ToolSpec(
    "dim",
    Prompt("Dim a lamp."),
    {
        "type": "object",
        "properties": {
            "level": {"type": "integer", "minimum": 0, "maximum": 100, "default": 50},
            "where": {"anyOf": [{"$ref": "#/$defs/Room"}, {"type": "null"}]},
        },
        "required": ["level"],
        "$defs": {"Room": {"type": "string", "enum": ["hall", "attic"]}},
    },
)


@asynccontextmanager
async def asking(
    server: FakeOllama,
    *names: str,
    kind: GatewayKind = "tensorzero",
    first: Mapping[str, object] | None = None,
    **fields: object,
) -> AsyncIterator[Gateway]:
    """Open a gateway to these models of a server; the first may have fields of its own."""
    entries = tuple(
        ModelEntry.model_validate(
            {
                "name": name.partition(":")[0],
                "provider": "ollama",
                "model": name,
                "base_url": server.origin,
                **fields,
                **((first or {}) if number == 0 else {}),
            }
        )
        for number, name in enumerate(names or ("qwen3:4b",))
    )
    models = choose(entries, {}, home=Path("/home/of/it"))
    async with open_gateway(models, kind=kind, retry=RetryPolicy(retries=0)) as gateway:
        yield gateway


async def ask(gateway: Gateway, request: ModelRequest = QUESTION) -> list[GatewayEvent]:
    return [event async for event in gateway.stream(request)]


def text(events: list[GatewayEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextPart))


async def test_a_picture_goes_only_to_a_model_that_has_eyes(ollama_with: Serve) -> None:
    picture = ChatImage(media_type="image/png", data="iVBORw0KGgo=")
    request = ModelRequest("s", (UserMessage(Prompt("What is it?"), (picture,)),))
    async with asking(ollama_with([], models=[QWEN])) as gateway:
        with pytest.raises(GatewayError, match="takes no pictures, only text"):
            await ask(gateway, request)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("1.2.3.4", "http://1.2.3.4:11434"),
        (":5678", "http://127.0.0.1:5678"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:5678", "http://127.0.0.1:5678"),
        ("http://pi.local", "http://pi.local:80"),
        ("https://pi.local/ollama/", "https://pi.local:443/ollama"),
        ("[::1]:5678", "http://[::1]:5678"),
        ("[::]", "http://[::1]:11434"),
        ('"pi.local"', "http://pi.local:11434"),
    ],
)
def test_ollama_is_found_where_ollama_itself_would_look(value: str, address: str) -> None:
    assert ollama_address({"OLLAMA_HOST": value}) == address


@pytest.mark.parametrize("value", ["pi:port", "ftp://pi"])
def test_an_address_that_is_none_is_told(value: str) -> None:
    with pytest.raises(ConfigError, match="OLLAMA_HOST"):
        ollama_address({"OLLAMA_HOST": value})


def test_an_entry_without_an_address_takes_the_one_that_ollama_has() -> None:
    entry = ModelEntry(name="local", provider="ollama", model="m")
    (model,) = choose((entry,), {"OLLAMA_HOST": "127.0.0.1:5678"}, home=Path()).usable
    assert model.entry.address == "http://127.0.0.1:5678"
    far = choose((entry,), {"OLLAMA_HOST": "192.0.2.1"}, home=Path())
    assert far.usable == ()


async def test_models_are_listed_with_what_they_can_do(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="x")], models=[QWEN, MUTE])
    async with asking(server) as gateway:
        await ask(gateway)
    async with open_ollama(server.origin) as ollama:
        mute, qwen = await ollama.models()
    assert (mute.name, mute.calls_tools, mute.loaded_context) == ("mute:latest", False, None)
    assert (qwen.calls_tools, qwen.context_length, qwen.loaded_context) == (True, 40_960, 8192)
    assert (qwen.size, qwen.parameters, qwen.quantization) == (2_020_000, "4.0B", "Q4_K_M")


async def test_no_ollama_is_told_with_what_to_do(ollama_with: Serve) -> None:
    server = ollama_with()
    server.__exit__(None, None, None)
    async with open_ollama(server.origin) as ollama:
        with pytest.raises(GatewayError, match=f"no Ollama answers at {server.origin}") as error:
            await ollama.models()
    assert "ollama serve" in error.value.hint


async def test_something_else_at_that_address_is_told() -> None:
    with ScriptedModel() as other:
        async with open_ollama(other.origin) as ollama:
            with pytest.raises(GatewayError, match="is not Ollama"):
                await ollama.models()


async def test_a_pull_that_the_library_does_not_know_is_told(ollama_with: Serve) -> None:
    server = ollama_with(library=[QWEN])
    async with open_ollama(server.origin) as ollama:
        with pytest.raises(NotFound, match="no model absent"):
            [step async for step in ollama.pull("absent")]
        server.pull_error = "max retries exceeded"
        with pytest.raises(GatewayError, match="max retries exceeded"):
            [step async for step in ollama.pull("qwen3:4b")]
        assert [step.status async for step in ollama.pull("qwen3:4b")][-1] == "success"


async def test_a_pull_that_is_left_stops_and_goes_on_later(ollama_with: Serve) -> None:
    server = ollama_with(library=[FakeModel("qwen3:4b", layers=(800,))])
    # Its third piece of eight is the last one.
    server.held_pull = 5
    async with open_ollama(server.origin) as ollama:
        async with aclosing(ollama.pull("qwen3:4b")) as steps:
            async for step in steps:
                if step.completed == 300:
                    break
        assert server.models == ()
        server.held_pull = None
        later = [step async for step in ollama.pull("qwen3:4b")]
    assert later[1].completed == 300
    models: list[FakeModel] = list(server.models)
    assert [model.tag for model in models] == ["qwen3:4b"]


@pytest.mark.parametrize("kind", ["tensorzero", "direct"])
async def test_an_answer_comes_over_its_own_api(ollama_with: Serve, kind: GatewayKind) -> None:
    server = ollama_with([Says(text="Good morning to all of you.", reasoning="Hm.")], models=[QWEN])
    async with asking(server, kind=kind, max_output_tokens=123) as gateway:
        events = await ask(gateway)
    assert text(events) == "Good morning to all of you."
    assert events[-1] == Completed("qwen3", input_tokens=11, output_tokens=7, stop="end")
    (request,) = server.requests
    assert request.path == "/api/chat"
    assert request.body["options"]["num_predict"] == 123
    assert request.said("system") == ["Be brief."]


async def test_tools_are_called_and_their_results_go_back(ollama_with: Serve) -> None:
    server = ollama_with([calls("dim", level=3), Says(text="Done.")], models=[QWEN])
    async with asking(server) as gateway:
        first = await ask(gateway, ModelRequest("s", (UserMessage(Prompt("Dim it.")),), (DIM,)))
        (call,) = [event for event in first if isinstance(event, ToolCall)]
        assert (call.name, call.arguments, call.raw) == ("dim", {"level": 3}, '{"level": 3}')
        assert isinstance(first[-1], Completed)
        assert first[-1].stop == "tools"
        messages = (
            UserMessage(Prompt("Dim it.")),
            AssistantMessage(Prompt(""), (call,)),
            ToolMessage(call.id, "dim", Prompt("3")),
        )
        assert text(await ask(gateway, ModelRequest("s", messages, (DIM,)))) == "Done."
    assert server.requests[-1].results == ["3"]
    assert server.requests[-1].messages[-1]["tool_name"] == "dim"
    assert server.refused == []


async def test_a_schema_keeps_its_meaning_in_the_form_that_ollama_knows(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="x")], models=[QWEN])
    async with asking(server) as gateway:
        await ask(gateway, ModelRequest("s", (UserMessage(Prompt("u")),), (DIM,)))
    parameters = server.requests[0].body["tools"][0]["function"]["parameters"]
    assert parameters["required"] == ["level"]
    assert parameters["properties"]["level"] == {
        "type": "integer",
        "description": '{"minimum": 0, "maximum": 100, "default": 50}',
    }
    assert parameters["properties"]["where"]["type"] == ["string", "null"]


async def test_the_context_is_as_long_as_the_prompt_needs(ollama_with: Serve) -> None:
    server = ollama_with(lambda seen: Says(text=str(seen.fits)), models=[QWEN])
    async with asking(server) as gateway:
        for size in (10, 40_000, 10):
            events = await ask(
                gateway, ModelRequest("s", (UserMessage(Prompt("x" * size)), UserMessage(Prompt("Well?"))))
            )
            assert text(events) == "True"
            assert not [event for event in events if isinstance(event, Remark)]
    # It does not shrink again: each other length loads the model anew.
    assert [request.num_ctx for request in server.requests] == [8192, 32_768, 32_768]


async def test_what_cannot_fit_is_told(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="What?")] * 2, models=[FakeModel("small", context_length=2048)])
    async with asking(server, "small") as gateway:
        assert not [event for event in await ask(gateway) if isinstance(event, Remark)]
        events = await ask(
            gateway, ModelRequest("s", (UserMessage(Prompt("x" * 9_000)), UserMessage(Prompt("Well?"))))
        )
    assert isinstance(events[0], Remark)
    assert "small does not see the whole prompt" in events[0].text
    assert "trained for 2048" in events[0].text
    assert [request.num_ctx for request in server.requests] == [2048, 2048]


async def test_the_person_is_told_what_cannot_fit(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="What?")], models=[FakeModel("small", context_length=2048)])
    request = TurnRequest(turn="t1", message="x" * 9_000, system="Be brief.")
    async with asking(server, "small") as gateway:
        events: list[TurnEvent] = []
        await run_turn(request, gateway=gateway, toolset=None, emit=events.append)
    assert isinstance(events[0], Notice)
    assert "small does not see the whole prompt" in events[0].text
    assert isinstance(events[-1], TurnFinal)


async def test_letters_that_are_long_count_as_such(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="ok")], models=[QWEN])
    async with asking(server) as gateway:
        await ask(gateway, ModelRequest("s", (UserMessage(Prompt("灯" * 10_000)),)))
    assert server.requests[0].num_ctx == 16_384


def test_a_nested_schema_is_told_in_words() -> None:
    song = {"type": "object", "properties": {"title": {"type": "string"}, "year": {"type": "integer"}}}
    parameters = {
        "type": "object",
        "properties": {
            "songs": {"type": "array", "items": {"$ref": "#/$defs/Song"}, "description": "What to play"},
            "names": {"type": "array", "items": {"type": "string"}},
            "mode": {"enum": ["once", "again"], "default": "once"},
            "anything": True,
        },
        "$defs": {"Song": song},
    }
    (tool,) = chat_tools([ToolSpec("play", Prompt("Play."), parameters)])
    assert tool["function"]["parameters"] == {
        "type": "object",
        "required": [],
        "properties": {
            "songs": {
                "type": "array",
                "description": f"What to play; {json.dumps({'items': song})}",
            },
            "names": {"type": "array", "items": {"type": "string"}},
            "mode": {"enum": ["once", "again"], "description": '{"default": "once"}'},
            "anything": {},
        },
    }


def test_a_schema_that_branches_into_itself_is_written_out_once() -> None:
    nested = {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Nested"}] * 40}}
    parameters = {"properties": {"x": {"$ref": "#/$defs/Nested"}}, "$defs": {"Nested": nested}}
    (tool,) = chat_tools([ToolSpec("do", Prompt("Do."), parameters)])
    assert tool["function"]["parameters"]["properties"]["x"]["type"] == "array"


async def test_the_user_may_bound_the_context(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="What?")], models=[QWEN])
    async with asking(server, max_context_tokens=3000) as gateway:
        events = await ask(gateway, ModelRequest("s", (UserMessage(Prompt("x" * 12_000)),)))
    assert isinstance(events[0], Remark)
    assert "max_context_tokens allows 3000" in events[0].text
    assert server.requests[0].num_ctx == 3000


async def test_a_model_that_cannot_call_tools_is_left_for_the_next_with_advice(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="Here.")], models=[MUTE, QWEN])
    async with asking(server, "mute", "qwen3:4b") as gateway:
        events = await ask(gateway, ModelRequest("s", (UserMessage(Prompt("u")),), (DIM,)))
    assert isinstance(events[0], FellBack)
    assert events[0].model == "qwen3"
    assert "mute cannot call tools" in events[0].reasons[0]
    assert "says 'tools'" in events[0].reasons[0]


async def test_a_model_that_is_not_there_is_told_with_the_command_that_gets_it(ollama_with: Serve) -> None:
    async with asking(ollama_with(), "qwen3:4b") as gateway:
        with pytest.raises(GatewayError, match=r"strawberry models pull qwen3:4b"):
            await ask(gateway)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Fails(status=500, message="llama runner process has terminated"), "llama runner process"),
        (Fails(status=404, message="404 page not found"), "answered with status 404: 404 page not found"),
        (Fails(status=404, message="<html>Not found</html>"), "the address is none of a model"),
        (Garbles(), "not an answer of Ollama"),
        (Garbles(body='{"error": "out of memory"}\n'), "out of memory"),
        (Breaks(), "broke the connection"),
        (Hangs(), "did not answer within 0.3 s"),
        (Says(), "sent an empty answer"),
    ],
)
async def test_each_trouble_is_left_for_the_next_model(ollama_with: Serve, reply: object, says: str) -> None:
    # By model: one whose time is over while its length is asked is never sent the question.
    replies = {"qwen3:4b": reply, "other": Says(text="Here.")}
    server = ollama_with(lambda seen: replies[seen.body["model"]], models=[QWEN, FakeModel("other")])
    impatient = {"first_token_s": 0.3} if isinstance(reply, Hangs) else {}
    async with asking(server, "qwen3:4b", "other", first=impatient) as gateway:
        events = await ask(gateway)
    assert isinstance(events[0], FellBack)
    assert says in events[0].reasons[0]
    assert text(events) == "Here."


async def test_an_answer_that_breaks_off_keeps_what_came(ollama_with: Serve) -> None:
    server = ollama_with([Breaks(text="The answer is ")], models=[QWEN])
    async with asking(server) as gateway:
        events = gateway.stream(QUESTION)
        assert await anext(events) == TextPart("The answ")
        with pytest.raises(GatewayError, match="broke off"):
            [event async for event in events]


async def test_a_server_that_goes_away_is_named(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="Here.")], models=[QWEN])
    async with asking(server) as gateway:
        await ask(gateway)
        server.__exit__(None, None, None)
        with pytest.raises(GatewayError, match=f"qwen3 cannot be reached at {server.origin}"):
            await ask(gateway)


async def test_cancelling_ends_the_question(ollama_with: Serve) -> None:
    server = ollama_with([Hangs()], models=[QWEN])
    async with asking(server) as gateway, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(ask(gateway))
        await asyncio.to_thread(server.wait_for_requests, 1)
        task.cancel()
    assert task.cancelled()
    assert await asyncio.to_thread(server.requests[0].abandoned.wait, 30)


async def test_where_the_address_says_so_the_other_api_is_asked(ollama_with: Serve) -> None:
    server = ollama_with([Says(text="Here.")], models=[QWEN])
    async with asking(server, base_url=server.base_url, max_output_tokens=99) as gateway:
        assert text(await ask(gateway)) == "Here."
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body["max_tokens"] == 99
    assert "max_completion_tokens" not in request.body


async def test_ollama_and_other_providers_stand_in_one_list(ollama_with: Serve) -> None:
    local = ollama_with([Says(text="From here.")], models=[QWEN])
    with ScriptedModel([Fails(status=401, message="bad key")]) as far:
        entries = (
            ModelEntry(name="far", provider="openai", model="m", base_url=far.base_url),
            ModelEntry(name="near", provider="ollama", model="qwen3:4b", base_url=local.origin),
        )
        async with open_gateway(choose(entries, {}, home=Path())) as gateway:
            events = await ask(gateway)
    assert isinstance(events[0], FellBack)
    assert events[0].reasons[0].startswith("far ")
    assert text(events) == "From here."
