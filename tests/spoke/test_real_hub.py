"""A spoke and the genuine registry, over HTTPS and a broker with TLS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi import FastAPI

from broker.certificates import Authority
from broker.embedded import EmbeddedSettings, Listener, open_embedded
from broker.keys import KeyPair
from broker.ports import listen
from contracts.errors import ConfigError
from hub_agent.http import errors
from hub_agent.http.server import serve as serve_http
from hub_registry.bearer import Gate
from hub_registry.http import make_router
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import JoiningBounds, RegistrySettings, TokenLifetimes
from spoke.app import open_spoke
from spoke.joining import JoinCode, join_by_code
from spoke.settings import SpokeSettings
from tests.hub_registry.hubs import Hub, hub_login, serve
from tests.spoke.home import Place, wait_for
from tests.spoke.hub import StandInHub

LIFETIME_S = 4
"""Of a device token: short enough that one is renewed while somebody watches."""


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


@pytest.fixture
async def house(tmp_path: Path, hub_key: KeyPair, place: Place) -> AsyncIterator[House]:
    authority = Authority.load_or_create(tmp_path / "certs")
    tls = authority.issue(["localhost"], ["127.0.0.1"], directory=tmp_path / "certs").context()
    lifetimes, joining = TokenLifetimes(device_s=LIFETIME_S), JoiningBounds(interval_s=0.1)
    async with AsyncExitStack() as stack:
        # The broker needs the hub's id, which the database has, and the hub the broker's address.
        database = tmp_path / "hub" / "hub.db"
        async with open_registry(RegistrySettings(database=database), key=hub_key) as registry:
            hub_id = registry.hub_id
        broker = await stack.enter_async_context(
            open_embedded(
                EmbeddedSettings(
                    data_dir=tmp_path / "broker",
                    hub_id=hub_id,
                    hub_key=hub_key.public,
                    listeners=(Listener(port=0), Listener(port=0, tls=tls)),
                )
            )
        )
        settings = RegistrySettings(
            database=database,
            brokers=(broker.urls[1],),
            ca=authority.pem,
            lifetimes=lifetimes,
            joining=joining,
        )
        registry = await stack.enter_async_context(open_registry(settings, key=hub_key))
        hub = await stack.enter_async_context(serve(registry, broker.url, login=hub_login))
        app = FastAPI()
        errors.install(app)
        gate = Gate(registry.authority, registry.accounts)
        app.include_router(make_router(registry, gate=gate, remover=hub.service))
        listener = stack.enter_context(listen("127.0.0.1", 0, purpose="HTTPS"))
        await stack.enter_async_context(serve_http(app, listener, tls=tls))
        address = StandInHub(brokers=[], tls=tls, port=listener.getsockname()[1])
        yield House(registry, hub, place.settings(address))


async def test_a_device_joins_by_code_over_tls_and_renews_its_token_without_leaving(house: House) -> None:
    device = await house.joined("Garage PC")
    assert device == "garage_pc"
    async with open_spoke(house.settings) as spoke:
        await wait_for(lambda: house.connected(device), "the spoke with its skill")
        first = house.registry.authority.on_bus("device", device)
        assert first is not None
        await wait_for(
            lambda: house.registry.authority.on_bus("device", device) not in (first, None), "the renewal"
        )
        await wait_for(lambda: house.connected(device) and spoke.connected, "the spoke to be back")
        assert spoke.problem is None
    with pytest.raises(ConfigError, match=r"has joined .* as garage_pc already"):
        await join_by_code(house.settings, name="Garage PC", show=lambda _: None)


async def test_a_revoked_device_hears_why_and_is_back_as_it_was_told(house: House) -> None:
    device = await house.joined("Garage PC")
    async with open_spoke(house.settings) as spoke:
        await wait_for(lambda: house.connected(device), "the spoke")
        await house.hub.service.revoke_device(device)
        problem = await wait_for(lambda: spoke.problem, "the word of it")
        assert "the token has been revoked" in problem
        assert "strawberry devices remove garage_pc" in problem
    await house.hub.service.remove_device(device)
    again = await house.joined("Garage PC")
    async with open_spoke(house.settings):
        await wait_for(lambda: house.connected(again), "the spoke to be back")


async def test_a_refused_code_leaves_nothing_on_either_side(house: House) -> None:
    codes: asyncio.Queue[JoinCode] = asyncio.Queue()

    async def ask() -> str:
        with pytest.raises(Exception, match="refused to let this device in") as error:
            await join_by_code(house.settings, name="Stranger", show=codes.put_nowait)
        return str(error.value)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask())
        house.registry.joining.refuse((await codes.get()).code, by=house.registry.admin.id)
    assert house.registry.directory.entries() == []
    assert not (house.settings.directory / "enrolment.json").exists()
