import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import pytest

from agent_core.gateway.backend import Failure, refused
from agent_core.gateway.fallback import CircuitBreaker
from agent_core.gateway.opening import LiveGateway, open_gateway
from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    FellBack,
    Gateway,
    GatewayEvent,
    ModelRequest,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agent_core.models.entries import LOCAL_ONLY, Model, ModelEntry, Models, choose
from agent_core.provenance import Prompt
from contracts.chat.messages import ChatImage
from contracts.errors import GatewayError, NoModel
from tests.model_server import Breaks, Fails, Garbles, Hangs, Says, ScriptedCall, ScriptedModel

Serve = Callable[..., ScriptedModel]
OpenGateway = Callable[..., AbstractAsyncContextManager[Gateway]]
ADD = ToolSpec(
    "add",
    Prompt("Add two numbers."),
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)
QUESTION = ModelRequest("Be brief.", (UserMessage(Prompt("Hello?")),))


async def ask(gateway: Gateway, request: ModelRequest = QUESTION) -> list[GatewayEvent]:
    return [event async for event in gateway.stream(request)]


async def ask_until_error(gateway: Gateway) -> tuple[list[GatewayEvent], GatewayError]:
    seen: list[GatewayEvent] = []
    try:
        async for event in gateway.stream(QUESTION):
            seen.append(event)  # noqa: PERF401  what came before the error must not be lost
    except GatewayError as error:
        return seen, error
    raise AssertionError("no error came")


def text(events: list[GatewayEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextPart))


async def test_text_comes_in_pieces_and_then_who_said_it(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Says(text="Good morning to all of you.")], name="house")
    async with gateway_to(server) as gateway:
        events = await ask(gateway)
    assert text(events) == "Good morning to all of you."
    assert len(events) > 2
    assert events[-1] == Completed("house", input_tokens=11, output_tokens=7, stop="end")
    assert server.requests[0].said("system") == ["Be brief."]
    assert server.requests[0].said("user") == ["Hello?"]


async def test_a_request_without_tools_sends_none(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Says(text="a"), Says(text="b")])
    async with gateway_to(server) as gateway:
        await ask(gateway)
        await ask(gateway, ModelRequest("s", (UserMessage(Prompt("u")),), (ADD,)))
    assert "tools" not in server.requests[0].body
    assert server.requests[1].tools == ["add"]
    assert server.refused == []


async def test_tool_calls_are_whole_and_in_order(serve: Serve, gateway_to: OpenGateway) -> None:
    calls = (
        ScriptedCall(name="add", arguments={"a": 1, "b": "a longer text than one piece"}),
        ScriptedCall(name="add", arguments="{broken"),
        ScriptedCall(name="never_heard_of", arguments=""),
    )
    server = serve([Says(text="Let me see.", calls=calls)])
    async with gateway_to(server) as gateway:
        events = await ask(gateway, ModelRequest("s", (UserMessage(Prompt("u")),), (ADD,)))
    made = [event for event in events if isinstance(event, ToolCall)]
    assert [(call.name, call.arguments) for call in made] == [
        ("add", {"a": 1, "b": "a longer text than one piece"}),
        ("add", None),
        ("never_heard_of", {}),
    ]
    assert made[1].raw == "{broken"
    assert len({call.id for call in made}) == 3
    assert events[-1] == Completed(server.name, 11, 7, stop="tools")


async def test_a_whole_conversation_is_one_that_a_server_takes(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Says(text="Two.")])
    first = ToolCall("c1", "add", '{"a": 1}', {"a": 1})
    second = ToolCall("c2", "add", '{"a": 2}', {"a": 2})
    messages = (
        UserMessage(Prompt("Add.")),
        AssistantMessage(Prompt("Wait."), (first, second)),
        ToolMessage("c1", "add", Prompt("1")),
        ToolMessage("c2", "add", Prompt("2")),
        AssistantMessage(Prompt("Done.")),
        UserMessage(Prompt("Again.")),
    )
    async with gateway_to(server) as gateway:
        await ask(gateway, ModelRequest("s", messages, (ADD,)))
    assert server.refused == []
    assert server.requests[0].results == ["1", "2"]
    assert server.requests[0].said("user") == ["Add.", "Again."]


