"""Mosquitto as a child of this process, set up for the hub of this home."""

import getpass
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from broker.mosquitto.config import MosquittoConfig, MosquittoListener, render
from broker.mosquitto.installation import find_installation
from broker.mosquitto.own_logins import admin_login, keep_admin
from broker.mosquitto.provisioning import provision
from broker.process import BrokerProcess, free_ports
from contracts.addresses import bracketed, reachable
from contracts.errors import ConfigError
from identity.files import make_private_directory, write_private
from identity.keys import KeyPair

__all__ = ["MosquittoListener", "MosquittoSettings", "RunningMosquitto", "open_mosquitto"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MosquittoSettings:
    """How our own Mosquitto is to run.

    Attributes:
        data_dir: For its configuration, its logins and its retained messages; owner-only.
        key: The hub's: the passwords of administrator and hub follow from it.
        instance: Name of the hub process that is to log in.
        listeners: The first has to be one without TLS or WebSocket, where our own programs connect.
        binary: The program, if it is not to be looked for.
        plugin: The same for the plugin.
    """

    data_dir: Path
    hub_id: str
    key: KeyPair = field(repr=False)
    instance: str = "main"
    listeners: tuple[MosquittoListener, ...] = (MosquittoListener(),)
    binary: Path | None = None
    plugin: Path | None = None


@asynccontextmanager
async def open_mosquitto(settings: MosquittoSettings) -> "AsyncIterator[RunningMosquitto]":
    """Run Mosquitto for as long as the context is open; the hub can log in once it is entered.

    It is started again whenever it ends by itself, on the same ports; see `BrokerProcess.running`.

    Raises:
        PortTaken: If another program listens on one of the ports.
        ConfigError: If Mosquitto is missing, or does not start.
    """
    installation = find_installation(binary=settings.binary, plugin=settings.plugin)
    settings = replace(settings, listeners=_with_ports(settings.listeners))
    process = BrokerProcess(
        "Mosquitto",
        [str(installation.binary), "-c", str(_write_files(settings, installation.plugin))],
        [(each.host, each.port) for each in settings.listeners],
        errors=("rror",),
    )
    running = RunningMosquitto(settings.listeners, process)
    async with process.running():
        await provision(
            running.url,
            admin_login(settings.key),
            hub_id=settings.hub_id,
            key=settings.key,
            instance=settings.instance,
        )
        _log.info("Mosquitto started at %s", running.url)
        yield running


@dataclass(frozen=True)
class RunningMosquitto:
    """A Mosquitto that is kept running. Made by `open_mosquitto`."""

    listeners: tuple[MosquittoListener, ...]
    process: BrokerProcess

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(each.port for each in self.listeners)

    @property
    def url(self) -> str:
        return f"mqtt://{bracketed(reachable(self.listeners[0].host))}:{self.ports[0]}"

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def reload_certificates(self) -> None:
        """Reload the certificates from their files.

        No client is disconnected, unless a WebSocket listener has a certificate: then Mosquitto restarts.
        """
        encrypted = [each for each in self.listeners if each.tls is not None]
        # Version 2.0 takes the signal for its TCP listeners only.
        if sys.platform == "win32" or any(each.transport == "websocket" for each in encrypted):
            self.process.restart()
        elif encrypted:
            self.process.signal(signal.SIGHUP)


def _write_files(settings: MosquittoSettings, plugin: Path) -> Path:
    """Write configuration and logins, both owner-only; return the configuration.

    Raises:
        ConfigError: If something cannot stand in the configuration.
    """
    security_file = settings.data_dir / "dynsec.json"
    # Started by root, it stays root, who alone may read these files.
    is_root = sys.platform != "win32" and os.geteuid() == 0
    config = MosquittoConfig(
        listeners=settings.listeners,
        plugin=plugin,
        security_file=security_file,
        data_dir=settings.data_dir,
        user=getpass.getuser() if is_root else None,
    )
    text = render(config)
    make_private_directory(settings.data_dir)
    file = settings.data_dir / "mosquitto.conf"
    write_private(file, text.encode())
    keep_admin(security_file, admin_login(settings.key))
    return file


def _with_ports(listeners: tuple[MosquittoListener, ...]) -> tuple[MosquittoListener, ...]:
    first = listeners[0] if listeners else None
    if first is None or first.tls is not None or first.transport != "tcp":
        raise ConfigError("Mosquitto's first listener has to be one without TLS or WebSocket")
    ports = free_ports([(each.host, each.port) for each in listeners])
    return tuple(replace(each, port=port) for each, port in zip(listeners, ports, strict=True))
