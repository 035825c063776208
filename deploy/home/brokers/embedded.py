"""The embedded broker of this home, in this process: alone by ``broker run``, or as the child of ``up``.

Imports little: as a child it starts while the hub does, and is to be there before it.
"""

import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from deploy import limits
from deploy.directory import Home
from deploy.home.brokers import registry
from deploy.home.running import Reporter, enter_lan, forever
from deploy.settings.options import PORT_OPTIONS, BrokerPorts, LanOptions, chosen_by
from identity.keys import PublicKey

if TYPE_CHECKING:
    from deploy.home.lan import Lan


@dataclass(frozen=True)
class Issuer:
    """Whose tokens the broker accepts: the hub's id and its public key."""

    hub_id: str
    key: PublicKey


async def run_broker(
    home: Home, *, issuer: Issuer | None = None, ports: BrokerPorts, lan: LanOptions, report: Reporter
) -> None:
    """Run the embedded broker until cancelled.

    Args:
        issuer: None reads it from the files of this home's hub, which are made where there are none.

    Raises:
        ConfigError: If another broker runs with this home, a port is taken, or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(registry.only_broker(home))
        opened = await enter_lan(stack, home, lan, report=report)
        if issuer is None:
            from deploy.home.brokers.processes import load_identity

            identity = await load_identity(home)
            issuer = Issuer(identity.hub_id, identity.key.public)
        broker = await _enter_embedded(stack, home, issuer, ports=ports, lan=opened)
        registry.report_broker(report, broker)
        url = broker.urls[0]
        report.ready(f"Ready: broker at {url}. Ctrl-C ends.", status=f"broker at {url}", broker=url)
        await forever()


async def _enter_embedded(
    stack: AsyncExitStack, home: Home, issuer: Issuer, *, ports: BrokerPorts, lan: "Lan | None"
) -> registry.OurBroker:
    """Open the embedded broker: on loopback, and for other machines by ``lan``."""
    context = lan.context if lan is not None else None
    _allow_connections()
    settings = EmbeddedSettings(
        data_dir=home.broker,
        hub_id=issuer.hub_id,
        hub_key=issuer.key,
        listeners=registry.listeners(Listener, ports, lan=lan, tls=context),
    )
    found: list[registry.OurBroker] = []

    def announce(bound: tuple[int, ...]) -> None:
        # Before anybody can connect: a hub sends its login only to a broker that is announced.
        found.append(registry.announcement("embedded", bound, ports=ports, lan=lan))
        stack.enter_context(registry.announced(home, found[0]))

    with chosen_by(PORT_OPTIONS):
        await stack.enter_async_context(open_embedded(settings, on_bound=announce))
    return found[0]


def _allow_connections() -> None:
    """Raise the limit of open files to what the limits of the broker allow, where the system does."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = limits.OPEN_FILES if hard == resource.RLIM_INFINITY else min(limits.OPEN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