async def test_a_picture_goes_to_the_models_that_take_them(serve: Serve, gateway_to: OpenGateway) -> None:
    picture = ChatImage(media_type="image/png", data="iVBORw0KGgo=")
    request = ModelRequest("s", (UserMessage(Prompt("What is it?"), (picture,)),))
    server = serve([Says(text="A cat.")])
    async with gateway_to(server) as gateway:
        assert text(await ask(gateway, request)) == "A cat."
    _, shown = server.requests[0].messages[-1]["content"]
    assert shown["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    blind = serve([])
    async with gateway_to(blind, images=False) as gateway:
        with pytest.raises(GatewayError, match=f"{blind.name} takes no pictures, only text"):
            await ask(gateway, request)
    assert blind.requests == []


async def test_thoughts_are_never_shown(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Says(reasoning="The user wants a greeting", text="Hi.")])
    async with gateway_to(server) as gateway:
        assert text(await ask(gateway)) == "Hi."


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("<think>\nHe says hello, so do I.\n</think>\n\nHi.", "Hi."),
        ("  <think></think>Hi.", "Hi."),
        ("<thin ice", "<thin ice"),
        ("<th", "<th"),
        ("A mark: <think>text</think>", "A mark: <think>text</think>"),
    ],
)
async def test_thoughts_in_the_text_are_taken_off_its_beginning(
    serve: Serve, gateway_to: OpenGateway, said: str, shown: str
) -> None:
    async with gateway_to(serve([Says(text=said)])) as gateway:
        assert text(await ask(gateway)) == shown


async def test_a_call_after_thoughts_is_given_out(serve: Serve, gateway_to: OpenGateway) -> None:
    call = ScriptedCall(name="add", arguments={"a": 1})
    async with gateway_to(serve([Says(text="<think>I add.</think>", calls=(call,))])) as gateway:
        events = await ask(gateway, ModelRequest("s", (UserMessage(Prompt("u")),), (ADD,)))
    assert [type(event) for event in events] == [ToolCall, Completed]


@pytest.mark.parametrize(
    "trouble",
    [
        Fails(status=429),
        Fails(status=401),
        Fails(status=503),
        Garbles(),
        Garbles(body='data: {"choices": [{"delta": {"content": [{"text": "a part"}]}}]}\n\n'),
        Garbles(body="data: " + "[" * 60_000 + "\n\n"),
        Breaks(),
        Says(),
        Says(text=" \n"),
        Says(text="<think>Hm."),
    ],
    ids=[
        *("rate limit", "bad key", "overloaded", "not JSON", "no text", "deep", "broken at once"),
        *("empty", "blank", "thoughts"),
    ],
)
async def test_the_next_model_serves_where_one_gives_no_answer(
    serve: Serve, gateway_to: OpenGateway, trouble: Says
) -> None:
    first, second = serve([trouble], name="first"), serve([Says(text="Here.")], name="second")
    async with gateway_to(first, second) as gateway:
        events = await ask(gateway)
    assert isinstance(events[0], FellBack)
    assert events[0].model == "second"
    assert events[0].reasons[0].startswith("first ")
    assert text(events) == "Here."
    assert isinstance(events[-1], Completed)
    assert events[-1].model == "second"


