"""The broker that this home runs itself: an installed Mosquitto, as a child of this process."""

from contextlib import AsyncExitStack

from broker.mosquitto.process import MosquittoListener, MosquittoSettings, open_mosquitto
from deploy.home.broker_ports import BrokerPorts, our_broker
from deploy.home.directory import Home
from deploy.home.identity import load_identity
from deploy.home.known import OurBroker, announced
from deploy.home.lan import ANY, LOOPBACK, Lan
from deploy.home.local_broker import hold_broker
from deploy.home.running import chosen_by


async def enter_mosquitto(
    stack: AsyncExitStack, home: Home, *, ports: BrokerPorts, lan: Lan | None
) -> OurBroker:
    """Start Mosquitto, set up for this home's hub: on loopback, and for other machines by ``lan``.

    Raises:
        ConfigError: If it is not installed, does not start, or a port is taken.
    """
    hold_broker(stack, home)
    identity = await load_identity(home)
    settings = MosquittoSettings(
        data_dir=home.broker / "mosquitto",
        hub_id=identity.hub_id,
        key=identity.key,
        listeners=_listeners(ports, lan),
    )
    with chosen_by("--mqtt-port, --mqtts-port or --ws-port"):
        running = await stack.enter_async_context(open_mosquitto(settings))
    if lan is not None:
        lan.on_renewed(running.reload_certificates)
    broker = our_broker("mosquitto", running.ports, lan=lan, websocket=ports.websocket is not None)
    stack.enter_context(announced(home, broker))
    return broker


def _listeners(ports: BrokerPorts, lan: Lan | None) -> tuple[MosquittoListener, ...]:
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
    return tuple(listeners)
