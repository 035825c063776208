"""The hub: everything opened in order, served, and closed in the reverse one."""

import asyncio
import logging
import platform
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from agent_core.gateway.opening import LiveGateway
from agent_core.lazy import Lazy
from agent_core.models.entries import GatewayKind, Models
from agent_core.search.embeddings import open_embeddings
from bus.link import Link
from bus.ports import listen
from chat.http.streams import Connections
from chat.operations import Operations
from chat.sandbox import Sandbox
from chat.tasks import open_tasks
from chat.turns import Turn, Turns
from contracts import own_version
from contracts.addresses import bracketed, reachable
from contracts.devices.joining import Authentication, BusAccess, Login
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError
from hub_agent.address import announced, provide_token
from hub_agent.bus.connection import open_bus
from hub_agent.calls.audit import AuditTrail
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.calls.own_skills import OwnSkills
from hub_agent.chat.assistant import Ask
from hub_agent.chat.history import Histories
from hub_agent.chat.opening import open_agent
from hub_agent.parts import HubParts
from hub_agent.settings import HubSettings, LanSettings
from hub_registry.access.bearer import Gate
from hub_registry.access.hub_key import load_hub_key
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from hub_registry.storage.schema import HEAD
from hub_registry.storage.tables import now
from hub_server import limits
from hub_server.http.app import Services, make_app, open_http
from hub_server.http.chat_socket import ChatSockets
from hub_server.http.pages import Pages
from hub_server.http.sentences import HelpSkill, Sentences
from hub_server.leading import Leader, open_leading
from hub_server.live import Live
from hub_server.mcp.http import Mcp
from hub_server.seeing.http import MetricsRoute
from hub_server.seeing.metrics import Metrics
from hub_server.system.host import Health, Host
from hub_server.system.operations import DatabaseState, HubState, System
from sandbox_host import PoolSettings, open_pool

if TYPE_CHECKING:
    from hub_server.http.lan import Lan

_log = logging.getLogger(__name__)


async def _stay() -> None:
    """Do nothing: a single hub has no replica that takes over."""