async def test_why_a_model_refused_is_told_though_the_next_one_serves(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    refusal = Fails(status=401, message="Incorrect API key sk-1 provided")
    servers = [serve([refusal], name=name, api_key="sk-1") for name in ("first", "second")]
    last = serve([Says(text="Here.")], name="last")
    fields = {"api_key_env": "KEY"}
    async with gateway_to(*servers, last, keys={"KEY": "sk-1"}, **fields) as gateway:
        events = await ask(gateway)
    assert isinstance(events[0], FellBack)
    first, second = events[0].reasons
    assert first.startswith("first ")
    assert second.endswith("Incorrect API key *** provided")


async def test_an_answer_that_stops_coming_is_not_waited_for_endlessly(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    text = "one two three four five six seven eight nine"
    for timeout_s in (0.5, 5.0, 15.0):
        server = serve([Says(text=text, gap_s=timeout_s / 3)])
        async with gateway_to(server, timeout_s=timeout_s) as gateway:
            with pytest.raises(GatewayError) as error:
                await ask(gateway)
        # On a machine that stands still not even its beginning came in so little time.
        if "broke off" in error.value.message:
            break
    assert "broke off" in error.value.message


async def test_nobody_answers_and_the_error_names_each_with_what_it_said(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    first = serve([Fails(status=401, message="bad key")], name="first")
    second = serve([Fails(status=400, message="no such\nmodel")], name="second")
    async with gateway_to(first, second) as gateway:
        with pytest.raises(GatewayError) as error:
            await ask(gateway)
    assert "first answered with status 401: " in error.value.message
    assert "bad key" in error.value.message
    assert "second answered with status 400: " in error.value.message
    assert "no such model" in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (404, "answered with status 404: a web page, so the address is none of a model"),
        (502, "answered with status 502"),
        (521, "answered with status 521"),
    ],
)
def test_the_page_of_a_proxy_whose_model_is_away_says_nothing_of_the_address(
    status: int, reason: str
) -> None:
    model = Model(ModelEntry(name="m", provider="openai", model="m", base_url="http://127.0.0.1:1/v1"))
    assert refused(model, status, "<html><title>Bad Gateway</title></html>").reason == reason


async def test_a_server_that_is_not_there_is_named(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([], name="gone")
    server.__exit__(None, None, None)
    async with gateway_to(server, retries=2) as gateway:
        with pytest.raises(GatewayError, match=f"gone cannot be reached at {server.base_url}"):
            await ask(gateway)


async def test_all_answers_empty_is_said(serve: Serve, gateway_to: OpenGateway) -> None:
    async with gateway_to(serve([Says()], name="a"), serve([Says()], name="b")) as gateway:
        with pytest.raises(GatewayError, match=r"a sent an empty answer; b sent an empty answer"):
            await ask(gateway)


async def test_a_broken_stream_keeps_what_came_and_asks_nobody_again(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    first, second = serve([Breaks(text="The answer is ")]), serve([Says(text="Never.")], name="second")
    async with gateway_to(first, second, retries=3) as gateway:
        seen, error = await ask_until_error(gateway)
    assert "broke off" in error.message
    assert text(seen) == "The answer is "
    assert (len(first.requests), len(second.requests)) == (1, 0)


async def test_calls_of_a_broken_answer_are_never_given_out(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Breaks(text="So", calls=(ScriptedCall(name="add", arguments={"a": 1}),))])
    async with gateway_to(server) as gateway:
        seen, _ = await ask_until_error(gateway)
    assert text(seen) == "So"
    assert [event for event in seen if isinstance(event, ToolCall)] == []


async def test_only_those_whose_trouble_passes_are_tried_again(serve: Serve, gateway_to: OpenGateway) -> None:
    refuses, busy = (
        serve([Fails(status=401)] * 3, name="refuses"),
        serve([Fails(status=503), Fails(status=429), Says(text="Now.")], name="busy"),
    )
    async with gateway_to(refuses, busy, retries=2) as gateway:
        assert text(await ask(gateway)) == "Now."
    assert (len(refuses.requests), len(busy.requests)) == (1, 3)


async def test_the_key_is_sent_and_never_said(serve: Serve, gateway_to: OpenGateway) -> None:
    secret = "sk-very-secret-4711"
    server = serve([Says(text="ok"), Fails(status=400, message=f"your key {secret} is odd")], api_key=secret)
    async with gateway_to(server, keys={"HOUSE_KEY": secret}, api_key_env="HOUSE_KEY") as gateway:
        await ask(gateway)
        with pytest.raises(GatewayError) as error:
            await ask(gateway)
    assert server.requests[0].headers["authorization"] == f"Bearer {secret}"
    assert secret not in str(error.value)
    assert "***" in str(error.value)


async def test_cancelling_ends_the_question(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Hangs()])
    async with gateway_to(server) as gateway, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(gateway))
        await asyncio.to_thread(server.wait_for_requests, 1)
        asking.cancel()
    assert asking.cancelled()
    assert await asyncio.to_thread(server.requests[0].abandoned.wait, 30)


