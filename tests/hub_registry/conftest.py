"""A registry on a fresh database."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from contracts.rates import TokenBuckets
from hub_registry import limits
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.enrolment import Enrolment
from hub_registry.access.tokens import TokenAuthority
from hub_registry.devices.devices import Devices
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from hub_registry.storage.store import Store, open_store
from identity import limits as hashing
from identity.keys import KeyPair
from tests.hub_registry.http_client import Browser, Client, speak_to
from tests.hub_registry.hubs import Hub, open_hub
from tests.hub_registry.own_brokers import KINDS, open_own
from tests.mosquitto import Mosquitto
from tests.reused import put_database


@dataclass
class Clock:
    """Seconds that pass only when told."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    """The parts of a registry without a bus."""

    store: Store
    accounts: Accounts
    devices: Devices
    authority: TokenAuthority
    enrolment: Enrolment
    admin: User
    clock: Clock = field(default_factory=Clock)

    async def joined(self, name: str) -> tuple[str, KeyPair, str]:
        """Add and enrol a device; gives its id, its key and its token."""
        device = await self.devices.add(name, owner=self.admin.id)
        key = KeyPair.generate()
        invitation = await self.enrolment.invite(device.id, lifetime_s=600)
        done = await self.enrolment.enrol(invitation.token, key.public.jwk())
        return device.id, key, done.token


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "hub" / "hub.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[Store]:
    await put_database(database)
    async with open_store(database) as opened:
        yield opened


@pytest.fixture
async def house(store: Store) -> House:
    accounts = Accounts(store)
    clock = Clock()
    authority = TokenAuthority(store, hub_id=await accounts.hub_id(), key=KeyPair.generate())
    enrolment = Enrolment(
        store,
        authority,
        device_token_s=3600,
        failures=TokenBuckets(burst=5, per_second=5 / 60, clock=clock),
        on_bound=lambda _: None,
    )
    return House(store, accounts, Devices(store), authority, enrolment, await accounts.first_admin(), clock)


@pytest.fixture(scope="session")
def hub_key() -> KeyPair:
    return KeyPair.generate()


@pytest.fixture
async def hub(tmp_path: Path, mosquitto: Mosquitto, hub_key: KeyPair) -> AsyncIterator[Hub]:
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as running:
        yield running


@pytest.fixture
async def registry(tmp_path: Path, hub_key: KeyPair) -> AsyncIterator[Registry]:
    async with open_registry(RegistrySettings(database=tmp_path / "hub" / "hub.db"), key=hub_key) as opened:
        yield opened


@pytest.fixture(params=KINDS)
async def own(request: pytest.FixtureRequest, tmp_path: Path, registry: Registry) -> AsyncIterator[Hub]:
    """A hub on each kind of broker that we run ourselves."""
    async with open_own(request.param, tmp_path / "broker", registry) as running:
        yield running


@pytest.fixture
def registry_settings(request) -> dict[str, object]:
    """Settings beyond those of every registry here; a test gives them as its parameter."""
    return getattr(request, "param", {})


@pytest.fixture
async def client(
    tmp_path: Path, hub_key: KeyPair, registry_settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    bus = {"brokers": ("mqtt://192.0.2.1:1883",), "authentication": "proof"} | registry_settings
    monkeypatch.setattr(limits, "ENROLMENT_FAILURES", 3)
    # The tests that guess passwords would do little else than hash them.
    monkeypatch.setattr(hashing, "HASH_MEMORY_KIB", 8)
    monkeypatch.setattr(hashing, "HASH_ROUNDS", 1)
    settings = RegistrySettings.model_validate({"database": tmp_path / "hub" / "hub.db", "bus": bus})
    await put_database(settings.database)
    async with open_registry(settings, key=hub_key) as registry, speak_to(registry) as client:
        yield client


@pytest.fixture
def browser(client: Client) -> Browser:
    return Browser(client)
