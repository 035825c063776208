"""The hub: everything opened in order, served, and closed in the reverse one."""

import asyncio
import logging
import platform
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from agent_core.gateway.opening import LiveGateway
from agent_core.lazy import Lazy
from agent_core.models.entries import GatewayKind, Models
from agent_core.search.embeddings import open_embeddings
from bus.link import Link
from bus.ports import listen
from chat.http.connections import ConnectionBounds
from chat.http.server import serve
from chat.http.streams import Connections
from chat.operations import Operations
from chat.questions import Questions
from chat.sandbox import Sandbox
from chat.tasks import open_tasks, supervise
from chat.turns import Turn, Turns
from contracts.addresses import bracketed, reachable
from contracts.devices.joining import Login
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError, StorageError
from hub_agent.address import announced, provide_token
from hub_agent.agents.agents import open_agents
from hub_agent.bus.bus_chat import open_bus_chat
from hub_agent.bus.bus_login import link_settings
from hub_agent.bus.connection import Bus, open_bus
from hub_agent.bus.home_link import HomeLink, HomeTopics, open_home_link, purge_home
from hub_agent.bus.wake_words import open_wake_words
from hub_agent.calls.audit import AuditTrail
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.calls.own_skills import OwnSkills
from hub_agent.calls.rate import Quotas
from hub_agent.chat.agent_skill import AgentSkill
from hub_agent.chat.assistant import Assistant
from hub_agent.chat.history import Histories
from hub_agent.chat.record import ConversationRecord
from hub_agent.chat.traces import Traces
from hub_agent.prompt import Prompter, open_soul
from hub_agent.settings import HubSettings, WyomingSettings
from hub_home_assistant.outward import open_outward
from hub_live.notifications import announce_ends, announce_missing_values
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.access.hub_key import load_hub_key
from hub_registry.http.devices import device_answer
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from hub_registry.storage.store import HEAD
from hub_registry.storage.tables import now
from hub_server import limits
from hub_server.http.app import Services, guarded, make_app
from hub_server.http.pages import Pages
from hub_server.live import Live, open_live
from hub_server.mcp.clients import McpClients
from hub_server.mcp.http import Mcp
from hub_server.seeing.http import MetricsRoute
from hub_server.seeing.metrics import Metrics
from hub_server.system.host import Health, Host
from hub_server.system.http import DatabaseState, HubState, SystemRoutes
from sandbox_host import Pool, PoolSettings, open_pool

if TYPE_CHECKING:
    from hub_server.http.lan import Lan

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hub:
    """A hub that is running.

    Attributes:
        url: Where its HTTP API is reached on this machine, base path included.
        http_port: The port of it.
        live: The live home.
        turns: The turns that run.
        own: The hub's own skills.
        app: The HTTP API, without the guard in front of it for others.
        operations: What the hub can do, for others in this process.
        gate: Knows who asks.
        pages: What answers where the API has no route.
        sandbox: The sandbox processes; the first program opens them, or who starts that before.
        base_path: Where a proxy puts the hub; empty for the root.
        has_proxy: Whether a setting names a proxy in front of it.
        lan_port: The port for other machines; None where they cannot come in.
        wyoming_port: The port of the handle service; None where it is off.
    """

    url: str
    http_port: int
    registry: Registry
    link: Link
    gateway: LiveGateway
    live: Live
    turns: Turns
    own: OwnSkills
    app: ASGIApp
    operations: Operations[Bearer]
    gate: Gate
    pages: Pages
    sandbox: Lazy[Pool]
    base_path: str = ""
    has_proxy: bool = False
    lan_port: int | None = None
    wyoming_port: int | None = None

    def reload_models(self, models: Models, *, kind: GatewayKind) -> bool:
        """Ask other models from the next message on; return whether they are others.

        Answers that have begun are completed.
        """
        return self.gateway.reload(models, kind=kind)


