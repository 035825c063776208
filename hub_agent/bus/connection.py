"""The hub's connection to the bus: link, registry service and caller."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.embedded.logins import EmbeddedLogins
from broker.logins import BrokerLogins
from bus.link import Link, open_link
from bus.rpc import Caller, CallRequest
from chat.tasks import open_tasks, supervise
from contracts.answers.system import ClusterMember, LinkHealth
from contracts.claims import PrincipalKind
from contracts.wire import OrAbsent
from hub_agent.bus.bus_login import link_settings
from hub_agent.calls.audit import AuditTrail
from hub_agent.settings import BusKind, BusSettings, HubSettings
from hub_registry.bus.hub_presence import HubPresence, next_start
from hub_registry.bus.service import RegistryService
from hub_registry.devices.presence import PresenceChange
from hub_registry.registry import Registry
from identity.envelope import Seal

if TYPE_CHECKING:
    from broker.nats.logins import NatsLogins

_log = logging.getLogger(__name__)

CONNECT_S: Final = 2.0
"""How long the start waits for a broker; one that is there takes milliseconds."""

_VERSIONS: Final = {4: "3.1.1", 5: "5"}


ListNodes = Callable[[], Awaitable[list[ClusterMember]]]


class BusHealth(LinkHealth):
    """The link to the broker, and of which kind that is.

    Attributes:
        fill: Which share of their bytes the stores of a NATS hold, from 0 to 1.
    """

    kind: BusKind
    fill: OrAbsent[Mapping[str, float]] = None


@dataclass(frozen=True)
class Bus:
    """The bus as the hub uses it.

    Attributes:
        seal: Signs what the hub publishes.
        caller: Calls the skills of devices.
        service: The registry on the bus.
        nodes: Lists those of a NATS; None for another kind.
        fill: How full what a NATS stores is; empty for another kind.
    """

    settings: BusSettings
    link: Link
    seal: Seal
    caller: Caller
    service: RegistryService
    nodes: ListNodes | None
    fill: Mapping[str, float]

    def health(self) -> BusHealth:
        link = vars(link_health(self.link))
        return BusHealth(kind=self.settings.kind, fill=self.fill or None, **link)


@asynccontextmanager
async def open_bus(
    settings: HubSettings,
    registry: Registry,
    trail: AuditTrail,
) -> AsyncIterator[Bus]:
    """Connect to the broker, listen to the devices, and be able to call them.

    A broker that is away is waited for in the background.

    Raises:
        ConfigError: If the address or the certificate authority of the broker cannot be used.
    """
    if settings.bus.kind == "shared":
        _warn_of_shared(settings.bus)
    seal = Seal(registry.hub_id, registry.key)
    presence = HubPresence(
        seal,
        instance=settings.instance,
        started_at=next_start(settings.directory / "started"),
    )
    async with AsyncExitStack() as stack:
        logins: BrokerLogins | None = None
        nodes: ListNodes | None = None
        fill: Mapping[str, float] = {}
        if settings.bus.kind == "nats":
            # Before the hub logs in: it lets itself in.
            logins = nats = await stack.enter_async_context(open_nats_logins(settings.bus, registry))
            nodes, fill = nats.nodes, nats.fill
        link = await stack.enter_async_context(
            open_link(link_settings(settings, registry), will=presence.will, wait_s=CONNECT_S)
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
        logins = logins or await _open_logins(stack, settings.bus.kind, link)
        service = RegistryService(registry, link=link, presence=presence, logins=logins)
        stack.callback(service.on_presence(partial(_follow_presence, caller)))
        tasks = await stack.enter_async_context(open_tasks())
        tasks.create_task(service.run(), name="registry")
        supervise(tasks, trail.run, name="audit")
        yield Bus(settings.bus, link, seal, caller, service, nodes, fill)


async def _open_logins(stack: AsyncExitStack, kind: BusKind, link: Link) -> BrokerLogins | None:
    """Return who lets devices and clients in and out; None on a shared broker."""
    match kind:
        case "embedded":
            return EmbeddedLogins(link)
        case "mosquitto":
            from broker.mosquitto.dynsec import DynamicSecurity
            from broker.mosquitto.logins import MosquittoLogins

            # Over the same link, so that it is there whenever the hub is.
            return MosquittoLogins(await stack.enter_async_context(DynamicSecurity(link)))
        case "emqx" | "nats" | "shared":
            return None


@asynccontextmanager
async def open_nats_logins(bus: BusSettings, registry: Registry) -> AsyncIterator["NatsLogins"]:
    """Answer who may log in on a NATS while the context is open."""
    # Here: a home without NATS does not load it.
    from broker.nats.logins import NatsAccess, open_nats

    authority = registry.authority

    def present(kind: PrincipalKind, name: str) -> str | None:
        claims = authority.on_bus(kind, name)
        return claims.jti if claims is not None else None

    access = NatsAccess(
        bus.nodes,
        hub_id=registry.hub_id,
        key=registry.key,
        present=present,
        is_revoked=authority.is_revoked,
        read_good=authority.read_good if registry.settings.is_replica else None,
        ca=bus.ca,
    )
    async with open_nats(access, wait_s=CONNECT_S) as logins:
        yield logins


def link_health(link: Link) -> LinkHealth:
    """Return whether a link is connected, its MQTT version, and the last error."""
    return LinkHealth(
        connected=link.connected,
        mqtt=_VERSIONS[link.protocol] if link.protocol else None,
        error=link.last_error.message if not link.connected and link.last_error is not None else None,
    )


def _warn_of_shared(bus: BusSettings) -> None:
    _log.warning(
        "the bus is on a shared broker (%s): signatures keep its other users from calling skills and from "
        "impersonating a device, but not from reading along what devices and people say, from publishing "
        "states and events, and from disturbing the traffic",
        bus.url,
    )


def _follow_presence(caller: Caller, change: PresenceChange) -> None:
    follow = caller.device_online if change.connected else caller.device_offline
    follow(change.device, change.epoch, change.connection)


def _log_unconfirmed(request: CallRequest) -> None:
    _log.warning("%s was cancelled, and the device did not confirm it: it may have run", request.path)
