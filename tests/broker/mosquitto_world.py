"""Mosquittos with dynamic security, as a house may have them before Strawberry comes."""

import getpass
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from broker.mosquitto.commands import Acl, AclType, CreateClient, RoleUse, SetRole
from broker.mosquitto.config import MosquittoConfig, MosquittoListener, render
from broker.mosquitto.dynsec import DynamicSecurity
from broker.mosquitto.installation import find_installation
from broker.mosquitto.own_logins import keep_admin
from broker.mosquitto.provisioning import open_security
from broker.probe import Probe, ProbeLogin, open_probe
from contracts.devices.joining import Login
from tests.mosquitto import HINT, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

ADMIN = Login(username="boss", password="of the house")
EVERYTHING: tuple[AclType, ...] = ("publishClientSend", "publishClientReceive", "subscribePattern")


@dataclass
class HouseBroker:
    """Somebody's Mosquitto with the plugin, set up by hand."""

    url: str
    admin: Login = field(default_factory=lambda: ADMIN)

    @asynccontextmanager
    async def security(self) -> AsyncIterator[DynamicSecurity]:
        async with open_security(self.url, self.admin) as security:
            yield security

    async def add(self, username: str, *topics: str, clientid: str | None = None) -> None:
        """Make a client that may do everything on these topics; its password is its name."""
        acls = frozenset(Acl(acltype=each, topic=topic) for topic in topics for each in EVERYTHING)
        async with self.security() as security:
            await security.change(
                [
                    SetRole(rolename=f"{username}-role", acls=acls),
                    CreateClient(
                        username=username,
                        password=SecretStr(username),
                        clientid=clientid,
                        roles=frozenset((RoleUse(rolename=f"{username}-role"),)),
                    ),
                ]
            )

    @asynccontextmanager
    async def login(self, username: str, password: str | None = None) -> AsyncIterator[Probe]:
        """Log in as one of them."""
        secret = SecretStr(password or username)
        async with open_probe(ProbeLogin(self.url, f"{username}-program", username, secret)) as probe:
            yield probe


@contextmanager
def start_mosquitto(directory: Path, config: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start Mosquitto with a configuration of any kind, and wait until it listens."""
    require(find_mosquitto() is not None, HINT)
    file = directory / "mosquitto.conf"
    file.write_text(config)
    process = subprocess.Popen([find_installation().binary, "-c", file], stderr=subprocess.DEVNULL)
    try:
        wait_until_listening(port)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=120)


def wait_until_listening(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("Mosquitto did not start")


@contextmanager
def house_broker(directory: Path, *, anonymous: bool = False) -> Iterator[HouseBroker]:
    """Somebody's Mosquitto, with an administrator and nobody else."""
    port, security_file = free_port(), directory / "dynsec.json"
    keep_admin(security_file, ADMIN)
    config = MosquittoConfig(
        listeners=(MosquittoListener(port=port),),
        plugin=find_installation().plugin,
        security_file=security_file,
        data_dir=directory,
        user=getpass.getuser(),
    )
    text = render(config).replace("allow_anonymous false", f"allow_anonymous {str(anonymous).lower()}")
    with start_mosquitto(directory, text, port):
        yield HouseBroker(f"mqtt://127.0.0.1:{port}")
