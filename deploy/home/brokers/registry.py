"""Which brokers are ours: no other ever sees a token of this home."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import TypeAdapter

from contracts.addresses import LOOPBACK, Endpoint, broker_endpoint, is_loopback
from contracts.errors import ConfigError
from deploy.directory import Home
from deploy.home.running import Reporter
from deploy.settings.options import ANY, BrokerPorts
from identity.certificates import own_names
from identity.files import is_held, only_one, write_private

if TYPE_CHECKING:
    from deploy.home.lan import Lan

OurKind = Literal["embedded", "mosquitto", "nats"]
_Listener = TypeVar("_Listener")


@dataclass(frozen=True)
class OurBroker:
    """A broker that accepts the tokens of this home only.

    Attributes:
        kind: The embedded one, or a Mosquitto that was set up for this home.
        urls: Where it listens, for this machine.
        addresses: The addresses given to devices: where other machines reach it, and loopback for this one.
        websocket: Where it speaks MQTT over WebSocket; None where it does not.
        ca: PEM of the authority of an ``mqtts`` address; None for the system's authorities.
        insecure: Whether its owner accepted that others in the network can read what goes there.
        nodes: Where a hub reaches a NATS with its own protocol.
    """

    kind: OurKind
    urls: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    websocket: str | None = None
    ca: str | None = None
    insecure: bool = False
    nodes: tuple[str, ...] = ()

    def own_name_of(self, url: str) -> str | None:
        """Return this broker's own way to write an address; None if the address is not one of its own.

        This is the one to connect to: ``localhost`` may be ``::1`` as well, where another program may listen
        on the same port.
        """
        return next((each for each in self.urls if _endpoint(url) == _endpoint(each)), None)


def find_ours(home: Home, url: str) -> OurBroker | None:
    """Return our broker at this address; None where it is not known as ours, or not running yet.

    Reads files and sends nothing.
    """
    for broker in (running_broker(home), provisioned_broker(home)):
        if broker is not None and broker.own_name_of(url) is not None:
            return broker
    return None


def running_broker(home: Home) -> OurBroker | None:
    """Return the broker that a process of this home runs right now."""
    broker, pid = _read(home.broker_run_file)
    # The file of a process that was killed stays behind; its lock does not, and the next one to hold the
    # directory may listen elsewhere, while another program has the port.
    return broker if pid is not None and is_held(home.broker, by=pid) else None


def provisioned_broker(home: Home) -> OurBroker | None:
    # Set up by ``strawberry broker provision``.
    return _read(home.provisioned_file)[0]


def only_broker(home: Home) -> AbstractContextManager[None]:
    """Hold this home for one broker.

    Raises:
        ConfigError: If another process runs one.
    """
    return only_one(
        home.broker, what="a broker", hint="Stop it, or set another STRAWBERRY_HOME for a second household."
    )


@contextmanager
def announced(home: Home, broker: OurBroker) -> Iterator[None]:
    """Announce that this process runs a broker while the block lasts; it must hold ``home.broker``."""
    write_private(home.broker_run_file, json.dumps({**asdict(broker), "pid": os.getpid()}, indent=2).encode())
    try:
        yield
    finally:
        home.broker_run_file.unlink(missing_ok=True)


def announcement(
    kind: OurKind, bound: tuple[int, ...], *, ports: BrokerPorts, lan: "Lan | None"
) -> OurBroker:
    """Return what there is to announce of a broker that listens.

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
    return OurBroker(kind, urls=(local,), addresses=(*addresses, local), websocket=web)


def listeners(
    make: Callable[..., _Listener], ports: BrokerPorts, *, lan: "Lan | None", tls: object
) -> tuple[_Listener, ...]:
    """Return where a broker of our own listens: on loopback, and for other machines by ``lan``.

    Args:
        make: Makes one, of the kind of broker that it is.
        tls: What it needs to speak TLS; None where it does not.
    """
    insecure = lan is not None and tls is None
    found = [make(host=ANY if insecure else LOOPBACK, port=ports.mqtt, insecure=insecure)]
    if tls is not None:
        found.append(make(host=ANY, port=ports.mqtts, tls=tls))
    if ports.websocket is not None:
        host = LOOPBACK if lan is None else ANY
        found.append(make(host=host, port=ports.websocket, transport="websocket", tls=tls, insecure=insecure))
    return tuple(found)


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
    name = {"embedded": "embedded", "mosquitto": "Mosquitto", "nats": "NATS"}[broker.kind]
    yield f"  broker   {broker.urls[0]} ({name})"
    if broker.websocket is not None:
        yield f"           {broker.websocket} (WebSocket)"
    for address in broker.addresses:
        if address not in broker.urls:
            yield f"           {address} (from other machines)"


def keep_provisioned(home: Home, *, url: str, ca: str | None, insecure: bool = False) -> None:
    """Remember a Mosquitto that was set up for this home."""
    kept = {"url": url, "kind": "mosquitto", "ca": ca, "insecure": insecure}
    write_private(home.provisioned_file, json.dumps(kept, indent=2).encode())


def is_local(url: str) -> bool:
    return _endpoint(url)[1] == "loopback"


def by_number(url: str) -> str:
    """Return an address of this machine alone as that on which our own brokers listen; any other as it is."""
    scheme, host, port = _endpoint(url)
    return f"{scheme}://127.0.0.1:{port}" if host == "loopback" else url


def is_readable(url: str) -> bool:
    """Return whether others in the network can read what is sent there: no TLS, and another machine."""
    scheme, host, _ = _endpoint(url)
    return scheme == "mqtt" and host != "loopback" and host not in own_names()[1]


def refuse_readable(url: str, *, hint: str) -> None:
    """Refuse an address over which tokens and passwords would cross the network unencrypted.

    Raises:
        ConfigError: If they would.
    """
    if is_readable(url):
        raise ConfigError(
            f"the broker at {url} is on another machine and without TLS: passwords and tokens could be read "
            "in the network",
            hint=hint,
        )


def refuse_login_in(url: str) -> None:
    """Refuse an address with a login in it: it would show in the process list and in messages.

    Raises:
        ConfigError: If one does; it shows nothing of it.
    """
    if "@" in url:
        raise ConfigError(
            "the address of a broker must not contain a login, which others could see",
            hint="Write it as mqtt://host:1883; username and password_env of [broker] or [home_broker] in "
            "strawberry.toml name the login.",
        )


def _endpoint(url: str) -> Endpoint:
    """Split an address into scheme, host and port, so that two ways to write one are equal."""
    refuse_login_in(url)
    found = broker_endpoint(url)
    return found._replace(host="loopback") if is_loopback(found.host) else found


def _read(path: Path) -> tuple[OurBroker | None, int | None]:
    """Return the broker of a file, and the process that runs it; None where there is none."""
    try:
        stored = TypeAdapter(dict[str, Any]).validate_json(path.read_bytes())
        urls = {"urls": [stored["url"]]} if "url" in stored else {}
        return TypeAdapter(OurBroker).validate_python(stored | urls), stored.get("pid")
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError):
        raise ConfigError(
            f"{path} is damaged", hint="Remove it; provision the broker again if it is your own."
        ) from None
