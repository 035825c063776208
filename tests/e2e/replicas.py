"""Hubs that share a PostgreSQL database and a broker."""

import hashlib
import os
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.cli.client import HubClient
from deploy.directory import Home
from tests import postgresql
from tests.e2e.house import PATIENCE_S, House, wait_for
from tests.ports import free_port


@dataclass
class Replicas(House):
    """A house whose hub is several processes; ``a``, the first, has the data directory of the house.

    Attributes:
        lan: How they reach each other: over loopback, or with ``--lan`` or ``--insecure-lan``.
    """

    ports: dict[str, int] = field(default_factory=dict)
    lan: str = ""

    def start_replica(self, name: str) -> None:
        """Start a replica, or start it again, and wait until it serves."""
        home = self.home_of(name)
        if name not in self.ports:
            # The first one, whose address the spokes and the commands have, has the port of the house.
            self.ports[name] = free_port() if self.ports else self.http_port
            database = postgresql.database(
                f"r{hashlib.sha256(str(self.directory).encode()).hexdigest()[:20]}"
            )
            (home / "hub").mkdir(parents=True, exist_ok=True, mode=0o700)
            if home != self.home:
                shutil.copy(self.home / "strawberry.toml", home / "strawberry.toml")
                (home / "sandbox").symlink_to((self.home / "sandbox").resolve(), target_is_directory=True)
                shutil.copy(self.home / "hub" / "key.pem", home / "hub" / "key.pem")
                if self.lan == "--lan":
                    (home / "certs").mkdir(mode=0o700)
                    for each in ("ca.pem", "ca.key"):
                        shutil.copy(self.home / "certs" / each, home / "certs" / each)
            else:
                with (home / "strawberry.toml").open("a") as settings:
                    settings.write(f'\n[database]\nurl = "{database}"\n')
        address = ("--broker", self.broker_url, "--trust-broker", "--http-port", str(self.ports[name]))
        lan = (self.lan, "--https-port", str(free_port())) if self.lan else ()
        self.start(name, "hub", *address, *lan, "--replica", name, *self._debug, home=home)
        wait_for(lambda: "Ready" in self.log(name) or self.ended(name), what=f"the replica {name}")

    def home_of(self, name: str) -> Path:
        return self.home if name == "a" else self.directory / f"home-{name}"

    def of(self, name: str) -> HubClient:
        """The owner's, through this replica."""
        token = Home(self.home).token_file.read_text().strip()
        return HubClient(f"http://127.0.0.1:{self.ports[name]}", token=token)

    def at(self, name: str, path: str, body: Any = None, *, method: str = "") -> Any:
        """What a replica answers to the owner of the house."""
        method = method or ("GET" if body is None else "POST")
        return self.of(name).request(method, path, body, timeout=PATIENCE_S)

    def leader(self) -> str:
        """The replica that leads by its log, and empty where none does."""
        for name in self.ports:
            lines = [line for line in self.log(name).splitlines() if f"{name} leads" in line]
            process = self.processes.get(name)
            if process is not None and process.poll() is None and lines and "in term" in lines[-1]:
                return name
        return ""

    def end(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a replica."""
        process = self.processes.pop(name)
        os.kill(process.pid, number)
        process.wait(PATIENCE_S)
