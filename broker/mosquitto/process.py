"""Mosquitto as a child of this process: started, watched, started again, and ended with us."""

import asyncio
import contextlib
import getpass
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from broker import limits
from broker.limits import (
    MOSQUITTO_HEALTHY_S,
    MOSQUITTO_LOG_LINES,
    MOSQUITTO_OPEN_FILES,
    MOSQUITTO_RESTART_S,
    MOSQUITTO_START_S,
    MOSQUITTO_STOP_S,
)
from broker.mosquitto.config import MosquittoConfig, MosquittoListener, render
from broker.mosquitto.installation import Installation, find_installation
from broker.mosquitto.own_logins import admin_login, keep_admin
from broker.mosquitto.provisioning import provision
from bus.ports import listen
from bus.processes import keep_running, lines_of, open_process, output_of, send_signal, terminate, tied
from contracts.addresses import bracketed, reachable
from contracts.errors import ConfigError
from identity.files import make_private_directory, write_private
from identity.keys import KeyPair

__all__ = ["MosquittoListener", "MosquittoSettings", "RunningMosquitto", "open_mosquitto"]

_log = logging.getLogger(__name__)


_LOOK: Final = "Start it again with --debug to see Mosquitto's log."


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

    It is started again whenever it ends by itself, on the same ports. On Linux it is tied to the thread that
    enters, which has to be one that lives as long as the process.

    Raises:
        PortTaken: If another program listens on one of the ports.
        ConfigError: If Mosquitto is missing, or does not start.
    """
    failure: Exception | None = None
    installation = find_installation(binary=settings.binary, plugin=settings.plugin)
    running = RunningMosquitto(replace(settings, listeners=_with_ports(settings.listeners)), installation)
    running.write_files()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(running.run(), name="run Mosquitto")
        try:
            await running.wait_ready()
            await provision(
                running.url,
                admin_login(settings.key),
                hub_id=settings.hub_id,
                key=settings.key,
                instance=settings.instance,
            )
            _log.info("Mosquitto started at %s", running.url)
            yield running
        except Exception as error:  # noqa: BLE001 - raised below as it is, not wrapped by the task group
            failure = error
        finally:
            watching.cancel()
    _log.info("Mosquitto stopped")
    if failure is not None:
        raise failure


class RunningMosquitto:
    """A Mosquitto that is kept running. Made by `open_mosquitto`."""

    def __init__(self, settings: MosquittoSettings, installation: Installation) -> None:
        self._settings = settings
        self._installation = installation
        self._config_file = settings.data_dir / "mosquitto.conf"
        self._process: asyncio.subprocess.Process | None = None
        self._said: deque[str] = deque(maxlen=MOSQUITTO_LOG_LINES)
        self._ended = asyncio.Event()
        self._was_ready = False
        self._told_to_end = False

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(each.port for each in self._settings.listeners)

    @property
    def url(self) -> str:
        return f"mqtt://{bracketed(reachable(self._settings.listeners[0].host))}:{self.ports[0]}"

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def reload_certificates(self) -> None:
        """Reload the certificates from their files.

        No client is disconnected, unless a WebSocket listener has a certificate: then Mosquitto restarts.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return
        encrypted = [each for each in self._settings.listeners if each.tls is not None]
        # Version 2.0 takes the signal for its TCP listeners only.
        if sys.platform == "win32" or any(each.transport == "websocket" for each in encrypted):
            self._told_to_end = True
            terminate(process)
        elif encrypted:
            send_signal(process, signal.SIGHUP)

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

    async def wait_ready(self) -> None:
        """Wait until it listens everywhere it should.

        Raises:
            ConfigError: If it ends instead, or does not listen in time.
        """
        try:
            async with asyncio.timeout(MOSQUITTO_START_S):
                for each in self._settings.listeners:
                    while not await _listens(each):
                        if self._ended.is_set():
                            raise ConfigError(f"Mosquitto does not start: {self._cause()}", hint=_LOOK)
                        await asyncio.sleep(limits.MOSQUITTO_LOOK_S)
        except TimeoutError:
            raise ConfigError(
                f"Mosquitto does not listen after {MOSQUITTO_START_S:.0f} s", hint=_LOOK
            ) from None
        self._was_ready = True

    async def run(self) -> None:
        """Keep it running until cancelled, then end it politely; but not if it never listened."""

        async def run_once() -> str | None:
            try:
                await self._live()
            except OSError as error:  # no room for a process, or the program is just being updated
                self._said.append(f"error: {error}")
            self._ended.set()
            if not self._was_ready:
                return None  # `wait_ready` raises with the cause
            told, self._told_to_end = self._told_to_end, False
            return "" if told else self._cause()

        def warn(cause: str, delay: float, _: int) -> None:
            _log.warning("Mosquitto ended and is started again in %.1f s: %s", delay, cause)

        await keep_running(run_once, warn, wait_s=MOSQUITTO_RESTART_S, steady_s=MOSQUITTO_HEALTHY_S, jitter=0)

    async def _live(self) -> None:
        """Start it, and stay until it has ended."""
        self._said.clear()
        command = tied(
            [str(self._installation.binary), "-c", str(self._config_file)], open_files=MOSQUITTO_OPEN_FILES
        )
        starting = open_process(
            command, name="Mosquitto", stop_s=MOSQUITTO_STOP_S, stderr=asyncio.subprocess.PIPE
        )
        async with starting as self._process:
            async for line in lines_of(output_of(self._process.stderr)):
                self._said.append(line.rstrip())
                _log.debug("Mosquitto: %s", line.rstrip())
            await self._process.wait()

    def _cause(self) -> str:
        """Return why it ended: its last line about an error, or else its exit code."""
        errors = [each for each in self._said if "rror" in each]
        if errors:
            return errors[-1]
        code = self._process.returncode if self._process is not None else None
        if code is not None and code < 0:
            return f"by {signal.Signals(-code).name}"
        return f"with exit code {code}"


async def _listens(listener: MosquittoListener) -> bool:
    try:
        _, writer = await asyncio.open_connection(reachable(listener.host), listener.port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _with_ports(listeners: tuple[MosquittoListener, ...]) -> tuple[MosquittoListener, ...]:
    """Choose free ports where any will do, and make sure that the others are free.

    Mosquitto itself cannot say which program is in its way.
    """
    first = listeners[0] if listeners else None
    if first is None or first.tls is not None or first.transport != "tcp":
        raise ConfigError("Mosquitto's first listener has to be one without TLS or WebSocket")
    with contextlib.ExitStack() as held:
        # All are held until the last one is known: no two may get the same.
        sockets = [held.enter_context(listen(each.host, each.port, purpose="MQTT")) for each in listeners]
        ports = [each.getsockname()[1] for each in sockets]
    return tuple(replace(each, port=port) for each, port in zip(listeners, ports, strict=True))


def _user() -> str | None:
    """Name who Mosquitto is to stay when it is started by root, who alone may read these files."""
    return getpass.getuser() if sys.platform != "win32" and os.geteuid() == 0 else None
