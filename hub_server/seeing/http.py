"""``/metrics``: the numbers of a hub in the format of Prometheus."""

import asyncio
import importlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlmodel import Session, col, func, select
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from contracts import own_version
from contracts.addresses import is_loopback
from contracts.answers.system import ClusterMember
from contracts.errors import Forbidden, StorageError
from hub_agent.parts import HubParts
from hub_live.watchers.tables import WatcherRow
from hub_registry.storage.tables import now
from hub_server.leading import Leader
from hub_server.seeing.metrics import Histogram, Metrics

_FORWARDED: Final = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)


@dataclass(frozen=True)
class MetricsRoute:
    """The endpoint."""

    parts: HubParts
    leader: Leader
    metrics: Metrics

    def routes(self) -> list[BaseRoute]:
        return [Route("/metrics", self._answer)]

    async def _answer(self, request: Request) -> Response:
        host = request.client.host if request.client is not None else ""
        # What a proxy on this machine passes on comes from elsewhere. It adds headers, or passes its name on.
        is_here = is_loopback(host) and is_loopback(request.url.hostname)
        is_passed_on = any(name in request.headers for name in _FORWARDED)
        settings, registry, bus = self.parts.settings, self.parts.registry, self.parts.bus
        is_open = settings.metrics.loopback and not settings.http.has_proxy
        if not (is_open and is_here) or is_passed_on:
            bearer = await self.parts.gate.require("metrics", "admin")(request)
            if bearer.user.role != "admin":
                raise Forbidden("only an admin's token may read the metrics", hint="Ask an admin for one.")
        library: Any = await asyncio.to_thread(importlib.import_module, "prometheus_client")
        collectors = library.CollectorRegistry()
        stored: _Stored | None = None
        with suppress(StorageError):
            stored = await registry.store.read(partial(_read, settings.is_replica))
        nodes = await bus.nodes() if bus.nodes is not None else []
        families = list(self._families(importlib.import_module("prometheus_client.core"), stored, nodes))
        collectors.register(_Collected(families))
        library.ProcessCollector(registry=collectors)
        return Response(library.generate_latest(collectors), media_type=library.CONTENT_TYPE_LATEST)

    def _families(self, core: Any, stored: "_Stored | None", nodes: Sequence[ClusterMember]) -> Iterator[Any]:
        metrics, bus, assistant = self.metrics, self.parts.bus, self.parts.agent.assistant
        entries = self.parts.registry.directory.entries()
        pool = self.parts.sandbox.opened
        online = sum(entry.connected for entry in entries)
        parts, home = self.leader.parts, self.leader.home
        links = {"bus": bus.link} | ({"home": home.link} if home is not None else {})

        def many(kind: str, name: str, text: str, labels: str, rows: Any) -> Any:
            family = getattr(core, f"{kind}MetricFamily")(f"strawberry_{name}", text, labels=labels.split())
            for values, number in rows:
                family.add_metric([values] if isinstance(values, str) else values, number)
            return family

        def histogram(name: str, text: str, label: str, rows: dict[str, Histogram]) -> Any:
            family = core.HistogramMetricFamily(f"strawberry_{name}", text, labels=[label])
            for value, each in rows.items():
                family.add_metric([value], each.buckets(), each.total)
            return family

        yield many("Gauge", "build_info", "The version that runs", "version", [(own_version(), 1)])
        yield many("Counter", "calls", "Skill calls that ended", "where outcome", metrics.calls.items())
        yield histogram("call_seconds", "How long skill calls took", "where", metrics.call_seconds)
        yield many("Counter", "turns", "Turns that ended", "mode outcome", metrics.turns.items())
        yield histogram("turn_seconds", "How long turns took", "mode", metrics.turn_seconds)
        yield many("Counter", "turn_part_seconds", "Where turns spent time", "part", metrics.parts.items())
        yield many("Counter", "tokens", "Tokens of models", "model direction", metrics.tokens.items())
        yield many("Gauge", "open_turns", "Turns that run or wait", "", [((), assistant.running.open_count)])
        waiting = {"calls": assistant.quotas.calls.waiting, "programs": assistant.quotas.programs.waiting}
        yield many("Gauge", "waiting", "Requests that wait for their turn", "queue", waiting.items())
        states = {"online": online, "offline": len(entries) - online}
        yield many("Gauge", "devices", "Devices", "state", states.items())
        sandboxes = vars(pool.state()) if pool is not None else {}
        yield many("Gauge", "sandboxes", "Processes and programs of the sandbox", "state", sandboxes.items())
        yield many("Gauge", "database_up", "Whether the database answers", "", [((), stored is not None)])
        found = stored or _Stored()
        yield many("Gauge", "watchers", "Watchers", "state", found.watchers)
        yield many("Gauge", "lead", "Whether this hub leads", "", [((), self.leader.parts is not None)])
        yield many("Gauge", "term", "Term of the latest lead of all replicas", "", found.terms)
        yield many("Gauge", "replicas", "Replicas of the hub that run", "", found.replicas)
        text = "Time since a replica wrote to the database that it is there"
        yield many("Gauge", "replica_lag_seconds", text, "replica", found.lags)
        counts = {"named": len(nodes), "up": sum(each.bus for each in nodes)} if nodes else {}
        yield many("Gauge", "broker_nodes", "Nodes of NATS", "state", counts.items())
        text = "Which share of its bytes a store of NATS holds"
        yield many("Gauge", "broker_store_ratio", text, "store", bus.fill.items())
        losses = {name: link.losses for name, link in links.items()}
        yield many("Counter", "broker_losses", "Connections to a broker that ended", "link", losses.items())
        connected = {name: float(link.connected) for name, link in links.items()}
        if parts is not None and (house := parts.live.home_assistant.client.health()) is not None:
            connected["home_assistant"] = float(house.connected)
        yield many("Gauge", "broker_connected", "Whether a broker is connected", "link", connected.items())


@dataclass(frozen=True, eq=False)
class _Collected:
    families: list[Any]

    def collect(self) -> list[Any]:
        return self.families


@dataclass(frozen=True)
class _Stored:
    """What is read from the database; of replicas nothing where there is one hub."""

    watchers: Sequence[tuple[str, int]] = ()
    terms: Sequence[tuple[tuple[()], int]] = ()
    replicas: Sequence[tuple[tuple[()], int]] = ()
    lags: Sequence[tuple[str, float]] = ()


def _read(is_replica: bool, session: Session) -> _Stored:
    states = session.exec(select(WatcherRow.state, func.count()).group_by(col(WatcherRow.state)))
    watchers = [(str(state), count) for state, count in states]
    if not is_replica:
        return _Stored(watchers)
    from hub_registry.storage.replicas import replicas

    rows, present = replicas(session), now()
    term = max((row.term for row, _ in rows), default=0)
    lags = [(row.instance, max(0.0, (present - row.seen_at).total_seconds())) for row, there in rows if there]
    return _Stored(watchers, [((), term)], [((), len(lags))], lags)
