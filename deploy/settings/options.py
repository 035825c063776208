"""Options of the commands that serve, and the checks that need no more than the options and the settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from bus.ports import listen
from contracts.addresses import BROKER_PORTS, HTTP_PORT, HTTPS_PORT, LOOPBACK
from contracts.errors import ConfigError, PortTaken
from deploy import limits

PORT_OPTIONS: Final = "--mqtt-port, --mqtts-port or --ws-port"
NODE_PORT_OPTIONS: Final = f"{PORT_OPTIONS}, --nats-port or --cluster-port"


Exposure = Literal["loopback", "tls", "insecure"]
"""Who can connect: this machine only, other machines over TLS, or other machines without encryption."""

ANY: Final = "0.0.0.0"  # noqa: S104 - only with --lan or --insecure-lan
"""All addresses of this machine."""


@dataclass(frozen=True)
class LanOptions:
    """Access for other machines.

    Attributes:
        https_port: Of the hub, for other machines; 0 takes any free one.
        by_settings: Whether ``[lan]`` of the settings allows it, and no option.
    """

    exposure: Exposure = "loopback"
    https_port: int = HTTPS_PORT
    by_settings: bool = False

    @property
    def host(self) -> str:
        return ANY if self.exposure == "insecure" else LOOPBACK


@dataclass(frozen=True)
class BrokerPorts:
    """Ports of a broker of our own; 0 takes any free one.

    Attributes:
        mqtt: None for the default, or the next free one where another program uses it.
        mqtts: MQTT over TLS; used only with ``--lan``.
        websocket: None for no such listener.
    """

    mqtt: int | None = None
    mqtts: int = BROKER_PORTS["mqtts"]
    websocket: int | None = None


@dataclass(frozen=True)
class NodeOptions:
    """A NATS server; 0 takes any free port.

    Attributes:
        nats: Where hubs connect.
        cluster: Where the other nodes connect.
        nodes: ``host:port`` of all nodes, this one among them.
    """

    nats: int = 4222
    cluster: int = 6222
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class HubOptions:
    """Options of ``strawberry hub``.

    Attributes:
        broker: Address of the broker; None for the one that the settings name.
        trust: Whether a broker that Strawberry did not set up may be used.
        http_port: On loopback; 0 takes any free one.
        replica: The name of this hub among several of the home; empty where it is alone.
    """

    broker: str | None = None
    trust: bool = False
    http_port: int = HTTP_PORT
    replica: str = ""
    lan: LanOptions = field(default_factory=LanOptions)


@dataclass(frozen=True)
class UpOptions:
    """Options of ``strawberry up``.

    Attributes:
        hub: With ``embedded`` or ``mosquitto`` as its broker, that one is run, too.
        ports: Of the broker that is run.
        spoke: Whether to run the local spoke.
        samples: Names of the samples that it offers, with commas between them; None for all.
    """

    hub: HubOptions = field(default_factory=HubOptions)
    ports: BrokerPorts = field(default_factory=BrokerPorts)
    spoke: bool = True
    samples: str | None = None


def sample_names(option: bool | str) -> bool | tuple[str, ...]:
    """Read the option of the samples.

    Raises:
        ConfigError: There is no sample of a name.
    """
    from spoke.skill_host import sample_files

    names = () if option == "none" else tuple(option.split(",")) if isinstance(option, str) else option
    sample_files(names)
    return names


def check_hub_ports(options: HubOptions) -> None:
    """Check that the hub can listen, before anything that takes long.

    Raises:
        ConfigError: If it cannot; names the option that chooses another port.
    """
    _check(LOOPBACK, options.http_port, purpose="HTTP", option="--http-port")
    match options.lan.exposure:
        case "tls":
            _check(ANY, options.lan.https_port, purpose="HTTPS", option="--https-port")
        case "insecure":
            _check(ANY, options.lan.https_port, purpose="HTTP", option="--https-port")


def check_lan_ports(lan: LanOptions, *, mqtts: int | None) -> None:
    """Check that hub and broker can listen for other machines over TLS, before they are restarted to do so.

    Args:
        mqtts: Port of a broker of our own; None where none is run.

    Raises:
        ConfigError: If they cannot.
    """
    for port, purpose in ((lan.https_port, "HTTPS"), (mqtts, "MQTT over TLS")):
        try:
            listen(ANY, port or 0, purpose=purpose).close()
        except PortTaken:
            raise ConfigError(
                "port {port} is in use by another program",
                port=port,
                hint="Stop that program, and try again.",
            ) from None


def check_broker_ports(
    ports: BrokerPorts, lan: LanOptions, *, setting: int | None
) -> tuple[BrokerPorts, str | None]:
    """Check that a broker of our own can listen, before anything that takes long.

    Args:
        setting: ``port`` of ``[broker]``, which counts where no option chose the port.

    Returns:
        The ports to listen on, and why that of MQTT is not the default, where another program uses it.

    Raises:
        ConfigError: If it cannot; names the option that chooses another port.
    """
    moved = None
    if ports.mqtt is None:
        ports = replace(ports, mqtt=setting)
    if ports.mqtt is None:
        port, moved = _default_or_next(lan.host)
        ports = replace(ports, mqtt=port)
    else:
        _check(lan.host, ports.mqtt, purpose="MQTT", option="--mqtt-port")
    if lan.exposure == "tls":
        _check(ANY, ports.mqtts, purpose="MQTT over TLS", option="--mqtts-port")
    if ports.websocket is not None:
        host = LOOPBACK if lan.exposure == "loopback" else ANY
        _check(host, ports.websocket, purpose="MQTT over WebSocket", option="--ws-port")
    return ports, moved


def _default_or_next(host: str) -> tuple[int, str | None]:
    """Return the default port of MQTT, or the next free one and why; 0 if none of them is free."""
    default = BROKER_PORTS["mqtt"]
    taken = None
    for port in range(default, default + limits.NEXT_PORTS):
        try:
            _check(host, port, purpose="MQTT", option="--mqtt-port")
        except PortTaken as error:
            taken = taken or error.message
        else:
            return port, taken and f"{taken}; using port {port}"
    return 0, f"{taken}; using any free port"


def _check(host: str, port: int, *, purpose: str, option: str) -> None:
    if port:
        with chosen_by(option):
            listen(host, port, purpose=purpose).close()


@contextmanager
def chosen_by(option: str) -> Iterator[None]:
    """Add to `PortTaken` which option chooses another port."""
    try:
        yield
    except PortTaken as error:
        raise PortTaken(
            error.message, hint=f"Stop that program, or choose another port with {option} N."
        ) from None
