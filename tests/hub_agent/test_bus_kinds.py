"""The hub on each kind of bus, and what it sends to whom."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from contracts.devices.joining import BusAccess, Login
from hub_agent.settings import BusKind, BusSettings, HttpSettings, HubSettings
from hub_registry.access.accounts import Accounts
from hub_registry.storage.store import open_store
from hub_server.service import open_hub
from identity.certificates import Authority
from identity.keys import KeyPair
from tests.hub_agent.home import linked, open_home, wait_for
from tests.hub_agent.skills import LampSkill
from tests.hub_registry.spokes import eventually

NOWHERE = ("nats://127.0.0.1:1",)
OWN: tuple[BusKind, ...] = ("embedded", "mosquitto", "nats")


@pytest.mark.parametrize(
    ("kind", "mqtt"), [("embedded", "3.1.1"), ("mosquitto", "5"), ("nats", "3.1.1"), ("shared", "5")]
)
async def test_a_house_lives_on_every_kind_of_bus(tmp_path: Path, kind: BusKind, mqtt: str) -> None:
    async with open_home(tmp_path / "home", kind=kind) as home:
        lamp = LampSkill()
        device = await home.device("Bedroom PC", lamp)
        async with home.client() as client:
            said = (await client.post("/api/chat", json={"message": "turn on the lamp"})).json()
            assert said["answer"] == "The lamp is at 100 percent."
            health = (await client.get("/api/health")).json()
            # NATS also tells how full it is.
            assert health["broker"].items() >= {"kind": kind, "connected": True, "mqtt": mqtt}.items()
            assert health["home_broker"] is None
            gone = asyncio.Event()
            device.spoke.link.on_disconnected(gone.set)
            assert (await client.post(f"/api/devices/{device.id}/revoke")).status_code == 200
            if kind != "shared":
                await wait_for(gone)
            refused = await client.post("/api/chat", json={"message": "turn on the lamp"})
            assert refused.status_code == 503
    assert lamp.level == 100


@pytest.mark.parametrize("kind", OWN)
async def test_a_hub_that_comes_back_to_its_bus_locks_nobody_out(tmp_path: Path, kind: BusKind) -> None:
    async with open_home(tmp_path / "home", kind=kind) as home:
        device = await home.device("Bedroom PC", LampSkill())
        back = asyncio.Event()

        async def note() -> None:
            back.set()

        home.hub.link.on_connected(note)
        home.hub.link.reconnect()
        await wait_for(back)
        assert home.hub.link.connected
        async with linked(home.device_login(device.id, device.key, device.bus_token)) as again:
            assert again.connected


async def test_on_a_shared_broker_the_ordinary_login_is_all_that_is_sent(tmp_path: Path) -> None:
    login = Login(username="house", password="ordinary")
    async with listening() as heard:
        settings = hub_at(tmp_path, url=heard.url, kind="shared", topic_prefix="strawberry/", login=login)
        async with open_hub(settings) as hub:
            await eventually(lambda: b"ordinary" in heard.bytes)
            assert b"house" in heard.bytes
            assert b"strawberry-hub-main" in heard.bytes
            assert b"eyJ" not in heard.bytes  # how every JWT begins
            token = (tmp_path / "hub" / "cli.token").read_text()
            async with httpx.AsyncClient(base_url=hub.url, timeout=60) as client:
                told = await client.get("/api/bus", headers={"authorization": f"Bearer {token}"})
            assert BusAccess.model_validate(told.json()) == BusAccess(
                brokers=(heard.url,), prefix="strawberry/", authentication="login", login=login
            )


async def test_the_person_is_told_what_a_shared_broker_does_not_protect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_home(tmp_path / "home", kind="shared"):
        warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("on a shared broker" in line and "reading along" in line for line in warned)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
async def test_nothing_is_sent_to_a_broker_that_is_not_known_as_ours(tmp_path: Path, kind: BusKind) -> None:
    asked: list[bool] = []

    def is_ours() -> bool:
        asked.append(True)
        return False

    async with listening() as heard:
        async with open_hub(
            hub_at(tmp_path, url=heard.url, kind=kind, nodes=NOWHERE, is_ours=is_ours)
        ) as hub:
            await eventually(lambda: len(asked) > 1)
            async with httpx.AsyncClient(base_url=hub.url, timeout=60) as client:
                broker = (await client.get("/api/health")).json()["broker"]
            assert "not known as the broker of this home" in str(hub.link.last_error)
        assert broker == {"connected": False}
        assert heard.bytes == b""


async def test_it_is_asked_anew_before_each_login_whose_broker_it_is(tmp_path: Path) -> None:
    ours = [True]
    async with open_home(tmp_path / "home", bus={"is_ours": lambda: ours[0]}) as home:
        link = home.hub.link
        assert link.connected
        ours[0] = False
        link.reconnect()
        await eventually(lambda: "not known" in str(link.last_error))
        assert not link.connected
        ours[0] = True
        await eventually(lambda: link.connected)


@pytest.mark.slow
async def test_the_bus_is_reached_over_tls_with_the_authority_of_the_home(tmp_path: Path) -> None:
    authority = Authority.load_or_create(tmp_path / "certs")
    certificate = authority.issue((), ("127.0.0.1",), directory=tmp_path / "certs")
    key = KeyPair.load_or_create(tmp_path / "hub" / "key.pem")
    async with open_store(tmp_path / "hub" / "hub.db") as store:
        hub_id = await Accounts(store).hub_id()
    broker = EmbeddedSettings(
        data_dir=tmp_path / "broker",
        hub_id=hub_id,
        hub_key=key.public,
        listeners=(Listener(port=0), Listener(port=0, tls=certificate.context())),
    )
    async with open_embedded(broker) as running:
        url = f"mqtts://127.0.0.1:{running.ports[1]}"
        async with open_hub(hub_at(tmp_path, url=url, ca=authority.pem)) as hub:
            await eventually(lambda: hub.link.connected)
        async with open_hub(hub_at(tmp_path, url=url)) as hub:
            await eventually(lambda: "certificate" in str(hub.link.last_error))
            assert not hub.link.connected


def test_settings_that_would_send_the_wrong_login_are_refused() -> None:
    login = Login(username="house", password="ordinary")
    for kind in OWN:
        with pytest.raises(ValidationError, match="only a shared broker"):
            BusSettings(url="mqtt://127.0.0.1", kind=kind, login=login)
    with pytest.raises(ValidationError, match="no prefix"):
        BusSettings(url="mqtt://127.0.0.1", kind="mosquitto", topic_prefix="strawberry/")
    assert "ordinary" not in repr(BusSettings(url="mqtt://127.0.0.1", kind="shared", login=login))


class Heard:
    """A listener that answers nothing, and what it was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.bytes = b""

    async def read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            self.bytes += data
        writer.close()


@asynccontextmanager
async def listening() -> AsyncIterator[Heard]:
    heard = Heard()
    server = await asyncio.start_server(heard.read, "127.0.0.1", 0)
    heard.url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield heard


def hub_at(directory: Path, **bus: Any) -> HubSettings:
    return HubSettings(home=directory, bus=BusSettings(**bus), http=HttpSettings(port=0), gateway="direct")
