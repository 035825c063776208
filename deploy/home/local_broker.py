"""The broker that this home runs itself: the embedded one in this process, or Mosquitto as a child."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from broker.mosquitto.process import MosquittoListener, MosquittoSettings, open_mosquitto
from contracts.addresses import LOOPBACK
from deploy.home.broker_registry import OurBroker, OurKind, announced
from deploy.home.directory import Home
from deploy.home.lan import Lan, enter_lan
from deploy.home.running import Reporter, forever
from deploy.settings.options import ANY, BrokerPorts, LanOptions, chosen_by
from hub_registry.access.accounts import Accounts
from hub_registry.access.hub_key import load_hub_key
from hub_registry.storage.store import open_store
from identity.files import only_one
from identity.keys import KeyPair

_PORT_OPTIONS = "--mqtt-port, --mqtts-port or --ws-port"


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
    key = load_hub_key(home.hub)
    async with open_store(home.hub / "hub.db") as store:
        return Identity(await Accounts(store).hub_id(), key)


async def run_broker(home: Home, *, ports: BrokerPorts, lan: LanOptions, report: Reporter) -> None:
    """Run the embedded broker until cancelled.

    Raises:
        ConfigError: If a port is taken or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        opened = await enter_lan(stack, home, lan, report=report)
        broker = await enter_embedded(stack, home, ports=ports, lan=opened)
        report_broker(report, broker)
        url = broker.urls[0]
        report.ready(f"Ready: broker at {url}. Ctrl-C ends.", status=f"broker at {url}", broker=url)
        await forever()


async def enter_embedded(
    stack: AsyncExitStack, home: Home, *, ports: BrokerPorts, lan: Lan | None
) -> OurBroker:
    """Open the embedded broker for this home's hub: on loopback, and for other machines by ``lan``.

    Raises:
        ConfigError: If another broker runs with this home, a port is taken, or a file cannot be used.
    """
    _hold_broker(stack, home)
    identity = await load_identity(home)
    context = lan.context if lan is not None else None
    insecure = lan is not None and context is None
    listeners = [Listener(host=ANY if insecure else LOOPBACK, port=ports.mqtt, insecure=insecure)]
    if context is not None:
        listeners.append(Listener(host=ANY, port=ports.mqtts, tls=context))
    if ports.websocket is not None:
        host = LOOPBACK if lan is None else ANY
        listeners.append(
            Listener(host=host, port=ports.websocket, transport="websocket", tls=context, insecure=insecure)
        )
    settings = EmbeddedSettings(
        data_dir=home.broker,
        hub_id=identity.hub_id,
        hub_key=identity.key.public,
        listeners=tuple(listeners),
    )
    with chosen_by(_PORT_OPTIONS):
        running = await stack.enter_async_context(open_embedded(settings))
    return _announce(stack, home, "embedded", running.ports, ports=ports, lan=lan)


async def enter_mosquitto(
    stack: AsyncExitStack, home: Home, *, ports: BrokerPorts, lan: Lan | None
) -> OurBroker:
    """Start Mosquitto, set up for this home's hub: on loopback, and for other machines by ``lan``.

    Raises:
        ConfigError: If it is not installed or does not start, another broker runs with this home, or a port
            is taken.
    """
    _hold_broker(stack, home)
    identity = await load_identity(home)
    certificate = lan.certificate if lan is not None else None
    insecure = lan is not None and certificate is None
    listeners = [MosquittoListener(host=ANY if insecure else LOOPBACK, port=ports.mqtt, insecure=insecure)]
    if certificate is not None:
        listeners.append(MosquittoListener(host=ANY, port=ports.mqtts, tls=certificate))
    if ports.websocket is not None:
        host = LOOPBACK if lan is None else ANY
        listeners.append(
            MosquittoListener(
                host=host, port=ports.websocket, transport="websocket", tls=certificate, insecure=insecure
            )
        )
    settings = MosquittoSettings(
        data_dir=home.broker / "mosquitto",
        hub_id=identity.hub_id,
        key=identity.key,
        listeners=tuple(listeners),
    )
    with chosen_by(_PORT_OPTIONS):
        running = await stack.enter_async_context(open_mosquitto(settings))
    if lan is not None:
        lan.on_renewed(running.reload_certificates)
    return _announce(stack, home, "mosquitto", running.ports, ports=ports, lan=lan)


def report_broker(report: Reporter, broker: OurBroker) -> None:
    """Report where a broker of our own listens."""
    report.state(
        "broker",
        *_described(broker),
        kind=broker.kind,
        url=broker.urls[0],
        addresses=broker.addresses,
        websocket=broker.websocket,
    )


def _described(broker: OurBroker) -> Iterator[str]:
    name = "embedded" if broker.kind == "embedded" else "Mosquitto"
    yield f"  broker   {broker.urls[0]} ({name})"
    if broker.websocket is not None:
        yield f"           {broker.websocket} (WebSocket)"
    for address in broker.addresses:
        if address not in broker.urls:
            yield f"           {address} (from other machines)"


def _hold_broker(stack: AsyncExitStack, home: Home) -> None:
    stack.enter_context(
        only_one(
            home.broker,
            what="a broker",
            hint="Stop it, or set another STRAWBERRY_HOME for a second household.",
        )
    )


def _announce(
    stack: AsyncExitStack,
    home: Home,
    kind: OurKind,
    bound: tuple[int, ...],
    *,
    ports: BrokerPorts,
    lan: Lan | None,
) -> OurBroker:
    """Write the addresses of a running broker into its run file.

    Args:
        bound: Its ports: plain MQTT, then MQTT over TLS where there is TLS, then WebSocket.
    """
    secure = lan is not None and lan.context is not None
    addresses: tuple[str, ...] = ()
    if lan is not None:
        addresses = lan.urls("mqtts", bound[1]) if secure else lan.urls("mqtt", bound[0])
    host = next(iter(lan.hosts if lan is not None else ()), LOOPBACK)
    web = f"{'wss' if secure else 'ws'}://{host}:{bound[-1]}" if ports.websocket is not None else None
    local = f"mqtt://{LOOPBACK}:{bound[0]}"
    # The loopback address is for devices on this machine; others ignore it.
    broker = OurBroker(kind, urls=(local,), addresses=(*addresses, local), websocket=web)
    stack.enter_context(announced(home, broker))
    return broker
