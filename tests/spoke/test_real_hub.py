"""A spoke and the genuine registry, over HTTPS and a broker with TLS."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette

from broker.embedded.logins import EmbeddedLogins
from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from broker.logins import BrokerLogins
from broker.mosquitto.config import MosquittoListener
from broker.mosquitto.logins import MosquittoLogins
from broker.mosquitto.own_logins import hub_login as mosquitto_login
from broker.mosquitto.process import MosquittoSettings, open_mosquitto
from broker.mosquitto.provisioning import open_security
from bus.link import Link, LinkSettings
from bus.ports import listen
from chat.http.errors import HANDLERS
from chat.http.server import serve as serve_http
from contracts.claims import Claims
from contracts.errors import ConfigError
from hub_registry.access.bearer import Gate
from hub_registry.devices.devices import DeviceChange
from hub_registry.http import make_routes
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import JoiningBounds, RegistrySettings
from identity.certificates import Authority, ServerCertificate
from identity.keys import KeyPair
from spoke.app import open_spoke
from spoke.membership.enrolment import Enrolment
from spoke.membership.join_code import JoinCode, join_by_code
from spoke.settings import SpokeSettings
from tests.hub_registry.hubs import Hub, hub_login, serve
from tests.hub_registry.spokes import aged
from tests.mosquitto import HINT, find_mosquitto
from tests.requirements import require
from tests.spoke.home import Place, wait_for
from tests.spoke.hub import StandInHub


@dataclass
class House:
    """The hub as it is, but for its agent."""

    registry: Registry
    hub: Hub
    settings: SpokeSettings

    async def let_in(self, code: JoinCode) -> str:
        """Approve a code as its owner does, who compares the fingerprints."""
        (waiting,) = self.registry.joining.waiting()
        assert (waiting.code, waiting.fingerprint) == (code.code, code.fingerprint)
        approved = await self.registry.approve_join(code.code, owner=self.registry.admin.id)
        return approved.device.id

    async def joined(self, name: str) -> str:
        """Join by code; give the device's id."""
        codes: asyncio.Queue[JoinCode] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(join_by_code(self.settings, name=name, show=codes.put_nowait))
            device = await self.let_in(await codes.get())
        assert joining.result().device == device
        return device

    def connected(self, device: str) -> bool:
        entry = self.registry.directory.get(device)
        return entry is not None and entry.connected and "JournalSkill" in entry.skills


@dataclass
class Bus:
    """A broker of our own, with the hub's way in, and the devices' by TLS."""

    url: str
    tls_url: str
    login: Callable[[Registry, str, str], LinkSettings]
    logins: Callable[[Link], BrokerLogins]


@asynccontextmanager
async def open_bus(
    kind: str, directory: Path, certificate: ServerCertificate, *, hub_id: str, key: KeyPair
) -> AsyncIterator[Bus]:
    if kind == "embedded":
        listeners = (Listener(port=0), Listener(port=0, tls=certificate.context()))
        settings = EmbeddedSettings(
            data_dir=directory, hub_id=hub_id, hub_key=key.public, listeners=listeners
        )
        async with open_embedded(settings) as broker:
            yield Bus(broker.urls[0], broker.urls[1], hub_login, EmbeddedLogins)
        return
    require(find_mosquitto() is not None, HINT)
    plain, secure = MosquittoListener(port=0), MosquittoListener(port=0, tls=certificate)
    mosquitto = MosquittoSettings(data_dir=directory, hub_id=hub_id, key=key, listeners=(plain, secure))
    login = mosquitto_login(key, "main")

    def log_in(_: Registry, url: str, client_id: str) -> LinkSettings:
        password = SecretStr(login.password or "")
        client_id = f"{login.username}-{client_id}"
        return LinkSettings(urls=(url,), client_id=client_id, username=login.username, password=password)

    async with open_mosquitto(mosquitto) as running, open_security(running.url, login) as security:
        tls_url = f"mqtts://127.0.0.1:{running.ports[1]}"
        yield Bus(running.url, tls_url, log_in, lambda _: MosquittoLogins(security))


