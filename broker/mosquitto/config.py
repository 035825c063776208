"""The configuration file of a Mosquitto that is our bus, see mosquitto.conf(5)."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal

from contracts.addresses import BROKER_PORTS, is_loopback
from contracts.errors import ConfigError
from identity.certificates import ServerCertificate

__all__ = ["MosquittoConfig", "MosquittoListener", "render"]

_HEADER: Final = """\
# Mosquitto as the bus of Strawberry. Every login needs a user name and a password, and only
# what dynamic security allows is allowed."""

_SECURITY: Final = """\
# Who may log in and do what: kept by the plugin, changed over MQTT while the broker runs.
# The file has to be writable for Mosquitto, and readable by its user only."""

_PERSISTENCE: Final = """\
# Retained messages survive a restart. Those lost in a power cut are published again."""

_FLOW: Final = """\
# Without TCP_NODELAY a round trip takes 40 ms more. 0 means no limit: messages are dropped only
# when more than 128 MiB wait for a client; a packet that is too large ends its connection.
# The session of a client that is away ends after a day."""

_LOG: Final = "# To standard error, for the program that starts Mosquitto."

_LOOPBACK: Final = "# For programs on this machine only: passwords are not encrypted."
_TLS: Final = "# For the other machines of the home, encrypted."
_WEB: Final = "# The same over WebSocket, for programs in a browser."
_INSECURE: Final = (
    "# NOT ENCRYPTED (--insecure-lan): anyone who can listen in the network reads the passwords."
)


@dataclass(frozen=True)
class MosquittoListener:
    """One address that Mosquitto listens on.

    Attributes:
        host: An address without brackets, or a name; ``::`` is every address of the machine, ``0.0.0.0``
            every one of IPv4.
        port: 0 takes any free one.
        tls: None for none, which only loopback may do without.
        insecure: Other machines may connect without TLS.
    """

    host: str = "127.0.0.1"
    port: int = BROKER_PORTS["mqtt"]
    transport: Literal["tcp", "websocket"] = "tcp"
    tls: ServerCertificate | None = None
    insecure: bool = False


@dataclass(frozen=True)
class MosquittoConfig:
    """Content of the file.

    Attributes:
        data_dir: Where Mosquitto keeps retained messages.
        security_file: The plugin's JSON.
        user: Whom Mosquitto becomes where it is started as root; None leaves it to Mosquitto, which then
            becomes ``mosquitto`` and can no longer read what is root's.
    """

    listeners: tuple[MosquittoListener, ...]
    plugin: Path
    security_file: Path
    data_dir: Path
    user: str | None = None
    max_packet_bytes: int = 1 << 20


def render(config: MosquittoConfig) -> str:
    """Write the file.

    Raises:
        ConfigError: If a path cannot stand in it, or a listener would be open without TLS or to others
            unasked.
    """
    return "\n".join(_lines(config)) + "\n"


def _lines(config: MosquittoConfig) -> Iterator[str]:
    yield from (_HEADER, "per_listener_settings false", "allow_anonymous false")
    if config.user is not None:
        yield f"user {_text(config.user)}"
    yield from ("", _SECURITY, f"plugin {_path(config.plugin)}")
    yield f"plugin_opt_config_file {_path(config.security_file)}"
    yield from ("", _PERSISTENCE, "persistence true")
    # The name of its file is put right behind it.
    yield f"persistence_location {_path(config.data_dir)}/"
    yield "autosave_interval 60"
    yield from ("", _FLOW, "set_tcp_nodelay true", "max_inflight_messages 0", "max_queued_messages 0")
    yield f"max_queued_bytes {128 << 20}"
    yield f"max_packet_size {config.max_packet_bytes}"
    yield "persistent_client_expiration 1d"
    yield from ("", _LOG, "log_dest stderr", "log_timestamp false")
    yield from ("log_type error", "log_type warning", "log_type notice")
    for listener in config.listeners:
        yield ""
        yield from _listener(listener)


def _listener(listener: MosquittoListener) -> Iterator[str]:
    if listener.tls is not None:
        yield _TLS
    elif is_loopback(listener.host):
        yield _LOOPBACK
    elif listener.insecure:
        yield _INSECURE
    else:
        raise ConfigError(
            f"Mosquitto would listen on {listener.host} without TLS",
            hint="Give it a certificate, or ask for it with --insecure-lan.",
        )
    if listener.transport == "websocket":
        yield _WEB
    # With "::" it would listen on IPv6 only; without an address it takes both.
    host = "" if listener.host == "::" else f" {_text(listener.host)}"
    yield f"listener {listener.port}{host}"
    if listener.transport == "websocket":
        yield "protocol websockets"
        yield from _family(listener.host)
    yield "max_connections 2000"
    if listener.tls is not None:
        yield f"certfile {_path(listener.tls.certificate)}"
        yield f"keyfile {_path(listener.tls.key)}"
        yield "tls_version tlsv1.2"


def _family(host: str) -> Iterator[str]:
    """Return the address family of a WebSocket listener; without it Mosquitto listens on all addresses."""
    if host == "::":
        return
    try:
        yield f"socket_domain ipv{ip_address(host).version}"
    except ValueError:
        raise ConfigError(
            f"Mosquitto would listen on every address for WebSocket, and not only on {host}",
            hint="Give it an address, as 127.0.0.1.",
        ) from None


def _path(path: Path) -> str:
    return _text(str(path))


def _text(value: str) -> str:
    # A value reaches to the end of its line, without the blanks around it; nothing can be quoted.
    if value != value.strip() or not value.isprintable():
        raise ConfigError(f"{value!r} cannot stand in Mosquitto's configuration", hint="Use another path.")
    return value
