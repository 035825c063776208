"""A large Home Assistant: how long its entities take to arrive, a sentence to act, and the prompt."""

import asyncio
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from agent_core.prompt import estimate_tokens
from benchmarks.measure import Effort
from benchmarks.table import Reach, Row
from hub_agent.settings import HomeAssistantAccess
from hub_live.world.section import world_section
from tests.hub_agent.home import Home, open_home, says
from tests.hub_home_assistant.recorded import TOKEN, Recorded, recorded
from tests.hub_registry.spokes import eventually

_ENTITIES: Final = 2_000
_FEW: Final = 100
_DOMAINS: Final = ("light", "switch", "sensor", "binary_sensor", "cover", "climate")
_SENTENCES: Final = 50
_AREAS: Final = 40


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; takes some seconds."""
    await asyncio.to_thread(directory.mkdir, exist_ok=True)
    many, few = effort.size(_ENTITIES), _FEW
    tokens = {}
    for count in (few, many):
        async with recorded(**_home_of(count)) as assistant, open_home(directory / f"of{count}") as home:
            import_s = await _import(home, assistant, count)
            tokens[count] = _prompt_tokens(home)
            sentence_ms = await _sentence_ms(home, effort.repeats(_SENTENCES))
    return [
        Row(
            f"{many} entities of Home Assistant: from connecting to the first sentence",
            import_s,
            "s",
            Reach(most=3),
        ),
        Row("  a sentence that switches one of them, over HTTP", sentence_ms, "ms", Reach(most=15)),
        Row(
            f"  the home in the prompt, beside that of {few} entities",
            tokens[many],
            "tokens",
            Reach(ratio_most=1.1),
            reference=tokens[few],
        ),
    ]


def _home_of(count: int) -> dict[str, Any]:
    areas = [
        {"area_id": f"a{each}", "name": f"Room {each}", "aliases": [f"Zimmer {each}"]}
        for each in range(_AREAS)
    ]
    entities = {
        f"{domain}.thing_{number}": (
            "on",
            {"friendly_name": f"Thing {number}", "supported_features": 4, "icon": "mdi:lamp"},
            {
                "area_id": f"a{number % _AREAS}",
                "aliases": [f"Ding {number}"],
                "platform": "demo",
                "unique_id": str(number),
            },
        )
        for number, domain in enumerate(islice(cycle(_DOMAINS), count))
    }
    return {"areas": areas, "entities": entities}


async def _import(home: Home, assistant: Recorded, count: int) -> float:
    """Return the seconds until a sentence of the last entity is understood."""
    client, search = home.hub.live.home_assistant.client, home.hub.registry.search
    begun = time.perf_counter()
    client.use(HomeAssistantAccess(url=assistant.url, token=SecretStr(TOKEN)))
    name = f"thing {(count - 1) // len(_DOMAINS) * len(_DOMAINS)}"

    def is_understood() -> bool:
        search.sync()
        return search.match(f"turn on {name}", language="en", current=None) is not None

    await eventually(is_understood)
    return time.perf_counter() - begun


async def _sentence_ms(home: Home, repeats: int) -> float:
    """Return the median time of a whole turn by a sentence."""
    taken = []
    async with home.client() as client:
        for number in range(repeats):
            name = f"thing {number * len(_DOMAINS) % _FEW // len(_DOMAINS) * len(_DOMAINS)}"
            begun = time.perf_counter()
            answer = await client.post("/v1/chat/completions", json=says(f"turn off {name}"))
            taken.append(1000 * (time.perf_counter() - begun))
            assert "Turned off" in answer.text, answer.text
    return sorted(taken)[len(taken) // 2]


def _prompt_tokens(home: Home) -> int:
    text = world_section(home.hub.live.world, home.hub.registry.admin.id, ["is thing 6 on?"])
    return estimate_tokens(text or "")
