"""A home of real processes over Mosquitto: programs, sentences, what a model is sent, and memory."""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from paho.mqtt.enums import MQTTProtocolVersion

from agent_core.prompt import estimate_tokens
from benchmarks import crowd
from benchmarks.brokers import Bus
from benchmarks.bus import echoing, run_echo
from benchmarks.measure import Effort, sandbox_directory
from benchmarks.table import Reach, Row, not_measured
from bus.link import LinkSettings, open_link
from contracts.errors import SandboxError
from identity.keys import KeyPair
from sandbox_host import install
from tests.e2e.house import House
from tests.model_server import Says, ScriptedModel, text_of
from tests.mosquitto import HINT, Mosquitto, find_mosquitto

_CALLS: Final = 100
_PROGRAMS: Final = 20
_ROUNDS: Final = 4
"""Echo and programs take turns, so that a noisy neighbour hits both."""

_SENTENCES: Final = 15
"""The hub takes some twenty messages of one user at once."""

_CROWD: Final = 250
_SETTLE_S: Final = 2.0

_SKILL: Final = '''
import time

from spoke import Skill, skill_method


class BenchSkill(Skill):
    """Does next to nothing."""

    @skill_method()
    async def echo(self, text: str) -> str:
        """Give the text back."""
        return text

    @skill_method(sentences={"en": ["tell me the bench clock"]})
    async def clock(self) -> str:
        """Say when it was called, by the clock that all processes of one machine share."""
        return repr(time.perf_counter())
'''
_ECHO: Final = "devices.bench_pc.BenchSkill.echo"
_PROGRAM: Final = f"for n in range({_CALLS}): {_ECHO}('x' * 20)"
_GATHERED: Final = f"len(await asyncio.gather(*[{_ECHO}.aio('x' * 20) for n in range({_CALLS})]))"


@dataclass(frozen=True)
class _Home:
    house: House
    mosquitto: Mosquitto
    client: httpx.AsyncClient
    model: ScriptedModel
    effort: Effort


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; all processes keep their files in the directory."""
    if find_mosquitto() is None:
        return [not_measured("hub and spoke over Mosquitto", HINT)]
    try:
        await install(sandbox_directory())
    except SandboxError as error:
        return [not_measured("hub and spoke over Mosquitto", f"{error.message} {error.hint}")]
    many = crowd.make_spokes(effort.size(_CROWD))
    async with _open_home(directory, many, effort) as home:
        return [
            await _memory(home),
            *await _programs(home),
            await _sentence(home),
            *await _prompt(home, many),
        ]


@asynccontextmanager
async def _open_home(directory: Path, many: list[crowd.Spoke], effort: Effort) -> AsyncIterator[_Home]:
    """Start Mosquitto, a hub that also knows the crowd, and one spoke, each in a process of its own."""
    (directory / "mosquitto").mkdir()
    with (
        Mosquitto(directory / "mosquitto") as mosquitto,
        ScriptedModel(lambda _: Says(text="It is done.")) as model,
        House(directory / "house", sandbox=sandbox_directory(), debug=False) as house,
    ):
        house.use_model(model.base_url)
        # It was not set up for us and lets anybody in: the crowd needs no logins of its own.
        house.broker_url, house.hub_flags = mosquitto.url, ("--trust-broker",)
        (house.home / "hub").mkdir(mode=0o700)
        await crowd.enrol(house.home / "hub" / "hub.db", many)
        await asyncio.to_thread(house.start_hub)
        await asyncio.to_thread(house.add_spoke, "Bench PC", {"bench.py": _SKILL})
        token = (house.home / "hub" / "cli.token").read_text()
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=house.url, headers=headers, timeout=60) as client:
            yield _Home(house, mosquitto, client, model, effort)


async def _memory(home: _Home) -> Row:
    await asyncio.sleep(_SETTLE_S)
    resident = psutil.Process(home.house.processes["hub"].pid).memory_info().rss / 1_000_000
    return Row("memory of an idle hub, without sandbox processes", resident, "MB", Reach(most=200))


async def _programs(home: _Home) -> list[Row]:
    """Measure programs through ``/api/exec``, beside as many raw echoes over the same broker."""
    bus = Bus("Mosquitto", home.mosquitto.port, MQTTProtocolVersion.MQTTv5, KeyPair.generate(), False)
    repeats = home.effort.repeats(_PROGRAMS)
    echoes, sequence, gathered = [], [], []
    await _execute(home, _PROGRAM)
    async with echoing(bus):
        for _ in range(_ROUNDS):
            echo = await asyncio.to_thread(run_echo, bus, 1, _CALLS * 5)
            echoes.append(echo.p50_ms * _CALLS)
            for _ in range(max(1, repeats // _ROUNDS)):
                sequence.append(await _execute(home, _PROGRAM))
                gathered.append(await _execute(home, _GATHERED))
    reference, name = statistics.median(echoes), f"python_exec with {_CALLS} skill calls over Mosquitto"
    return [
        Row(name, statistics.median(sequence), "ms", Reach(ratio_most=6), reference=reference),
        Row("  the same calls under gather", statistics.median(gathered), "ms", reference=reference),
    ]


async def _execute(home: _Home, code: str) -> float:
    begun = time.perf_counter()
    response = await home.client.post("/api/exec", json={"code": code})
    took = (time.perf_counter() - begun) * 1000
    assert response.json()["status"] == "ok", response.text
    return took


async def _sentence(home: _Home) -> Row:
    """Measure from the request of a client until the skill in the spoke's process looks at the clock."""
    times: list[float] = []
    for number in range(home.effort.repeats(_SENTENCES)):
        begun = time.perf_counter()
        answer = await _say(home, "tell me the bench clock", conversation=f"bench{number}")
        times.append((float(answer) - begun) * 1000)
    name = "sentence match to the skill's start, hub and spoke on one machine"
    return Row(name, statistics.median(times), "ms", Reach(most=15))


async def _prompt(home: _Home, many: list[crowd.Spoke]) -> list[Row]:
    """Measure the prompt that the model receives once the crowd has registered."""
    database = home.house.home / "hub" / "hub.db"
    hub_id = await crowd.enrol(database, ())
    settings = LinkSettings(
        urls=(home.mosquitto.url,), client_id="crowd", topic_prefix=home.house.topic_prefix
    )
    async with open_link(settings) as link:
        await crowd.publish(
            link, (message for spoke in many for message in spoke.messages(hub_id, with_skills=True))
        )
        last = many[-1].id
        while not (await home.client.get("/api/skills/search", params={"q": f"set {last}"})).json():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await _say(home, "Is all well?", conversation="prompt")
    body = home.model.requests[-1].body
    system = sum(estimate_tokens(text_of(each)) for each in body["messages"] if each["role"] == "system")
    tools = estimate_tokens(json.dumps(body["tools"]))
    skills = len(many) * crowd.SKILLS
    name = f"system prompt and three tools with {skills:,} skills registered"
    return [
        Row(name, system + tools, "tokens", Reach(most=1_500)),
        Row("  the whole first request", estimate_tokens(json.dumps(body)), "tokens"),
    ]


async def _say(home: _Home, text: str, *, conversation: str) -> str:
    body: dict[str, Any] = {"model": "assistant", "messages": [{"role": "user", "content": text}]}
    headers = {"X-Strawberry-Conversation": conversation}
    response = await home.client.post("/v1/chat/completions", json=body, headers=headers)
    response.raise_for_status()
    return str(response.json()["choices"][0]["message"]["content"])
