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
from broker.mosquitto.installation import Installation, find_installation
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
    running = RunningMosquitto(replace(settings, listeners=_with_ports(settings.listeners)), installation)
    running.write_files()
    async with running.process.running():
        await provision(
            running.url,
            admin_login(settings.key),
            hub_id=settings.hub_id,
            key=settings.key,
            instance=settings.instance,
        )
        _log.info("Mosquitto started at %s", running.url)
        yield running


class RunningMosquitto:
    """A Mosquitto that is kept running. Made by `open_mosquitto`."""

    def __init__(self, settings: MosquittoSettings, installation: Installation) -> None:
        self._settings = settings
        self._installation = installation
        self._config_file = settings.data_dir / "mosquitto.conf"
        self.process = BrokerProcess(
            "Mosquitto",
            [str(installation.binary), "-c", str(self._config_file)],
            [(each.host, each.port) for each in settings.listeners],
            errors=("rror",),
        )

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(each.port for each in self._settings.listeners)

    @property
    def url(self) -> str:
        return f"mqtt://{bracketed(reachable(self._settings.listeners[0].host))}:{self.ports[0]}"

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def reload_certificates(self) -> None:
        """Reload the certificates from their files.

        No client is disconnected, unless a WebSocket listener has a certificate: then Mosquitto restarts.
        """
        encrypted = [each for each in self._settings.listeners if each.tls is not None]
        # Version 2.0 takes the signal for its TCP listeners only.
        if sys.platform == "win32" or any(each.transport == "websocket" for each in encrypted):
            self.process.restart()
        elif encrypted:
            self.process.signal(signal.SIGHUP)

    def write_files(self) -> None:
        """Write configuration and logins, both owner-only.

        Raises:
            ConfigError: If something cannot stand in the configuration.
        """
        settings = self._settings
        security_file = settings.data_dir / "dynsec.json"
        config = MosquittoConfig(
            listeners=settings.listeners,
            plugin=self._installation.plugin,
            security_file=security_file,
            data_dir=settings.data_dir,
            user=_user(),
        )
        text = render(config)
        make_private_directory(settings.data_dir)
        write_private(self._config_file, text.encode())
        keep_admin(security_file, admin_login(settings.key))


def _with_ports(listeners: tuple[MosquittoListener, ...]) -> tuple[MosquittoListener, ...]:
    first = listeners[0] if listeners else None
    if first is None or first.tls is not None or first.transport != "tcp":
        raise ConfigError("Mosquitto's first listener has to be one without TLS or WebSocket")
    ports = free_ports([(each.host, each.port) for each in listeners])
    return tuple(replace(each, port=port) for each, port in zip(listeners, ports, strict=True))


def _user() -> str | None:
    """Name who Mosquitto is to stay when it is started by root, who alone may read these files."""
    return getpass.getuser() if sys.platform != "win32" and os.geteuid() == 0 else None
