"""``/metrics``, read as Prometheus reads it."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from contracts.claims import Scope
from contracts.errors import StorageError
from hub_agent.settings import HttpSettings, MetricsSettings
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill, LockSkill
from tests.model_server import Says
from tests.requirements import require

ALERTS = Path(__file__).parents[2] / "docs" / "alerts.yml"
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


async def scrape(home: Home, token: str = "") -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the samples by name and values of their labels."""
    token = token or await home.token(home.hub.registry.admin, scopes=("metrics",))
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


def named_in(expressions: list[str]) -> set[str]:
    names = {name for text in expressions for name in re.findall(r"(?:strawberry|process)_\w+", text)}
    return {re.sub(r"_bucket$", "", name) for name in names}


async def test_every_metric_of_the_dashboard_and_of_the_alerts_exists(home: Home) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    shown = named_in([target["expr"] for panel in dashboard["panels"] for target in panel["targets"]])
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    watched = named_in([rule["expr"] for rule in group["rules"]])
    async with home.client() as http:
        text = (await http.get("/metrics")).text
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert shown | watched <= known
    assert {name for name in known - shown if name.startswith("strawberry_")} == set()


async def test_the_nodes_of_nats_are_counted(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home", kind="nats") as home:
        found = await scrape(home)
        assert (found["broker_nodes", ("named",)], found["broker_nodes", ("up",)]) == (1, 1)


def promtool(*words: str | Path) -> str:
    require(shutil.which("promtool") is not None, "promtool is missing: apt-get install prometheus")
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_alerts_warn_when_nobody_leads_a_replica_or_a_node_is_gone_and_nats_fills(tmp_path: Path) -> None:
    promtool("check", "rules", ALERTS)
    of = '{job="strawberry", instance="%s"}'
    # Two hubs for ten minutes; then the leader is gone, and the other one leads from the twelfth minute on.
    series = {
        f"up{of % 'a'}": "1x10 0x20",
        f"up{of % 'b'}": "1x30",
        f"strawberry_lead{of % 'a'}": "1x10 stale",
        f"strawberry_lead{of % 'b'}": "0x12 1x18",
        f"strawberry_replicas{of % 'b'}": "2x10 1x20",
        'strawberry_broker_store_ratio{job="strawberry", instance="b", store="retained"}': "0.7x10 0.9x20",
        'strawberry_broker_nodes{job="strawberry", instance="b", state="named"}': "3x30",
        'strawberry_broker_nodes{job="strawberry", instance="b", state="up"}': "3x10 2x20",
    }
    expected = {
        "HubDown": ("12m", {"job": "strawberry", "instance": "a"}),
        "NobodyLeads": ("12m", {"job": "strawberry"}),
        "ReplicaGone": ("20m", {"job": "strawberry"}),
        "BrokerNodeGone": ("12m", {"job": "strawberry"}),
        "BrokerFills": ("20m", {"job": "strawberry", "store": "retained"}),
    }
    # The next one leads.
    quiet: list[dict[str, Any]] = [
        {"eval_time": at, "alertname": "NobodyLeads", "exp_alerts": []} for at in ("9m", "15m")
    ]
    fires = [
        {"eval_time": at, "alertname": name, "exp_alerts": [{"exp_labels": labels}]}
        for name, (at, labels) in expected.items()
    ]
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    # Their words are none of this test.
    rules = [
        {name: value for name, value in rule.items() if name != "annotations"} for rule in group["rules"]
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{**group, "rules": rules}]}))
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [*fires, *quiet],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}))
    promtool("test", "rules", tmp_path / "test.yml")


async def test_a_lost_database_and_a_lost_broker_are_seen(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object, **__: object) -> None:
        raise StorageError("the server is gone")

    assert (await scrape(home))["database_up", ()] == 1
    back = asyncio.Event()

    async def connected() -> None:
        back.set()

    home.hub.link.on_connected(connected)
    home.hub.link.reconnect()
    await back.wait()
    token = await home.token(scopes=("metrics",))
    monkeypatch.setattr(home.hub.registry.store, "read", gone)
    found = await scrape(home, token)
    assert found["database_up", ()] == 0
    assert found["broker_losses_total", ("bus",)] == 1