@dataclass(frozen=True, kw_only=True)
class Hub(Services):
    """A hub that is running.

    Attributes:
        url: Where its HTTP API is reached on this machine, base path included.
        http_port: The port of it.
        app: The HTTP API, without the guard in front of it for others.
        lan_port: The port for other machines; None where they cannot come in.
        pin: Returns that of the TLS key there, see `ServerCertificate.pin`; empty without TLS of its own.
        reload_certificate: Shows a certificate that was renewed; None without TLS of its own.
        wyoming_port: The port of the handle service; None where it is off.
        leave: Of a replica, gives the lead away and waits for its turns; of a hub alone, does nothing.
    """

    url: str
    http_port: int
    app: ASGIApp
    lan_port: int | None = None
    pin: Callable[[], str] = str
    reload_certificate: Callable[[], None] | None = None
    wyoming_port: int | None = None
    leave: Callable[[], Awaitable[None]] = _stay

    @property
    def link(self) -> Link:
        return self.bus.link

    @property
    def live(self) -> Live:
        return self.leader.live

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
        lan = stack.enter_context(_lan(settings.http.lan))
        key = load_hub_key(settings.directory, settings.database)
        registry = await stack.enter_async_context(open_registry(_registry_settings(settings, lan), key=key))
        await provide_token(settings.directory, registry)
        trail = AuditTrail(registry.store, keep_days=settings.audit.keep_days)
        stack.push_async_callback(trail.flush)
        bus = await stack.enter_async_context(open_bus(settings, registry, trail))
        own = OwnSkills(registry.directory, registry.accounts)
        metrics = Metrics()
        manager = DeviceManager(
            registry.directory, caller=bus.caller, own=own, trail=trail, on_ended=metrics.count_call
        )
        gateway = await stack.enter_async_context(LiveGateway(settings.models, kind=settings.gateway))
        tasks = await stack.enter_async_context(open_tasks(contained=True))
        embeddings, of_turns = [
            await stack.enter_async_context(open_embeddings(settings.embeddings, tasks=tasks))
            for _ in range(2)
        ]
        if embeddings is not None:
            stack.enter_context(registry.search.using(embeddings))
        histories = Histories(
            registry.store,
            tokens=settings.turns.limits.context_tokens // 2,
            exchanges=settings.turns.exchanges,
            tasks=tasks,
            embeddings=of_turns,
        )
        connections = Connections(tasks, is_revoked=registry.authority.is_revoked)
        gate = Gate(
            registry.authority,
            registry.accounts,
            trail=trail,
            may_confirm=registry.directory.may_confirm,
            per_minute=settings.http.requests_per_minute,
        )
        operations = Operations(gate, connections)
        leader = Leader(operations)
        sandbox = PoolSettings(settings.home / "sandbox", **settings.sandbox.model_dump())
        pool = Lazy(partial(open_pool, sandbox), tasks=tasks, name="sandbox")
        agent = await stack.enter_async_context(
            open_agent(
                settings,
                registry,
                manager=manager,
                gateway=gateway,
                histories=histories,
                sandbox=Sandbox(pool),
                trail=trail,
                contributions=leader.contributions,
                tasks=tasks,
                on_ended=[metrics.count_turn, *await _trace_export(stack, settings, tasks)],
            )
        )
        assistant, running = agent.assistant, agent.assistant.running
        stack.callback(registry.authority.on_revoked(partial(_end_revoked, running, connections)))
        stack.callback(registry.people.on_removed(lambda user, _heir: assistant.forget_person(user)))
        parts = HubParts(
            settings=settings,
            registry=registry,
            trail=trail,
            bus=bus,
            own=own,
            manager=manager,
            gateway=gateway,
            histories=histories,
            agent=agent,
            connections=connections,
            gate=gate,
            operations=operations,
            sandbox=pool,
        )
        skills = (agent.skill, HelpSkill(Sentences(registry, assistant.prompter.household)))
        announce = _announcement(registry, lan, settings.http.base_path)
        leading = partial(open_leading, leader=leader, skills=skills, announce=announce)
        if settings.is_replica:
            await stack.enter_async_context(own.offering(skills))
        else:
            await stack.enter_async_context(leading(parts))
        tasks.create_task(_warm(registry, settings.household.language), name="everyday sentences")
        wyoming_port = await stack.enter_async_context(_wyoming(settings, registry, assistant.ask))
        health = partial(_health, parts, leader)
        system = None
        if host is not None:
            system = System(
                parts,
                leader,
                host,
                about=partial(_about, parts, health, now()),
                health=health,
                fingerprint=lambda: lan.fingerprint if lan is not None else "",
            )
        mcp = Mcp(parts, tasks)
        stack.callback(registry.authority.on_revoked(mcp.end_revoked))
        services = Services(
            **vars(parts),
            leader=leader,
            health=health,
            sockets=ChatSockets(parts, tasks),
            pages=Pages(),
            system=system,
            mcp=mcp,
            metrics=MetricsRoute(parts, leader, metrics),
            authority=lan.authority if lan is not None and lan.context is not None else None,
        )
        port = listener.getsockname()[1]
        url = _url(settings, port)
        app = make_app(services)
        await stack.enter_async_context(open_http(app, settings.http, listener, lan))
        # Streams end with their turns and the events; the server waits for them when it closes, after this.
        stack.callback(running.interrupt)
        stack.callback(leader.close)
        stack.callback(mcp.close)
        stack.enter_context(announced(settings.directory, url))
        leave: Callable[[], Awaitable[None]] = _stay
        if settings.is_replica:
            from hub_server.replicas.opening import open_replica

            leave = await stack.enter_async_context(
                open_replica(services, leading, app, registry.settings.url or url)
            )
        yield Hub(
            **vars(services),
            url=url,
            http_port=port,
            app=app,
            lan_port=lan.port if lan else None,
            pin=lan.pin if lan and not settings.http.has_proxy else str,
            reload_certificate=lan.reload if lan is not None and lan.context is not None else None,
            wyoming_port=wyoming_port,
            leave=leave,
        )


def _lan(settings: LanSettings | None) -> AbstractContextManager["Lan | None"]:
    """Bind the listener for other machines, with the library for certificates: 40 ms to import."""
    if settings is None:
        return nullcontext()
    from hub_server.http.lan import open_lan

    return open_lan(settings)


def _announcement(registry: Registry, lan: "Lan | None", path: str) -> Callable[[], Awaitable[None]] | None:
    """Return what tells the network of the hub, where other machines may come in."""
    if lan is None:
        return None
    # Multicast DNS, 17 ms to import: only where other machines connect.
    from hub_server.advertising import Advertisement, advertise

    announcement = Advertisement(
        hub_id=registry.hub_id,
        key=registry.key.kid,
        host=lan.host,
        port=lan.port,
        tls=lan.context is not None,
        path=path,
    )
    return partial(advertise, announcement)


