"""``/metrics``, read as Prometheus reads it."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from contracts.claims import Scope
from hub_agent.settings import HttpSettings, MetricsSettings
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill, LockSkill
from tests.model_server import Says

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


async def scrape(home: Home) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the samples by name and values of their labels."""
    token = await home.token(home.hub.registry.admin, scopes=("metrics",))
    async with home.client(token) as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name.removeprefix("strawberry_"), tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_calls_and_turns_are_counted_with_their_outcome_and_time(thinking: Home, model: Any) -> None:
    await thinking.device("Bedroom PC", LampSkill(), LockSkill())
    model.script = [Says(text="Hello!", input_tokens=5, output_tokens=2)]
    async with thinking.client() as http:
        for method, arguments in (("turn_on", {}), ("turn_on", {"level": 3}), ("fail", {})):
            body = {"device": "bedroom_pc", "skill": "LampSkill", "method": method, "kwargs": arguments}
            await http.post("/api/skills/call", json=body)
        for message in ("turn on the lamp", "who are you?"):
            await http.post("/api/chat", json={"message": message})
    found = await scrape(thinking)
    while ("turns_total", ("answered", "online")) not in found:  # it is counted after it is answered
        found = await scrape(thinking)
    assert found["calls_total", ("device", "result")] == 3
    assert found["calls_total", ("device", "skill_error")] == 1
    assert found["call_seconds_count", ("device",)] == 4
    assert found["call_seconds_bucket", ("+Inf", "device")] == 4
    assert found["turns_total", ("answered", "sentence")] == 1
    assert found["turns_total", ("answered", "online")] == 1
    assert found["turn_seconds_count", ("online",)] == 1
    assert 0 < found["turn_seconds_sum", ("online",)] < 60
    assert found["tokens_total", ("house", "input")] > 0
    assert found["turn_part_seconds_total", ("model",)] > 0
    assert found["devices", ("online",)] == 1
    assert found["broker_connected", ("bus",)] == 1
    assert found["open_turns", ()] == 0
    assert found["process_resident_memory_bytes", ()] > 0


async def test_no_label_has_what_somebody_said(thinking: Home, model: Any) -> None:
    await thinking.device("Anna's very private PC", LampSkill())
    model.script = [Says(text="Hello!", input_tokens=5, output_tokens=2)]
    async with thinking.client() as http:
        await http.post("/api/chat", json={"message": "a secret question"})
    labels = {value for _, values in await scrape(thinking) for value in values}
    assert not [value for value in labels if re.search("anna|secret|Lamp|Hello", value)]


async def test_who_may_read_them(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home", metrics=MetricsSettings(loopback=True)) as home:
        async with httpx.AsyncClient(timeout=60, base_url=home.hub.url) as http:
            assert (await http.get("/metrics")).status_code == 200
            for elsewhere in ({"X-Forwarded-For": "1.2.3.4"}, {"Via": "1.1 proxy"}, {"Host": "192.0.2.1"}):
                assert (await http.get("/metrics", headers=elsewhere)).status_code == 401
        member = await home.hub.registry.accounts.add("Anna", role="member")
        rows: list[tuple[Any, Scope, int]] = [
            (home.hub.registry.admin, "metrics", 200),
            (home.hub.registry.admin, "chat", 403),
            (member, "metrics", 403),
        ]
        for person, scope, status in rows:
            token = await home.token(person, scopes=(scope,))
            async with home.client(token) as http:
                answer = await http.get("/metrics", headers={"X-Forwarded-For": "1.2.3.4"})
                assert answer.status_code == status
            if scope == "metrics":
                async with home.client(token) as http:
                    for path in ("/api/conversations", "/api/openapi.json", "/api/session"):
                        assert (await http.get(path)).status_code == 403

    behind = HttpSettings(port=0, names=("home.example",))
    async with (
        open_home(tmp_path / "other", metrics=MetricsSettings(loopback=True), http=behind) as home,
        httpx.AsyncClient(timeout=60, base_url=home.hub.url) as http,
    ):
        assert (await http.get("/metrics")).status_code == 401


async def test_every_metric_of_the_dashboard_exists(home: Home) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for text in expressions for name in re.findall(r"(?:strawberry|process)_\w+", text)}
    async with home.client() as http:
        text = (await http.get("/metrics")).text
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert {re.sub(r"_bucket$", "", name) for name in named} <= known
    assert len({name for name in known if name.startswith("strawberry_")}) == len(
        {re.sub(r"_bucket$", "", name) for name in named if name.startswith("strawberry_")}
    )
