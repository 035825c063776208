"""``broker check``: right about brokers that are right, and about those that are not."""

import asyncio
import getpass
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.check import Finding, OurBroker, SharedBroker, check
from broker.mosquitto.config import MosquittoConfig, MosquittoListener, render
from broker.mosquitto.installation import find_installation
from broker.mosquitto.own_logins import admin_login, hub_login, keep_admin
from broker.mosquitto.provisioning import open_security, provision
from contracts.devices.joining import Login
from identity.keys import KeyPair
from tests.broker.mosquitto_world import start_mosquitto
from tests.brokers import HUB_ID, INSTANCE, Bus, open_bus
from tests.mosquitto import Mosquitto
from tests.ports import free_port

DENIED = (
    "without a name",
    "without a password",
    "token by another key",
    "token of another",
    "reader in the place of a device",
    "rights of a device",
    "rights of a reader",
    "rights of a chat client",
)
"""What only a broker that checks its clients denies."""


def ours(bus: Bus) -> OurBroker:
    kind = "mosquitto" if bus.kind == "container" else bus.kind
    return OurBroker(kind, bus.url, HUB_ID, bus.hub, INSTANCE, timeout_s=60)  # type: ignore[arg-type]


def wrong(findings: list[Finding]) -> list[str]:
    return [finding.name for finding in findings if not finding.ok]


async def test_a_broker_that_is_as_it_should_be_has_nothing_wrong(any_bus: Bus) -> None:
    findings = await check(ours(any_bus))
    assert [finding for finding in findings if not finding.ok] == []
    assert {finding.name for finding in findings} == {
        "login of the hub",
        "login of a device",
        *DENIED,
        "retained messages",
        "large messages",
    }


@pytest.mark.parametrize("is_interrupted", [False, True])
async def test_nothing_is_left_behind(is_interrupted: bool, tmp_path: Path) -> None:
    async with (
        open_bus("mosquitto", tmp_path) as bus,
        open_security(bus.url, hub_login(bus.hub, INSTANCE)) as security,
    ):
        before = await security.read()
        async with asyncio.TaskGroup() as tasks:
            checking = tasks.create_task(check(ours(bus)))
            while is_interrupted and await security.read() == before:
                pass
            if is_interrupted:
                checking.cancel()
        assert checking.cancelled() is is_interrupted
        assert await security.read() == before


async def test_a_hub_of_another_home_is_told_that_it_does_not_get_in(any_bus: Bus) -> None:
    (finding,) = await check(OurBroker(ours(any_bus).kind, any_bus.url, HUB_ID, KeyPair.generate()))
    assert not finding.ok
    assert finding.detail.startswith("refused")


async def test_a_broker_that_is_down_is_told_so() -> None:
    (finding,) = await check(
        OurBroker("mosquitto", f"mqtt://127.0.0.1:{free_port()}", HUB_ID, KeyPair.generate())
    )
    assert not finding.ok
    assert finding.hint


async def test_a_broker_that_lets_everybody_do_everything_is_found_out(mosquitto: Mosquitto) -> None:
    broker = OurBroker("embedded", mosquitto.url, HUB_ID, KeyPair.generate(), timeout_s=60)
    assert wrong(await check(broker)) == [*DENIED]


@pytest.fixture
async def odd(tmp_path: Path) -> AsyncIterator[OurBroker]:
    """A provisioned Mosquitto that lets in whoever comes, and takes only small messages."""
    hub, port, file = KeyPair.generate(), free_port(), tmp_path / "dynsec.json"
    keep_admin(file, admin_login(hub))
    config = MosquittoConfig(
        listeners=(MosquittoListener(port=port),),
        plugin=find_installation().plugin,
        security_file=file,
        data_dir=tmp_path,
        user=getpass.getuser(),
        max_packet_bytes=100_000,
    )
    text = render(config).replace("allow_anonymous false", "allow_anonymous true\nretain_available false")
    with start_mosquitto(tmp_path, text, port):
        url = f"mqtt://127.0.0.1:{port}"
        await provision(url, admin_login(hub), hub_id=HUB_ID, key=hub)
        yield OurBroker("mosquitto", url, HUB_ID, hub, timeout_s=60)


async def test_what_a_broker_cannot_do_is_found_out(odd: OurBroker) -> None:
    assert wrong(await check(odd)) == ["without a name", "retained messages", "large messages"]


async def test_on_a_shared_broker_it_says_what_nobody_protects(mosquitto: Mosquitto) -> None:
    findings = {each.name: each for each in await check(SharedBroker(mosquitto.url, Login()))}
    assert wrong(list(findings.values())) == ["without a name"]
    assert "anyone can log in" in findings["without a name"].detail
    assert "invent heartbeats" in findings["what is not protected here"].detail


async def test_a_shared_broker_with_logins_has_nothing_wrong(tmp_path: Path) -> None:
    async with open_bus("mosquitto", tmp_path) as bus:
        login = hub_login(bus.hub, INSTANCE)
        # The hub's login, which may publish below devices/, stands for any that may.
        shared = SharedBroker(bus.url, login, prefix="")
        assert wrong(await check(shared)) == []
        (refused,) = await check(SharedBroker(bus.url, Login(username="x", password="y")))
    assert (refused.name, refused.ok) == ("login", False)