async def test_without_a_model_asking_says_what_to_do(kind: str) -> None:
    models = choose((), {}, home=Path("/home/of/it"))
    async with open_gateway(models, kind=kind) as gateway:  # type: ignore[arg-type]
        assert not gateway.models.usable
        with pytest.raises(NoModel) as error:
            await ask(gateway)
    assert "strawberry.toml" in error.value.hint


async def test_a_missing_key_names_variable_and_file_and_the_next_model_serves(
    serve: Serve, kind: str
) -> None:
    server = serve([Says(text="Here.")], name="second")
    entries = (
        ModelEntry(
            name="first", provider="openai", model="m", base_url=server.base_url, api_key_env="HOUSE_KEY"
        ),
        ModelEntry(name="second", provider="openai", model="m", base_url=server.base_url),
    )
    models = choose(entries, {}, home=Path("/home/of/it"))
    assert models.problems == ("first: HOUSE_KEY is not set",)
    assert models.hint == f"Add the line HOUSE_KEY=… to {Path('/home/of/it/.env')}."
    async with open_gateway(models, kind=kind) as gateway:  # type: ignore[arg-type]
        assert [model.entry.name for model in gateway.models.usable] == ["second"]
        assert text(await ask(gateway)) == "Here."


async def test_ollama_gets_the_limit_under_the_name_it_knows(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Says(text="ok")])
    async with gateway_to(server, provider="ollama", max_output_tokens=123) as gateway:
        await ask(gateway)
    assert server.requests[0].body["max_tokens"] == 123
    assert "max_completion_tokens" not in server.requests[0].body


async def test_direct_says_which_providers_it_does_not_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ModelEntry(name="claude", provider="anthropic", model="m")
    monkeypatch.delenv(LOCAL_ONLY)
    models = choose((entry,), {"ANTHROPIC_API_KEY": "k"}, home=Path())
    async with open_gateway(models, kind="direct") as gateway:
        assert gateway.models.problems == ("claude: anthropic needs TensorZero",)
        with pytest.raises(NoModel):
            await ask(gateway)


