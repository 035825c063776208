"""The hub: everything opened in order, served, and closed in the reverse one."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from agent_core.gateway.opening import LiveGateway
from agent_core.models.entries import GatewayKind, Models
from agent_core.search.embeddings import open_embeddings
from bus.link import Link
from bus.ports import listen
from chat.http.server import serve
from chat.http.streams import Connections
from chat.lazy import Lazy
from chat.questions import Questions
from chat.sandbox import Sandbox
from chat.tasks import open_tasks
from chat.turns import Turns
from contracts.errors import StorageError
from contracts.joining import Login
from contracts.presence import Revocation
from contracts.wire import Json
from hub_agent.address import announced, provide_token
from hub_agent.agents.agents import open_agents
from hub_agent.bus.bus_chat import open_bus_chat
from hub_agent.bus.connection import Bus, open_bus
from hub_agent.bus.home_link import HomeLink, open_home_link, purge_home
from hub_agent.bus.home_topics import HomeTopics
from hub_agent.calls.audit import AuditTrail
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.calls.rate import Quotas
from hub_agent.chat.assistant import Assistant
from hub_agent.chat.history import Histories
from hub_agent.chat.record import ConversationRecord
from hub_agent.http.app import Services, guarded, make_app
from hub_agent.http.lan import Lan, open_lan
from hub_agent.live.live import Live, open_live
from hub_agent.own_skills import OwnSkills
from hub_agent.prompt import Prompter, open_soul
from hub_agent.settings import HubSettings
from hub_registry.access.bearer import Gate
from hub_registry.access.hub_key import load_hub_key
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from sandbox_host import PoolSettings, open_pool

_log = logging.getLogger(__name__)

_TIDY_S: Final = 600
"""How often old records are deleted; what is too much by then goes in batches."""


@dataclass(frozen=True)
class Hub:
    """A hub that is running.

    Attributes:
        url: Where its HTTP API is reached on this machine, base path included.
        http_port: The port of it.
        live: The live home.
        own: The hub's own skills.
        lan_port: The port for other machines; None where they cannot come in.
    """

    url: str
    http_port: int
    registry: Registry
    link: Link
    gateway: LiveGateway
    live: Live
    own: OwnSkills
    lan_port: int | None = None

    def reload_models(self, models: Models, *, kind: GatewayKind) -> bool:
        """Ask other models from the next message on; return whether they are others.

        Answers that have begun are completed.
        """
        return self.gateway.reload(models, kind=kind)


@asynccontextmanager
async def open_hub(settings: HubSettings) -> AsyncIterator[Hub]:
    """Run a hub for as long as the context is open; it serves once it is entered.

    It does not wait for the sandbox, nor for a broker that is away.

    Raises:
        ConfigError: If the port is taken, or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        # Before anything else: a second hub must not touch the first one's files.
        listener = stack.enter_context(listen(settings.http.host, settings.http.port, purpose="HTTP"))
        lan = stack.enter_context(open_lan(settings.http.lan)) if settings.http.lan else None
        key = load_hub_key(settings.directory)
        registry = await stack.enter_async_context(open_registry(_registry_settings(settings, lan), key=key))
        await provide_token(settings.directory, registry)
        record = ConversationRecord(registry.store, instance=settings.instance)
        await record.clean_up()
        topics = HomeTopics(registry.store)
        home = None
        if settings.home_link is not None:
            home = await stack.enter_async_context(
                open_home_link(settings.home_link, topics, instance=settings.instance)
            )
        trail = AuditTrail(registry.store)
        stack.push_async_callback(trail.flush)
        purgers = (partial(purge_home, topics, home),)
        bus = await stack.enter_async_context(
            open_bus(settings, registry, trail, version=_version(), purgers=purgers)
        )
        own = OwnSkills(registry.directory, registry.accounts)
        manager = DeviceManager(registry.directory, caller=bus.caller, own=own, trail=trail)
        gateway = await stack.enter_async_context(LiveGateway(settings.models, kind=settings.gateway))
        tasks = await stack.enter_async_context(open_tasks())
        if settings.embeddings is not None:
            embeddings = await stack.enter_async_context(open_embeddings(settings.embeddings, tasks=tasks))
            stack.enter_context(registry.search.using(embeddings))
        tasks.create_task(_keep_tidy(registry, record, trail), name="old records")
        histories = Histories(
            registry.store,
            tokens=settings.turns.limits.context_tokens // 2,
            exchanges=settings.turns.exchanges,
            tasks=tasks,
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
        await stack.enter_async_context(own.offering(live.skills()))
        quotas = Quotas(settings.quotas)
        turns = Turns(record, tasks=tasks, slots=quotas.turns)
        connections = Connections(tasks)
        stack.callback(registry.authority.on_revoked(partial(_end_revoked, turns, connections)))
        pool = Lazy(partial(open_pool, _pool_settings(settings)), tasks=tasks, name="sandbox")
        prompter = Prompter(
            settings.household,
            registry.directory,
            soul=open_soul(settings.directory),
            contributions=live.contributions(),
        )
        assistant = Assistant(
            settings=settings,
            registry=registry,
            manager=manager,
            record=record,
            histories=histories,
            running=turns,
            questions=Questions(),
            sandbox=Sandbox(pool),
            gateway=gateway,
            quotas=quotas,
            trail=trail,
            live=live,
            prompter=prompter,
            agents=await stack.enter_async_context(open_agents(settings.home, gateway)),
        )
        # Started now, so that the first program need not wait; the start of the hub does not wait for it.
        pool.start()
        await stack.enter_async_context(
            open_bus_chat(
                assistant, registry, link=bus.link, seal=bus.seal, shared=settings.bus.kind == "shared"
            )
        )
        services = Services(
            assistant=assistant,
            gate=Gate(registry.authority, registry.accounts, refusals=trail.refusals),
            remover=bus.service,
            health=partial(_health, settings, gateway, bus, home),
            live=live,
            connections=connections,
        )
        port = listener.getsockname()[1]
        url = _url(settings, port)
        app = make_app(services)
        await stack.enter_async_context(serve(guarded(app, settings.http), listener))
        if lan is not None:
            tasks.create_task(lan.watch(), name="certificates")
            far = guarded(app, settings.http, names=lan.names)
            await stack.enter_async_context(serve(far, lan.listener, tls=lan.context))
            # Multicast DNS, 17 ms to import: only where other machines connect.
            from hub_agent.advertising import Advertisement, advertise

            announcement = Advertisement(
                hub_id=registry.hub_id,
                key=registry.key.kid,
                host=lan.host,
                port=lan.port,
                tls=lan.context is not None,
                path=settings.http.base_path,
            )
            tasks.create_task(advertise(announcement), name="announcement")
        # Streams end with their turns and the events; the server waits for them when it closes, after this.
        stack.callback(turns.cancel_where, lambda _: True)
        stack.callback(live.events.close)
        stack.enter_context(announced(settings.directory, url))
        lan_port = lan.port if lan else None
        yield Hub(
            url=url,
            http_port=port,
            registry=registry,
            link=bus.link,
            gateway=gateway,
            live=live,
            own=own,
            lan_port=lan_port,
        )


async def _keep_tidy(registry: Registry, record: ConversationRecord, trail: AuditTrail) -> None:
    """Delete records that have outlived their use, now and then until cancelled."""
    while True:
        try:
            await registry.authority.forget_expired()
            await record.forget_tombstones()
            await trail.trim()
        except StorageError as error:
            _log.error("old records are deleted later: %s", error)
        await asyncio.sleep(_TIDY_S)


async def _end_revoked(turns: Turns, connections: Connections, revocation: Revocation) -> None:
    """End what was begun with a token that is revoked."""
    turns.cancel_where(lambda turn: turn.token in revocation.tokens)
    connections.revoke(revocation.tokens)


def _registry_settings(settings: HubSettings, lan: Lan | None) -> RegistrySettings:
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


def _health(settings: HubSettings, gateway: LiveGateway, bus: Bus, home: HomeLink | None) -> dict[str, Json]:
    names = [model.entry.name for model in gateway.models.usable]
    connected = bus.link.connected and (home is None or home.link.connected)
    return {
        "status": "ok" if connected else "degraded",
        "version": _version(),
        "instance": settings.instance,
        "broker": bus.health(),
        "home_broker": home.health() if home is not None else None,
        "model": names[0] if names else None,
    }


def _url(settings: HubSettings, port: int) -> str:
    host = settings.http.host
    # What listens on all addresses is reached on loopback from this machine.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.http.base_path}"


@cache
def _version() -> str:
    try:
        return version("strawberry-home")
    except PackageNotFoundError:
        return "unknown"
