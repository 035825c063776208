"""The broker that this home runs itself: the embedded one, in this process."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from deploy.home.broker_ports import BrokerPorts, describe_broker, our_broker
from deploy.home.directory import Home
from deploy.home.identity import load_identity
from deploy.home.known import OurBroker, announced
from deploy.home.lan import ANY, LOOPBACK, Lan, LanOptions, enter_lan
from deploy.home.running import Ready, chosen_by, forever, unheard
from identity.files import only_one


async def run_broker(
    home: Home, *, ports: BrokerPorts, lan: LanOptions, say: Callable[[str], None], ready: Ready = unheard
) -> None:
    """Run the embedded broker until cancelled.

    Args:
        ready: Is told in words once the broker serves.

    Raises:
        ConfigError: If a port is taken or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        opened = await enter_lan(stack, home, lan, say=say)
        broker = await enter_embedded(stack, home, ports=ports, lan=opened)
        for line in describe_broker(broker):
            say(line)
        say(f"Ready: broker at {broker.urls[0]}. Ctrl-C ends.")
        ready(f"broker at {broker.urls[0]}")
        await forever()


async def enter_embedded(
    stack: AsyncExitStack, home: Home, *, ports: BrokerPorts, lan: Lan | None
) -> OurBroker:
    """Open the embedded broker for this home's hub: on loopback, and for other machines by ``lan``."""
    hold_broker(stack, home)
    identity = await load_identity(home)
    settings = EmbeddedSettings(
        data_dir=home.broker,
        hub_id=identity.hub_id,
        hub_key=identity.key.public,
        listeners=_listeners(ports, lan),
    )
    with chosen_by("--mqtt-port, --mqtts-port or --ws-port"):
        running = await stack.enter_async_context(open_embedded(settings))
    broker = our_broker("embedded", running.ports, lan=lan, websocket=ports.websocket is not None)
    stack.enter_context(announced(home, broker))
    return broker


def hold_broker(stack: AsyncExitStack, home: Home) -> None:
    """Hold this home for one broker.

    Raises:
        ConfigError: If another process holds it.
    """
    stack.enter_context(
        only_one(
            home.broker,
            what="a broker",
            hint="Stop it, or set another STRAWBERRY_HOME for a second household.",
        )
    )


def _listeners(ports: BrokerPorts, lan: Lan | None) -> tuple[Listener, ...]:
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
    return tuple(listeners)
