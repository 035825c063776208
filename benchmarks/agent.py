"""What the agent itself costs: a turn around the model, a sentence, and the prompt."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx

from agent_core.gateway.opening import open_gateway
from agent_core.gateway.protocol import Gateway, ToolCall, ToolSpec
from agent_core.loop import TurnRequest, run_turn
from agent_core.models.entries import ModelEntry, choose
from agent_core.prompt import Household, system_prompt
from agent_core.provenance import Prompt
from agent_core.search.catalogue import Target
from agent_core.sentences.index import SentenceIndex
from agent_core.sentences.understanding import Said, Understanding
from agent_core.tools.toolset import TOOL_SPECS, ToolOutcome
from agent_core.turn import TurnContext
from benchmarks.measure import Effort, median_ms
from benchmarks.table import Reach, Row
from contracts.chat.messages import TurnEvent, TurnFinal
from contracts.devices.registration import Method
from tests.model_server import Says, ScriptedCall

_TURNS: Final = 100
_WARM_UP: Final = 10
_TEMPLATES: Final = 1_000
_SKILLS: Final = 1_000
_ROOMS: Final = 50
_KINDS: Final = (
    ("LampSkill", ("turn_on", "turn_off")),
    ("BlindSkill", ("open", "close")),
    ("FanSkill", ("turn_on", "turn_off")),
    ("DoorSkill", ("lock", "unlock")),
    ("PumpSkill", ("turn_on", "turn_off")),
)
_EVERYDAY: Final = {
    "en": "please turn on the lamp in room 10",
    "de": "schalte bitte die Lampe in Room 10 ein",
}


class _Instant:
    """The three tools, each with its answer ready."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return TOOL_SPECS

    async def run(self, call: ToolCall, context: TurnContext) -> ToolOutcome:
        return ToolOutcome(ok=True, text=Prompt("=> 2"))


@asynccontextmanager
async def _model_server(directory: Path, replies: list[Says]) -> AsyncIterator[str]:
    script = directory / "script.json"
    script.write_text(json.dumps([reply.model_dump() for reply in replies]), "utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.model_server", str(script), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def _turn(directory: Path, effort: Effort) -> list[Row]:
    """Measure a turn of two answers and one tool call, less two bare requests to the same server."""
    pair = [
        Says(calls=(ScriptedCall(name="python_exec", arguments={"code": "1+1"}),)),
        Says(text="It is two."),
    ]
    turns = effort.repeats(_TURNS)
    async with _model_server(directory, pair * 2 * (_WARM_UP + turns)) as url:
        entry = ModelEntry(name="scripted", provider="openai", model="m", base_url=url)
        async with (
            open_gateway(choose((entry,), {}, home=directory)) as gateway,
            httpx.AsyncClient() as client,
        ):
            whole = await median_ms(lambda: _run_turn(gateway), repeats=turns, warm_up=_WARM_UP)
            bare = await median_ms(lambda: _two_requests(client, url), repeats=turns, warm_up=_WARM_UP)
    return [
        Row("agent turn without model and skill time", whole - bare, "ms", Reach(most=10)),
        Row("  the whole turn, beside two bare requests to its model server", whole, "ms", reference=bare),
    ]


async def _run_turn(gateway: Gateway) -> None:
    request = TurnRequest(turn="t", message="How much is 1+1?", system=system_prompt(Household()))
    events: list[TurnEvent] = []
    await run_turn(request, gateway=gateway, toolset=_Instant(), emit=events.append)
    assert isinstance(events[-1], TurnFinal), events[-1]


async def _two_requests(client: httpx.AsyncClient, url: str) -> None:
    messages = [{"role": "user", "content": "How much is 1+1?"}]
    for _ in range(2):
        body = {"model": "m", "messages": messages, "stream": True}
        (await client.post(f"{url}/chat/completions", json=body)).raise_for_status()


async def _sentence(effort: Effort) -> Row:
    """Match among a thousand templates, the utterance being one of them."""
    index = SentenceIndex()
    index.put(_target(number) for number in range(_TEMPLATES))

    async def match() -> None:
        assert index.match("set the volume of speaker 500 to 30 percent", language="en", current=None)

    took = await median_ms(match, repeats=effort.repeats(_TURNS), warm_up=_WARM_UP)
    return Row(f"sentence match alone, among {_TEMPLATES:,} templates", took, "ms")


async def _everyday(language: str, text: str, effort: Effort) -> Row:
    """Understand what no skill declares, in a home with a thousand skills in fifty rooms."""
    understanding = Understanding(SentenceIndex())
    for number in range(_SKILLS):
        skill, names = _KINDS[number % len(_KINDS)]
        found = [_everyday_target(number, skill, name) for name in names]
        rooms, device = (f"Room {number % _ROOMS}",), (f"device {number}",)
        understanding.intents.put(found, source=f"d{number}", kind=None, names=device, places=rooms)
    said = Said(text, language, "d0", "Room 0", lambda _: True, lambda *_: True, lambda *_: None)
    await understanding.warm(language)

    async def match() -> None:
        assert await understanding.meaning(said, is_patient=True) is not None

    took = await median_ms(match, repeats=effort.repeats(_TURNS), warm_up=_WARM_UP)
    row = f"an everyday sentence ({language}) to its call, among {_SKILLS:,} skills, p50"
    return Row(row, took, "ms", Reach(most=15))


def _everyday_target(number: int, skill: str, name: str) -> Target:
    method = Method(name=name, signature=f"{name}() -> None", parameters={"type": "object", "properties": {}})
    return Target(f"devices.d{number}.{skill}.{name}", f"d{number}", f"Device {number}", skill, method)


def _target(number: int) -> Target:
    method = Method(
        name=f"set_volume_{number}",
        signature="set_volume(level: int) -> None",
        parameters={
            "type": "object",
            "properties": {"level": {"type": "integer"}},
            "required": ["level"],
            "additionalProperties": False,
        },
        sentences={"en": [f"(set|turn) [the] volume of speaker {number} to {{level}} [percent]"]},
    )
    path = f"devices.d{number}.MusicSkill.{method.name}"
    return Target(path, f"d{number}", f"Speaker {number}", "MusicSkill", method)


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; needs nothing but loopback.

    Args:
        directory: For files that last as long as the run.
    """
    everyday = [await _everyday(language, text, effort) for language, text in _EVERYDAY.items()]
    return [*await _turn(directory, effort), await _sentence(effort), *everyday]
