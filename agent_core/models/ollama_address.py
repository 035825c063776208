"""Where Ollama listens."""

from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from contracts.addresses import DEFAULT_PORTS
from contracts.errors import ConfigError

VARIABLE: Final = "OLLAMA_HOST"
_PORT: Final = 11434
"""Of Ollama, for a value without a scheme."""
DEFAULT_ADDRESS: Final = f"http://127.0.0.1:{_PORT}"


def ollama_address(variables: Mapping[str, str]) -> str:
    """Give the address at which Ollama is found: what ``OLLAMA_HOST`` says, read as Ollama reads it.

    A host, a port, both, or a URL will do; a server that listens on all addresses is asked on loopback.

    Raises:
        ConfigError: If the variable holds none of these.
    """
    value = variables.get(VARIABLE, "").strip().strip("\"'")
    if not value:
        return DEFAULT_ADDRESS
    scheme, separator, rest = value.partition("://")
    if not separator:
        scheme, rest = "http", value
    default = DEFAULT_PORTS.get(scheme) if separator else _PORT
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        port = parts.port or default
    except ValueError:
        port, parts = None, urlsplit("")
    if port is None:
        raise ConfigError(
            f"{VARIABLE} is no address: {value}", hint="Write a host, host:port, or http://host:port."
        )
    return f"{scheme}://{_host(parts.hostname)}:{port}{parts.path.rstrip('/')}"


def _host(name: str | None) -> str:
    if not name:
        return "127.0.0.1"
    try:
        address = ip_address(name)
    except ValueError:
        return name
    if address.is_unspecified:
        return "[::1]" if isinstance(address, IPv6Address) else "127.0.0.1"
    return f"[{name}]" if isinstance(address, IPv6Address) else name