@asynccontextmanager
async def open_hub(settings: HubSettings, *, host: Host | None = None) -> AsyncIterator[Hub]:
    """Run a hub for as long as the context is open; it serves once it is entered.

    It does not wait for the sandbox, nor for a broker that is away.

    Args:
        host: The installation around it; None where it shall not be looked at or changed.

    Raises:
        ConfigError: If the port is taken, or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        # Before anything else: a second hub must not touch the first one's files.
        listener = stack.enter_context(listen(settings.http.host, settings.http.port, purpose="HTTP"))
        lan = None
        if settings.http.lan is not None:
            # With the library for certificates: 40 ms to import, only where other machines connect.
            from hub_server.http.lan import open_lan

            lan = stack.enter_context(open_lan(settings.http.lan))
        key = load_hub_key(settings.directory)
        registry = await stack.enter_async_context(open_registry(_registry_settings(settings, lan), key=key))
        await provide_token(settings.directory, registry)
        record = ConversationRecord(registry.store, instance=settings.instance)
        await record.clean_up()
        topics = HomeTopics(registry.store)
        home = None
        if settings.home_link is not None:
            home = await stack.enter_async_context(
                open_home_link(
                    settings.home_link,
                    topics,
                    instance=settings.instance,
                    bus=link_settings(settings, registry),
                )
            )
        trail = AuditTrail(registry.store, keep_days=settings.audit.keep_days)
        stack.push_async_callback(trail.flush)
        purgers = (partial(purge_home, topics, home),)
        bus = await stack.enter_async_context(
            open_bus(settings, registry, trail, version=_version(), purgers=purgers)
        )
        own = OwnSkills(registry.directory, registry.accounts)
        metrics = Metrics()
        manager = DeviceManager(
            registry.directory, caller=bus.caller, own=own, trail=trail, on_ended=metrics.count_call
        )
        gateway = await stack.enter_async_context(LiveGateway(settings.models, kind=settings.gateway))
        tasks = await stack.enter_async_context(open_tasks(contained=True))
        of_turns = None
        if settings.embeddings is not None:
            embeddings, of_turns = [
                await stack.enter_async_context(open_embeddings(settings.embeddings, tasks=tasks))
                for _ in range(2)
            ]
            stack.enter_context(registry.search.using(embeddings))
        histories = Histories(
            registry.store,
            tokens=settings.turns.limits.context_tokens // 2,
            exchanges=settings.turns.exchanges,
            tasks=tasks,
            embeddings=of_turns,
        )
        live = await stack.enter_async_context(
            open_live(
                settings,
                registry,
                bus=bus,
                home=home,
                manager=manager,
                gateway=gateway,
                histories=histories,
                tasks=tasks,
            )
        )
        servers = McpClients(settings.home, own, tasks)
        supervise(tasks, servers.run, name="MCP servers")
        quotas = Quotas(settings.quotas)
        on_ended: list[Callable[[Turn], None]] = [metrics.count_turn]
        if settings.otlp_endpoint is not None:
            from hub_server.seeing.traces import open_traces  # only where there is a collector

            traces_to = open_traces(settings.otlp_endpoint, version=_version(), tasks=tasks)
            on_ended.append(await stack.enter_async_context(traces_to))
        turns = Turns(record, tasks=tasks, slots=quotas.turns, on_ended=on_ended)
        supervise(tasks, partial(record.keep_answers, turns), name="answers so far")
        traces = Traces(registry.store, turns)
        connections = Connections(tasks, is_revoked=registry.authority.is_revoked)
        stack.callback(registry.authority.on_revoked(partial(_end_revoked, turns, connections)))
        pool = Lazy(partial(open_pool, _pool_settings(settings)), tasks=tasks, name="sandbox")
        prompter = Prompter(
            settings.household,
            registry.directory,
            soul=open_soul(settings.directory),
            contributions=live.contributions,
        )
        assistant = Assistant(
            settings=settings,
            registry=registry,
            manager=manager,
            record=record,
            traces=traces,
            histories=histories,
            running=turns,
            questions=Questions(),
            sandbox=Sandbox(pool),
            gateway=gateway,
            quotas=quotas,
            trail=trail,
            prompter=prompter,
            agents=await stack.enter_async_context(open_agents(settings.home, gateway)),
        )
        await stack.enter_async_context(own.offering((*live.skills, AgentSkill(assistant))))
        stack.callback(live.home_assistant.on_offered(own.refresh))
        tidying = partial(_keep_tidy, registry, record, traces, trail, live)
        supervise(tasks, tidying, name="old records")
        stack.callback(registry.people.on_removed(partial(_forget_person, assistant, live)))
        await stack.enter_async_context(open_bus_chat(assistant, bus))
        await stack.enter_async_context(open_wake_words(registry.directory, bus))
        wyoming_port = None
        if settings.wyoming is not None:
            wyoming_port = await stack.enter_async_context(
                _wyoming(settings.wyoming, assistant, settings.household.language)
            )
        outward = await stack.enter_async_context(
            open_outward(assistant, bus, home, feed=live.feed, events=live.events, version=_version())
        )
        pages = Pages()
        gate = Gate(
            registry.authority,
            registry.accounts,
            trail=trail,
            may_confirm=registry.directory.may_confirm,
            per_minute=settings.http.requests_per_minute,
        )
        health = partial(_health, settings, gateway, bus, home, live)
        system = None
        if host is not None:
            system = SystemRoutes(
                settings.home,
                host,
                gate,
                connections,
                about=partial(_about, settings, health, pool, now()),
                health=health,
                devices=lambda bearer: [
                    device_answer(entry, bearer) for entry in registry.directory.entries()
                ],
                servers=servers.state,
                may_confirm=assistant.may_confirm,
            )
        operations = Operations(gate, connections)
        mcp = Mcp(assistant, gate, connections, tasks, operations, _version())
        stack.callback(registry.authority.on_revoked(mcp.end_revoked))
        services = Services(
            assistant=assistant,
            live=live,
            gate=gate,
            remover=bus.service,
            health=health,
            outward=outward,
            connections=connections,
            tasks=tasks,
            pages=pages,
            system=system,
            mcp=mcp,
            mcp_servers=servers,
            metrics=MetricsRoute(
                metrics,
                assistant,
                live.home_assistant.client,
                gate,
                bus,
                home,
                pool,
                version=_version(),
                open_here=settings.metrics.loopback and not settings.http.has_proxy,
            ),
        )
        port = listener.getsockname()[1]
        url = _url(settings, port)
        app = make_app(services, operations)
        near, proxies = (
            guarded(app, settings.http, names=lambda: settings.http.names),
            settings.http.trusted_proxies,
        )
        bounds = ConnectionBounds(most=settings.http.connections)
        await stack.enter_async_context(serve(near, listener, bounds=bounds, sockets=True, proxies=proxies))
        if lan is not None:
            supervise(tasks, lan.watch, name="certificates")
            far = guarded(app, settings.http, names=lan.names)
            await stack.enter_async_context(
                serve(far, lan.listener, tls=lan.context, bounds=bounds, sockets=True, proxies=proxies)
            )
            # Multicast DNS, 17 ms to import: only where other machines connect.
            from hub_server.advertising import Advertisement, advertise

            announcement = Advertisement(
                hub_id=registry.hub_id,
                key=registry.key.kid,
                host=lan.host,
                port=lan.port,
                tls=lan.context is not None,
                path=settings.http.base_path,
            )
            supervise(tasks, partial(advertise, announcement), name="announcement")
        # Streams end with their turns and the events; the server waits for them when it closes, after this.
        stack.callback(turns.interrupt)
        stack.callback(live.events.close)
        stack.callback(mcp.close)
        stack.enter_context(announced(settings.directory, url))
        lan_port = lan.port if lan else None
        yield Hub(
            url=url,
            http_port=port,
            registry=registry,
            link=bus.link,
            gateway=gateway,
            live=live,
            turns=turns,
            own=own,
            app=app,
            operations=operations,
            gate=gate,
            pages=pages,
            sandbox=pool,
            base_path=settings.http.base_path,
            has_proxy=settings.http.has_proxy,
            lan_port=lan_port,
            wyoming_port=wyoming_port,
        )


def _wyoming(
    settings: WyomingSettings, assistant: Assistant, language: str
) -> AbstractAsyncContextManager[int]:
    """Open the Wyoming handle service, whose package is loaded only where it is switched on.

    Raises:
        ConfigError: If the package is not installed, or it may not listen there.
    """
    if find_spec("wyoming") is None:
        raise ConfigError(
            "[wyoming] needs a package that is not installed",
            hint="Install it: pip install 'strawberry-home[voice]'.",
        )
    from hub_server.wyoming import open_handle_service

    return open_handle_service(settings, assistant, language=language, version=_version())


async def _keep_tidy(
    registry: Registry, record: ConversationRecord, traces: Traces, trail: AuditTrail, live: Live
) -> None:
    """Delete records that have outlived their use, and announce what is wrong soon, until cancelled."""
    while True:
        try:
            await registry.authority.forget_expired()
            await record.forget_cancelled()
            await traces.trim()
            await trail.trim()
            await announce_ends(registry.authority, live.events, at=now())
            await announce_missing_values(live.without_values(), live.events)
        except StorageError as error:
            _log.error("old records are deleted later: %s", error)
        await asyncio.sleep(limits.TIDY_S)


async def _end_revoked(turns: Turns, connections: Connections, revocation: Revocation) -> None:
    """End what was begun with a token that is revoked."""
    turns.cancel_where(lambda turn: turn.token in revocation.tokens)
    connections.revoke(revocation.tokens)


async def _forget_person(assistant: Assistant, live: Live, user: str, heir: str) -> None:
    """Delete what there is of a person who was removed."""
    await assistant.forget_person(user)
    await live.forget_person(user, heir)


def _registry_settings(settings: HubSettings, lan: "Lan | None") -> RegistrySettings:
    return RegistrySettings(
        database=settings.database,
        instance=settings.instance,
        brokers=settings.bus.addresses or (settings.bus.url,),
        topic_prefix=settings.bus.topic_prefix,
        # Mosquitto compares a password whole, and could check no proof.
        authentication="token" if settings.bus.kind == "mosquitto" else "proof",
        login=(settings.bus.login or Login()) if settings.bus.kind == "shared" else None,
        ca=settings.ca,
        url=lan.url + settings.http.base_path if lan else None,
    )


def _pool_settings(settings: HubSettings) -> PoolSettings:
    return PoolSettings(settings.home / "sandbox", **settings.sandbox.model_dump())


def _health(
    settings: HubSettings, gateway: LiveGateway, bus: Bus, home: HomeLink | None, live: Live
) -> Health:
    names = [model.entry.name for model in gateway.models.usable]
    connected = bus.link.connected and (home is None or home.link.connected)
    return Health(
        status="ok" if connected else "degraded",
        version=_version(),
        instance=settings.instance,
        broker=bus.health(),
        home_broker=home.health() if home is not None else None,
        home_assistant=live.home_assistant.client.health(),
        without_values=len(live.without_values()),
        model=names[0] if names else None,
    )


def _about(
    settings: HubSettings, health: Callable[[], Health], pool: Lazy[Pool], started_at: datetime
) -> HubState:
    """Return what is known of this process without looking closer."""
    import psutil

    files = (settings.database, settings.database.with_name(f"{settings.database.name}-wal"))
    opened: Pool | None = pool.opened
    return HubState(
        **vars(health()),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        home=str(settings.home),
        started_at=started_at,
        memory_mb=round(psutil.Process().memory_info().rss / 1024**2),
        database=DatabaseState(
            bytes=sum(int(each.stat().st_size) for each in files if each.exists()), revision=HEAD
        ),
        sandbox=opened.state() if opened is not None else None,
    )


def _url(settings: HubSettings, port: int) -> str:
    return f"http://{bracketed(reachable(settings.http.host))}:{port}{settings.http.base_path}"


@cache
def _version() -> str:
    try:
        return version("strawberry-home")
    except PackageNotFoundError:
        return "unknown"
