"""The brokers that are our own, with a registry's service on them, and devices that log in."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from broker.mosquitto.config import MosquittoListener
from broker.mosquitto.logins import MosquittoLogins
from broker.mosquitto.own_logins import hub_login as mosquitto_login
from broker.mosquitto.process import MosquittoSettings, open_mosquitto
from broker.mosquitto.provisioning import open_security
from broker.nats.config import Node
from broker.nats.keys import NatsKeys
from broker.nats.process import open_nats_server
from bus.link import Link, LinkSettings, Message, open_link
from contracts import topics
from contracts.devices.presence import DeviceStatus
from hub_agent.bus.connection import open_nats_logins
from hub_agent.settings import BusSettings
from hub_registry.bus.purging import Purger
from hub_registry.devices.presence import PresenceState
from hub_registry.registry import Registry
from identity import tokens
from identity.envelope import Seal
from identity.keys import KeyPair
from tests.hub_registry.hubs import Hub, hub_login, serve
from tests.hub_registry.spokes import FakeSpoke, eventually
from tests.mosquitto import HINT, find_mosquitto
from tests.proofs import bus_password
from tests.requirements import require

KINDS = ("embedded", "mosquitto", "nats")


@asynccontextmanager
async def open_own(
    kind: str, directory: Path, registry: Registry, *, port: int = 0, purgers: tuple[Purger, ...] = ()
) -> AsyncIterator[Hub]:
    """Run a registry on a broker of its own that is started for it."""
    if kind == "embedded":
        embedded = EmbeddedSettings(
            data_dir=directory,
            hub_id=registry.hub_id,
            hub_key=registry.key.public,
            listeners=(Listener(port=port),),
        )
        async with (
            open_embedded(embedded) as broker,
            serve(registry, broker.url, login=hub_login, purgers=purgers) as hub,
        ):
            hub.url = broker.url
            yield hub
        return
    if kind == "nats":
        node = Node("127.0.0.1", mqtt=port, hub=0)
        async with (
            open_nats_server(directory, NatsKeys(registry.key).for_nodes(), node) as server,
            open_nats_logins(
                BusSettings(url=server.url, kind="nats", nodes=(server.hub_url,)), registry
            ) as logins,
            serve(registry, server.url, login=hub_login, logins=lambda _: logins, purgers=purgers) as hub,
        ):
            hub.url = server.url
            yield hub
        return
    require(find_mosquitto() is not None, HINT)
    settings = MosquittoSettings(
        data_dir=directory,
        hub_id=registry.hub_id,
        key=registry.key,
        listeners=(MosquittoListener(port=port),),
    )
    login = mosquitto_login(registry.key, "main")
    async with (
        open_mosquitto(settings) as running,
        open_security(running.url, login) as security,
        serve(
            registry,
            running.url,
            login=_by_password,
            logins=lambda _: MosquittoLogins(security),
            purgers=purgers,
        ) as hub,
    ):
        hub.url, hub.with_proofs = running.url, False
        yield hub


def _by_password(registry: Registry, url: str, client_id: str) -> LinkSettings:
    login = mosquitto_login(registry.key, "main")
    return LinkSettings(
        urls=(url,),
        client_id=f"{login.username}-{client_id}",
        username=login.username,
        password=SecretStr(login.password or ""),
        backoff_s=0.05,
    )


@dataclass
class Device:
    """A device that has logged in by itself.

    Attributes:
        token: What it logs in with the next time; may be changed.
    """

    spoke: FakeSpoke
    link: Link
    token: str

    @property
    def id(self) -> str:
        return self.spoke.device


def device_password(hub: Hub, device: str, key: KeyPair, token: str) -> SecretStr:
    """Return the password of a device on this broker, by its token for HTTP, good or not."""
    registry = hub.registry
    claims = tokens.verify(token, key=registry.key.public, hub_id=registry.hub_id, audience="http", now=0)
    on_bus = tokens.issue(registry.key, claims.model_copy(update={"aud": "mqtt"}))
    return bus_password(registry.hub_id, device, key, on_bus)() if hub.with_proofs else SecretStr(on_bus)


@asynccontextmanager
async def logged_in(hub: Hub, name: str) -> AsyncIterator[Device]:
    """Join and log in a device with its own token and its own will."""
    device = await hub.registry.devices.add(name, owner="admin")
    key = KeyPair.generate()
    invitation = await hub.registry.invite(device.id)
    token = (await hub.registry.enrolment.enrol(invitation.token, key.public.jwk())).token
    seal, topic = Seal(hub.registry.hub_id, key), topics.STATUS.build(device=device.id)

    def will() -> Message:
        gone = DeviceStatus(state="offline", epoch=spoke.epoch, connection=spoke.connection, seq=0)
        return Message(topic, seal.seal(topic, gone), retain=True)

    link = open_link(
        log_in_with(hub, device.id, lambda: device_password(hub, device.id, key, there.token)),
        will=will,
        wait_s=30,
    )
    spoke = FakeSpoke(link, hub_id=hub.registry.hub_id, device=device.id, key=key)
    there = Device(spoke, link, token)
    async with link:
        await spoke.status()
        await eventually(lambda: hub.state(spoke) is PresenceState.ONLINE)
        yield there


def log_in_with(hub: Hub, name: str, password: SecretStr | Callable[[], SecretStr]) -> LinkSettings:
    """Log in under a name."""
    return LinkSettings(
        urls=(hub.url,),
        client_id=name,
        username=name,
        password=password,
        backoff_s=0.05,
        backoff_max_s=0.1,
        refused_s=0.1,
    )
