"""The brokers that ``strawberry up`` runs as processes of their own: the embedded one, or Mosquitto.

A hub that is busy for a moment is then no bus that stands still.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chat.tasks import open_tasks
from contracts.addresses import broker_endpoint
from contracts.errors import ConfigError, StrawberryError
from deploy import limits
from deploy.directory import Home
from deploy.home.brokers import registry
from deploy.home.child import Child, keep_child, start_broker
from deploy.home.running import Reporter
from deploy.settings.options import PORT_OPTIONS, BrokerPorts, Exposure, chosen_by
from deploy.settings.settings import read_database
from hub_registry.access.accounts import Accounts
from hub_registry.access.hub_key import load_hub_key
from hub_registry.storage.store import open_store
from identity.keys import KeyPair

if TYPE_CHECKING:
    from deploy.home.lan import Lan


@dataclass(frozen=True)
class Identity:
    """The hub's id and its key, which broker and hub share, whichever of them starts first."""

    hub_id: str
    key: KeyPair


async def load_identity(home: Home) -> Identity:
    """Read the identity of this home's hub, or make it.

    Raises:
        ConfigError: If the database or the key cannot be used.
    """
    database = read_database(home)
    key = load_hub_key(home.hub, database)
    async with open_store(database) as store:
        return Identity(await Accounts(store).hub_id(key=key.kid), key)


async def enter_embedded(
    stack: AsyncExitStack,
    home: Home,
    first: Child,
    *,
    ports: BrokerPorts,
    lan: "Lan | None",
    report: Reporter,
    meanwhile: Callable[[], Awaitable[None]],
) -> registry.OurBroker:
    """Start serving this home's hub in a process of the embedded broker, and keep it running.

    Args:
        first: The process of a broker that was started and waits.
        meanwhile: Runs while it opens its ports.

    Raises:
        ConfigError: If another broker runs with this home, a port is taken, or a file cannot be used.
    """
    exposure: Exposure = "loopback" if lan is None else "insecure" if lan.context is None else "tls"
    process = EmbeddedProcess(home, await load_identity(home), exposure, report)
    await process.begin(first, ports)
    await meanwhile()
    broker = await process.address(first)
    registry.report_broker(report, broker)
    tasks = await stack.enter_async_context(open_tasks())
    tasks.create_task(process.keep(first, _ports_of(broker, ports)), name="embedded broker")
    return broker


async def enter_mosquitto(
    stack: AsyncExitStack, home: Home, *, ports: BrokerPorts, lan: "Lan | None", report: Reporter
) -> registry.OurBroker:
    """Start Mosquitto, set up for this home's hub: on loopback, and for other machines by ``lan``.

    Raises:
        ConfigError: If it is not installed or does not start, another broker runs with this home, or a port
            is taken.
    """
    from broker.mosquitto.process import MosquittoListener, MosquittoSettings, open_mosquitto

    stack.enter_context(registry.only_broker(home))
    identity = await load_identity(home)
    certificate = lan.certificate if lan is not None else None
    settings = MosquittoSettings(
        data_dir=home.broker / "mosquitto",
        hub_id=identity.hub_id,
        key=identity.key,
        listeners=registry.listeners(MosquittoListener, ports, lan=lan, tls=certificate),
    )
    with chosen_by(PORT_OPTIONS):
        running = await stack.enter_async_context(open_mosquitto(settings))
    if lan is not None:
        lan.on_renewed(running.reload_certificates)
    broker = registry.announcement("mosquitto", running.ports, ports=ports, lan=lan)
    stack.enter_context(registry.announced(home, broker))
    registry.report_broker(report, broker)
    return broker


class EmbeddedProcess:
    """Starts the process of the embedded broker again when it ends by itself, and reports that."""

    def __init__(self, home: Home, identity: Identity, exposure: Exposure, report: Reporter) -> None:
        self._home = home
        self._report = report
        self._parameters = {
            "hub_id": identity.hub_id,
            "hub_key": identity.key.public.jwk(),
            "exposure": exposure,
        }

    async def begin(self, process: Child, ports: BrokerPorts) -> None:
        """Start to listen.

        Raises:
            OSError: If it has ended.
        """
        await process.begin({**self._parameters, "ports": asdict(ports)})

    async def address(self, process: Child) -> registry.OurBroker:
        """Return the addresses of a process that has begun, once it listens.

        Raises:
            ConfigError: If it cannot listen; with its reason.
        """
        async for told in process.states():
            if told["state"] == "failed":
                raise ConfigError(told["problem"], hint=told["hint"])
            if told["state"] == "ready" and (broker := registry.running_broker(self._home)) is not None:
                return broker
        raise ConfigError(
            f"the embedded broker ended with code {await process.wait()}", hint="--debug shows more."
        )

    async def keep(self, first: Child, ports: BrokerPorts) -> None:
        """Wait for the end of the process, and start another, on the same ports, whenever it ends."""

        async def run(process: Child) -> str:
            try:
                if process is not first:
                    await self.begin(process, ports)
                    registry.report_broker(self._report, await self.address(process))
                return f"code {await process.wait()}"
            except (StrawberryError, OSError) as error:
                return str(error) or type(error).__name__

        await keep_child(first, run, partial(start_broker, self._home), wait_s=limits.BROKER_RESTART_S)


def _ports_of(broker: registry.OurBroker, wanted: BrokerPorts) -> BrokerPorts:
    """Return the ports that a broker has got, so that clients find it there again."""
    secure = next((each for each in broker.addresses if each.startswith("mqtts://")), None)
    return BrokerPorts(
        mqtt=broker_endpoint(broker.urls[0]).port,
        mqtts=wanted.mqtts if secure is None else broker_endpoint(secure).port,
        websocket=None if broker.websocket is None else urlsplit(broker.websocket).port,
    )