async def test_tensorzero_takes_a_list_of_every_provider(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve([Says(text="Here.")], name="house")
    entries = (
        ModelEntry(name="house", provider="openai", model='a "quoted" \\ name', base_url=server.base_url),
        ModelEntry(name="claude", provider="anthropic", model="m"),
        ModelEntry(name="gemini", provider="google", model="m", api_key_env="MY_KEY"),
        ModelEntry(name="local", provider="ollama", model="m"),
    )
    monkeypatch.delenv(LOCAL_ONLY)
    models = choose(entries, {"ANTHROPIC_API_KEY": "k", "MY_KEY": "k"}, home=Path())
    assert len(models.usable) == 4
    async with open_gateway(models) as gateway:
        assert text(await ask(gateway)) == "Here."
    assert server.requests[0].body["model"] == 'a "quoted" \\ name'


async def test_without_certificate_authorities_tensorzero_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ModelEntry(name="house", provider="openai", model="m", base_url="http://127.0.0.1:1")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(GatewayError, match="no certificate authorities") as raised:
        async with open_gateway(choose((entry,), {}, home=Path())):
            pass
    assert "ca-certificates" in raised.value.hint


def test_no_model_beyond_this_machine_is_asked_in_tests() -> None:
    entries = (
        ModelEntry(name="cloud", provider="openai", model="m"),
        ModelEntry(name="claude", provider="anthropic", model="m"),
    )
    models = choose(entries, {"ANTHROPIC_API_KEY": "k"}, home=Path())
    assert models == Models((), models.problems, models.hint)
    assert len(models.problems) == 2


def test_importing_the_agent_loads_no_gateway_library() -> None:
    code = (
        "import agent_core.gateway.opening, tests.model_server, sys; "
        "sys.exit([m for m in ('tensorzero', 'httpx', 'ollama') if m in sys.modules] or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_interpreter_ends_well_after_tensorzero(serve: Serve) -> None:
    server = serve(lambda _: Says(text="ok"))
    code = f"""
import asyncio
from pathlib import Path
from agent_core.gateway.opening import open_gateway
from agent_core.gateway.protocol import ModelRequest, UserMessage
from agent_core.models.entries import ModelEntry, choose

async def main():
    entry = ModelEntry(name="m", provider="openai", model="m", base_url={server.base_url!r})
    async with open_gateway(choose((entry,), {{}}, home=Path())) as gateway:
        async for event in gateway.stream(ModelRequest("s", (UserMessage("u"),))):
            pass
    print(event.model)

asyncio.run(main())
"""
    for _ in range(6):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "m\n", "")


async def test_a_model_that_did_not_answer_is_skipped_afterwards(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    first, second = serve([Hangs()], name="first"), serve([Says(text="Here.")] * 2, name="second")
    async with gateway_to(first, second, first={"first_token_s": 1}) as gateway:
        events = await ask(gateway)
        again = await ask(gateway)
    assert events[0] == FellBack("second", ("first did not answer within 1 s",))
    assert (text(again), len(first.requests)) == ("Here.", 1)
    assert not any(isinstance(event, FellBack) for event in again)


async def test_a_skipped_model_is_asked_where_no_other_answers(serve: Serve, gateway_to: OpenGateway) -> None:
    first = serve([Fails(status=503), Says(text="Back.")], name="first")
    second = serve([Says(text="Here."), Fails(status=401)], name="second")
    async with gateway_to(first, second) as gateway:
        await ask(gateway)
        assert text(await ask(gateway)) == "Back."


def test_a_skip_ends_after_a_while_and_lasts_longer_each_time() -> None:
    now = 0.0
    breaker = CircuitBreaker(lambda: now)
    slow = Failure("house", "did not answer within 15 s", "down")
    breaker.failed(slow)
    assert breaker.skipped("house") == ("did not answer within 15 s", 60.0)
    now = 60.0
    assert breaker.skipped("house") is None
    breaker.failed(slow)
    assert breaker.skipped("house") == ("did not answer within 15 s", 120.0)
    breaker.answered("house")
    assert breaker.skipped("house") is None
    breaker.failed(Failure("house", "answered with status 400: too long", "refused"))
    assert breaker.skipped("house") is None


async def test_other_models_are_asked_after_a_reload_and_a_begun_answer_is_completed(serve: Serve) -> None:
    old, new = serve([Says(text="one two three", gap_s=0.05)], name="old"), serve([Says(text="New.")])

    def models_of(server: ScriptedModel) -> Models:
        entry = ModelEntry(name=server.name, provider="openai", model="m", base_url=server.base_url)
        return choose((entry,), {}, home=Path())

    async with LiveGateway(models_of(old)) as gateway:
        answer = gateway.stream(QUESTION)
        begun = await anext(answer)
        gateway.reload(models_of(new), kind="direct")
        assert text(await ask(gateway)) == "New."
        assert text([begun, *[event async for event in answer]]) == "one two three"
        assert [state.name for state in gateway.states()] == [new.name]


async def test_models_are_changed_while_a_request_that_was_left_goes_on(serve: Serve) -> None:
    server = serve([Says(text="Hello."), Says(text="Hello."), Says(text="Hello."), Hangs(text="one")])
    entry = ModelEntry(name="house", provider="openai", model="m", base_url=server.base_url)
    async with LiveGateway(choose((entry,), {}, home=Path())) as gateway:
        for _ in range(3):
            await ask(gateway)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await ask(gateway)
        # So that a loop that waits for it goes on, too, and late.
        released = threading.Timer(60, server.closing.set)
        released.start()
        gateway.reload(Models(), kind="direct")
        await asyncio.sleep(0.5)
        assert released.is_alive()
        server.closing.set()
        released.cancel()
