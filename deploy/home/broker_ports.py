"""Where a broker that this home runs itself listens, and under which addresses it is reached there."""

from collections.abc import Iterator
from dataclasses import dataclass

from deploy.home.known import OurBroker, OurKind
from deploy.home.lan import LOOPBACK, Lan


@dataclass(frozen=True)
class BrokerPorts:
    """Ports of a broker of our own; 0 takes any free one.

    Attributes:
        mqtts: Only where other machines come in over TLS.
        websocket: None for no such listener.
    """

    mqtt: int = 1883
    mqtts: int = 8883
    websocket: int | None = None


def our_broker(kind: OurKind, ports: tuple[int, ...], *, lan: Lan | None, websocket: bool) -> OurBroker:
    """Name the addresses of a broker that listens.

    Args:
        ports: That it really has: plain MQTT, then MQTT over TLS where there is TLS, then WebSocket.
        websocket: Whether the last of them is that of WebSocket.
    """
    secure = lan is not None and lan.context is not None
    addresses: tuple[str, ...] = ()
    if lan is not None:
        addresses = lan.urls("mqtts", ports[1]) if secure else lan.urls("mqtt", ports[0])
    host = next(iter(lan.hosts if lan is not None else ()), LOOPBACK)
    web = f"{'wss' if secure else 'ws'}://{host}:{ports[-1]}" if websocket else None
    local = f"mqtt://{LOOPBACK}:{ports[0]}"
    # What is on loopback is for devices on this machine; the others leave it alone.
    return OurBroker(kind, urls=(local,), addresses=(*addresses, local), websocket=web)


def describe_broker(broker: OurBroker) -> Iterator[str]:
    """Say where it is reached, in lines for a person."""
    name = "embedded" if broker.kind == "embedded" else "Mosquitto"
    yield f"  broker   {broker.urls[0]} ({name})"
    if broker.websocket is not None:
        yield f"           {broker.websocket} (WebSocket)"
    for address in broker.addresses:
        if address not in broker.urls:
            yield f"           {address} (from other machines)"