@pytest.fixture(params=["embedded", "mosquitto"])
async def house(
    request: pytest.FixtureRequest, tmp_path: Path, hub_key: KeyPair, place: Place
) -> AsyncIterator[House]:
    authority = Authority.load_or_create(tmp_path / "certs")
    certificate = authority.issue(["localhost"], ["127.0.0.1"], directory=tmp_path / "certs")
    # The broker needs the hub's id, which the database has, and the hub the broker's address.
    database = tmp_path / "hub" / "hub.db"
    async with open_registry(RegistrySettings(database=database), key=hub_key) as registry:
        hub_id = registry.hub_id
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(
            open_bus(request.param, tmp_path / "broker", certificate, hub_id=hub_id, key=hub_key)
        )
        settings = RegistrySettings(
            database=database,
            brokers=(bus.tls_url,),
            authentication="token" if request.param == "mosquitto" else "proof",
            ca=authority.pem,
            removal_wait_s=0.2,
            joining=JoiningBounds(interval_s=0.1),
        )
        registry = await stack.enter_async_context(open_registry(settings, key=hub_key))
        hub = await stack.enter_async_context(serve(registry, bus.url, login=bus.login, logins=bus.logins))
        gate = Gate(registry.authority, registry.accounts)
        routes = make_routes(registry, gate=gate, remover=hub.service)
        app = Starlette(routes=routes, exception_handlers=HANDLERS)
        listener = stack.enter_context(listen("127.0.0.1", 0, purpose="HTTPS"))
        tls = certificate.context()
        await stack.enter_async_context(serve_http(app, listener, tls=tls))
        address = StandInHub(brokers=[], tls=tls, port=listener.getsockname()[1])
        yield House(registry, hub, place.settings(address))


async def test_a_device_joins_by_code_over_tls_and_renews_its_token_without_leaving(house: House) -> None:
    device = await house.joined("Garage PC")
    assert device == "garage_pc"
    old = await aged(house.registry, device, house.settings.directory / "enrolment.json")
    renew, may_renew = house.registry.authority.renew, asyncio.Event()

    async def renew_later(claims: Claims, *, lifetime_s: int) -> str:
        await may_renew.wait()
        return await renew(claims, lifetime_s=lifetime_s)

    house.registry.authority.renew = renew_later  # type: ignore[method-assign]
    async with open_spoke(house.settings) as spoke:
        await wait_for(lambda: house.connected(device), "the spoke with its skill")
        may_renew.set()
        await wait_for(
            lambda: house.registry.authority.on_bus("device", device) not in (old, None), "the renewal"
        )
        await wait_for(lambda: house.connected(device) and spoke.connected, "the spoke to be back")
        assert spoke.problem is None
        # Nobody heard that it was away, so no call of anybody ended by that.
        assert all(change.connected for change in house.hub.changes)
    with pytest.raises(ConfigError, match=r"has already joined .* as garage_pc"):
        await join_by_code(house.settings, name="Garage PC", show=lambda _: None)


async def test_a_revoked_device_hears_why_and_is_back_as_it_was_told(house: House) -> None:
    device = await house.joined("Garage PC")
    async with open_spoke(house.settings) as spoke:
        await wait_for(lambda: house.connected(device), "the spoke")
        await house.hub.service.revoke_device(device)
        problem = await wait_for(lambda: spoke.problem, "the word of it")
        assert "the token has been revoked" in problem
        assert "strawberry devices invite garage_pc" in problem
    invitation = await house.registry.invite(device)
    async with open_spoke(house.settings, token=SecretStr(invitation.token)) as spoke:
        await wait_for(lambda: house.connected(device), "the spoke to be back, with the key that it had")
        assert spoke.problem is None


async def test_a_removed_device_joins_anew_with_its_old_key(house: House) -> None:
    device = await house.joined("Garage PC")
    await house.hub.service.remove_device(device)
    again = await house.joined("Garage PC")
    assert again != device, "an id is never given out again"
    async with open_spoke(house.settings):
        await wait_for(lambda: house.connected(again), "the spoke to be back")


async def test_a_running_spoke_learns_its_new_name_and_keeps_it(house: House) -> None:
    device = await house.joined("Garage PC")
    stored = house.settings.directory / "enrolment.json"

    def key() -> str:
        profile = Enrolment.model_validate_json(stored.read_bytes()).profile
        assert profile is not None
        return profile.key

    assert key() == "garage_pc"
    async with open_spoke(house.settings.model_copy(update={"refresh_s": 0.05, "retry_max_s": 0.05})):
        await house.registry.change_device(device, DeviceChange(display_name="Entrance hall"))
        await wait_for(lambda: key() == "entrance_hall", "the new name")
