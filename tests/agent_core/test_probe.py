import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_core.models.entries import GatewayKind, Model, ModelEntry, choose
from agent_core.setup.probe import probe
from tests.model_server import Fails, Hangs, Says, ScriptedModel, calls
from tests.model_server.ollama import FakeModel, FakeOllama

Serve = Callable[..., ScriptedModel]
Ollama = Callable[..., FakeOllama]


def model(server: ScriptedModel, **fields: object) -> Model:
    given = {"name": "house", "provider": "openai", "model": "m", "base_url": server.base_url, **fields}
    (found,) = choose((ModelEntry.model_validate(given),), {"KEY": "sk-secret"}, home=Path()).usable
    return found


def local(server: FakeOllama, name: str) -> Model:
    return Model(ModelEntry(name="local", provider="ollama", model=name, base_url=server.origin))


async def test_a_model_that_calls_tools_is_recognised(serve: Serve, kind: GatewayKind) -> None:
    found = await probe(model(serve([calls("report_number", number=7)])), kind=kind)
    assert (found.answers, found.tools, found.advice) == (True, "calls", "")
    assert 0 < found.first_s <= found.seconds


@pytest.mark.parametrize(
    ("said", "tools", "advice"),
    [
        ('{"name": "report_number", "arguments": {"number": 7}}', "prints", "fails more often"),
        ("The number is 7.", "none", "says 'tools'"),
    ],
)
async def test_a_model_that_does_not_call_tools_is_recognised(
    serve: Serve, said: str, tools: str, advice: str
) -> None:
    found = await probe(model(serve([Says(text=said)])))
    assert (found.answers, found.tools) == (True, tools)
    assert advice in found.advice


async def test_a_wrong_argument_is_no_call(serve: Serve) -> None:
    found = await probe(model(serve([calls("report_number", number=8)])))
    assert found.tools == "none"


async def test_a_model_of_ollama_without_the_ability_is_recognised_and_still_answers(
    ollama_with: Ollama,
) -> None:
    server = ollama_with([Says(text="ready")], models=[FakeModel("mute", capabilities=("completion",))])
    found = await probe(local(server, "mute"))
    assert (found.answers, found.tools) == (True, "none")
    assert "can talk, but not act" in found.advice
    assert "does not support tools" in server.refused[0]


async def test_why_a_model_gives_no_answer_is_told_without_its_key(serve: Serve, ollama_with: Ollama) -> None:
    refusal = Fails(status=401, message="bad key sk-secret")
    found = await probe(model(serve([refusal, refusal]), api_key_env="KEY"))
    assert not found.answers
    assert "bad key ***" in found.problem
    absent = await probe(local(ollama_with(), "qwen3:4b"))
    assert "strawberry models pull qwen3:4b" in absent.problem


async def test_a_model_that_lets_its_time_run_out_is_asked_once(serve: Serve) -> None:
    server = serve([Hangs(), Says(text="ready")])
    slow = await probe(model(server, first_token_s=1), kind="direct")
    assert "did not answer within 1 s" in slow.problem
    # The server, in its thread, may see it later.
    assert await asyncio.to_thread(server.wait_for_requests, 1)
    assert len(server.requests) == 1


async def test_a_short_question_needs_no_tool(serve: Serve) -> None:
    server = serve([Says(text="ready")])
    found = await probe(model(server), tools=False)
    assert (found.answers, found.tools) == (True, "untried")
    assert server.requests[0].tools == []
