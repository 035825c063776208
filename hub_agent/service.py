"""The hub: everything opened in order, served, and closed in the reverse one."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from pydantic import SecretStr

from agent_core.gateway.opening import open_gateway
from broker import tokens
from broker.envelope import Seal
from broker.keys import KeyPair
from broker.link import Link, LinkSettings, open_link
from broker.ports import listen
from broker.rpc import Caller, CallRequest
from contracts.presence import Revocation
from contracts.wire import Json
from hub_agent.address import announced, provide_token
from hub_agent.assistant import Assistant
from hub_agent.audit import AuditTrail
from hub_agent.confirmations import Questions
from hub_agent.conversations import open_conversations
from hub_agent.device_manager import DeviceManager
from hub_agent.http.app import Services, make_app
from hub_agent.http.server import serve
from hub_agent.http.streams import Connections
from hub_agent.sandbox import Sandbox
from hub_agent.sentences import Sentences
from hub_agent.settings import HubSettings
from hub_agent.standby import Standby
from hub_agent.tasks import open_tasks
from hub_agent.turns import Turns
from hub_registry.audit import Audit
from hub_registry.bearer import Gate
from hub_registry.hub_presence import HubPresence
from hub_registry.presence import PresenceChange
from hub_registry.registry import Registry, open_registry
from hub_registry.service import RegistryService
from hub_registry.settings import RegistrySettings
from sandbox_host import PoolSettings, open_pool

_log = logging.getLogger(__name__)

_LOGIN_S: Final = 24 * 3600
"""How long the hub's own login is good; it makes a new one at each connect, and a broker that checks
the time disconnects it then, which it survives."""

_CONNECT_S: Final = 2.0
"""How long the start waits for the broker; one that is there takes milliseconds."""


@dataclass(frozen=True)
class Hub:
    """A hub that is running.

    Attributes:
        url: Where its HTTP API is reached on this machine, base path included.
        http_port: The port of it.
    """

    url: str
    http_port: int
    registry: Registry
    link: Link


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
        key = KeyPair.load_or_create(settings.directory / "key.pem")
        registry = await stack.enter_async_context(open_registry(_registry_settings(settings), key=key))
        await provide_token(settings.directory, registry)
        conversations = await stack.enter_async_context(
            open_conversations(settings.database, instance=settings.instance)
        )
        trail = AuditTrail(Audit(registry.store))
        stack.push_async_callback(trail.flush)
        bus = await stack.enter_async_context(_on_bus(settings, registry, trail))
        manager = DeviceManager(registry.directory, caller=bus.caller, trail=trail)
        sentences = Sentences(registry.directory)
        stack.callback(sentences.close)
        tasks = await stack.enter_async_context(open_tasks())
        turns = Turns(conversations, tasks=tasks, open_per_user=settings.turns.open_per_user)
        connections = Connections(tasks)
        stack.callback(registry.authority.on_revoked(partial(_shut_out, turns, connections)))
        pool = Standby(partial(open_pool, _pool_settings(settings)), tasks=tasks, name="sandbox")
        assistant = Assistant(
            settings=settings,
            registry=registry,
            manager=manager,
            sentences=sentences,
            conversations=conversations,
            turns=turns,
            questions=Questions(),
            sandbox=Sandbox(pool),
            gateway=Standby(
                partial(open_gateway, settings.models, kind=settings.gateway), tasks=tasks, name="gateway"
            ),
        )
        # Begun now, so that the first program of the day need not wait; nobody waits for it here.
        pool.start()
        services = Services(
            assistant=assistant,
            gate=Gate(registry.authority, registry.accounts),
            remover=bus.service,
            health=partial(_health, settings, bus.link),
            connections=connections,
        )
        port = listener.getsockname()[1]
        url = _url(settings, port)
        await stack.enter_async_context(serve(make_app(services), listener))
        # Streams end with their turns; the server waits for them when it is closed, after this.
        stack.callback(turns.cancel_where, lambda _: True)
        stack.enter_context(announced(settings.directory, url))
        yield Hub(url=url, http_port=port, registry=registry, link=bus.link)


@dataclass(frozen=True)
class _Bus:
    link: Link
    caller: Caller
    service: RegistryService


@asynccontextmanager
async def _on_bus(settings: HubSettings, registry: Registry, trail: AuditTrail) -> AsyncIterator[_Bus]:
    """Connect to the broker, listen to the devices, and be able to call them."""
    seal = Seal(registry.hub_id, registry.key)
    presence = HubPresence(seal, instance=settings.instance, version=_version())
    link_settings = LinkSettings(
        urls=(settings.bus.url,),
        client_id=settings.instance,
        username=settings.instance,
        password=partial(_login, settings, registry),
        topic_prefix=settings.bus.topic_prefix,
    )
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(
            open_link(link_settings, will=presence.will, wait_s=_CONNECT_S)
        )
        caller = await stack.enter_async_context(
            Caller(
                link,
                seal,
                instance=settings.instance,
                keys=registry.directory.public_key,
                on_unconfirmed=_log_unconfirmed,
            )
        )
        service = RegistryService(registry, link=link, presence=presence)
        stack.callback(service.on_presence(partial(_follow_presence, caller)))
        tasks = await stack.enter_async_context(open_tasks())
        tasks.create_task(service.run(), name="registry")
        tasks.create_task(trail.run(), name="audit")
        yield _Bus(link, caller, service)


def _login(settings: HubSettings, registry: Registry) -> SecretStr:
    claims = tokens.make_claims(
        hub_id=registry.hub_id,
        subject=settings.instance,
        kind="hub",
        owner=registry.admin.id,
        scopes=(),
        lifetime_s=_LOGIN_S,
    )
    return SecretStr(tokens.issue(registry.key, claims))


def _follow_presence(caller: Caller, change: PresenceChange) -> None:
    tell = caller.device_online if change.connected else caller.device_offline
    tell(change.device, change.epoch, change.connection)


def _log_unconfirmed(request: CallRequest) -> None:
    _log.warning("%s was cancelled, and the device did not confirm it: it may have run", request.path)


async def _shut_out(turns: Turns, connections: Connections, revocation: Revocation) -> None:
    """End what was begun with a token that is revoked."""
    turns.cancel_where(lambda request: request.token in revocation.tokens)
    connections.revoke(revocation.tokens)


def _registry_settings(settings: HubSettings) -> RegistrySettings:
    return RegistrySettings(
        database=settings.database,
        instance=settings.instance,
        brokers=settings.bus.addresses or (settings.bus.url,),
        topic_prefix=settings.bus.topic_prefix,
    )


def _pool_settings(settings: HubSettings) -> PoolSettings:
    return PoolSettings(settings.home / "sandbox", **settings.sandbox.model_dump())


def _health(settings: HubSettings, link: Link) -> dict[str, Json]:
    broker: dict[str, Json] = {"connected": link.connected}
    if not link.connected and link.last_error is not None:
        broker["error"] = link.last_error.message
    names = [model.entry.name for model in settings.models.usable]
    return {
        "status": "ok" if link.connected else "degraded",
        "version": _version(),
        "instance": settings.instance,
        "broker": broker,
        "model": names[0] if names else None,
    }


def _url(settings: HubSettings, port: int) -> str:
    host = settings.http.host
    # What listens on all addresses is reached on loopback from this machine.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.http.base_path}"


def _version() -> str:
    try:
        return version("strawberry-home")
    except PackageNotFoundError:
        return "unknown"