async def _trace_export(
    stack: AsyncExitStack, settings: HubSettings, tasks: asyncio.TaskGroup
) -> tuple[Callable[[Turn], None], ...]:
    """Export spans where there is a collector; return what notes each turn that has ended."""
    if settings.otlp_endpoint is None:
        return ()
    from hub_server.seeing.traces import open_traces

    export = open_traces(settings.otlp_endpoint, tasks=tasks)
    return (await stack.enter_async_context(export),)


def _wyoming(settings: HubSettings, registry: Registry, ask: Ask) -> AbstractAsyncContextManager[int | None]:
    """Open the Wyoming handle service, whose package is loaded only where it is switched on.

    Raises:
        ConfigError: If the package is not installed, or it may not listen there.
    """
    if settings.wyoming is None:
        return nullcontext()
    if find_spec("wyoming") is None:
        raise ConfigError(
            "[wyoming] needs a package that is not installed",
            hint="Install it: pip install 'strawberry-home[voice]'.",
        )
    from hub_server.wyoming import open_handle_service

    language = settings.household.language
    return open_handle_service(settings.wyoming, registry, ask, language=language)


async def _warm(registry: Registry, language: str) -> None:
    """Load the languages of the household and its people before they are spoken, and after the start."""
    await asyncio.sleep(limits.SENTENCES_AFTER_S)
    people = {each.language for each in await registry.accounts.users() if each.language}
    for each in (language, *sorted(people - {language})):
        await registry.search.warm(each)


async def _end_revoked(turns: Turns, connections: Connections, revocation: Revocation) -> None:
    """End what was begun with a token that is revoked."""
    turns.cancel_where(lambda turn: turn.token in revocation.tokens)
    connections.revoke(revocation.tokens)


def _registry_settings(settings: HubSettings, lan: "Lan | None") -> RegistrySettings:
    bus = settings.bus
    authentication: Authentication = "proof"
    if bus.kind == "shared":
        authentication = "login"
    elif bus.kind in ("mosquitto", "emqx"):
        # Mosquitto compares a password whole, EMQX reads a token: neither could check a proof.
        authentication = "token"
    return RegistrySettings(
        database=settings.database,
        instance=settings.instance,
        is_replica=settings.is_replica,
        bus=BusAccess(
            brokers=bus.addresses or (bus.url,),
            prefix=bus.topic_prefix,
            authentication=authentication,
            login=(bus.login or Login()) if bus.kind == "shared" else None,
            ca=settings.ca,
            qos=bus.qos,
        ),
        for_emqx=bus.kind == "emqx",
        url=lan.url + settings.http.base_path if lan else None,
    )


def _health(of: HubParts, leader: Leader) -> Health:
    names, bus = [model.entry.name for model in of.gateway.models.usable], of.bus
    parts, home = leader.parts, leader.home
    connected = bus.link.connected and (home is None or home.link.connected)
    return Health(
        status="ok" if connected else "degraded",
        version=own_version(),
        instance=of.settings.instance,
        broker=bus.health(),
        home_broker=home.health() if home is not None else None,
        home_assistant=parts.live.home_assistant.client.health() if parts is not None else None,
        without_values=len(parts.live.without_values()) if parts is not None else 0,
        model=names[0] if names else None,
    )


def _about(parts: HubParts, health: Callable[[], Health], started_at: datetime) -> HubState:
    """Return what is known of this process without looking closer."""
    import psutil

    database, size = parts.settings.database, None
    if isinstance(database, Path):
        files = (database, database.with_name(f"{database.name}-wal"))
        size = sum(int(each.stat().st_size) for each in files if each.exists())
    opened = parts.sandbox.opened
    return HubState(
        **vars(health()),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        home=str(parts.settings.home),
        started_at=started_at,
        memory_mb=round(psutil.Process().memory_info().rss / 1024**2),
        database=DatabaseState(bytes=size, revision=HEAD),
        sandbox=opened.state() if opened is not None else None,
    )


def _url(settings: HubSettings, port: int) -> str:
    return f"http://{bracketed(reachable(settings.http.host))}:{port}{settings.http.base_path}"
