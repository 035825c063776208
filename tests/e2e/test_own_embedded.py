"""The embedded broker of ``strawberry up``: a process of its own, which outlives neither hub nor fault."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.directory import Home
from deploy.home.brokers.processes import load_identity
from deploy.home.brokers.registry import running_broker
from identity import tokens
from tests.broker.embedded_world import Client
from tests.e2e.house import PATIENCE_S, House, runs, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def house(tmp_path: Path, sandbox_files: Path) -> Iterator[House]:
    """A home of which nothing runs."""
    with House(tmp_path / "house", sandbox=sandbox_files) as house:
        yield house


def _broker(house: House) -> psutil.Process:
    return psutil.Process(json.loads((house.home / "broker" / "run.json").read_text())["pid"])


async def _client(house: House, suffix: str) -> Client:
    """Log in beside the hub, with a token like its own."""
    identity = await load_identity(Home(house.home))
    claims = tokens.make_claims(
        hub_id=identity.hub_id, subject="main", kind="hub", owner="anna", scopes=(), lifetime_s=600
    )
    client = Client("main", tokens.issue(identity.key, claims), client_id=f"main-{suffix}")
    assert await client.connect(house.mqtt_port) == 0
    return client


async def test_clients_exchange_messages_while_the_hub_stands_still(house: House) -> None:
    house.start_up("--no-spoke")
    sender, receiver = await _client(house, "sender"), await _client(house, "receiver")
    await receiver.subscribe("hub/other/status")
    house.send("up", signal.SIGSTOP)
    try:
        await sender.publish("hub/other/status", b"heard", retain=True)
        assert (await receiver.next()).payload == b"heard"
    finally:
        house.send("up", signal.SIGCONT)
        await sender.stop()
        await receiver.stop()


async def test_a_broker_that_dies_is_started_again_with_what_it_retained(house: House) -> None:
    house.start_up("--no-spoke", "--ws-port", "0")
    sender = await _client(house, "sender")
    await sender.publish("hub/other/status", b"kept", retain=True)
    await sender.stop()
    before, dead = running_broker(Home(house.home)), _broker(house)

    dead.kill()

    wait_for(lambda: house.log("up").count("(embedded)") == 2, what="the report of the new broker")
    assert not runs(dead)
    assert running_broker(Home(house.home)) == before, "the ports stay the same"
    wait_for(house.healthy, what="the hub to be back on it")
    assert house.log("up").count("the embedded broker ended") == 1
    again = await _client(house, "receiver")
    await again.subscribe("hub/other/status")
    assert (await again.next()).payload == b"kept"
    await again.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_broker_ends_with_the_hub_and_the_home_can_be_started_at_once(
    house: House, number: signal.Signals
) -> None:
    house.start_up("--no-spoke")
    broker = _broker(house)

    house.send("up", number)
    house.processes["up"].wait(timeout=PATIENCE_S)
    house.start_again("up")

    wait_for(lambda: house.healthy() or house.ended("up"), what="the home to be back")
    assert not runs(broker)


def test_a_home_whose_broker_runs_already_says_so(house: House) -> None:
    house.start_broker()
    done = house.cli("up", "--no-spoke", "--mqtt-port", "0", "--http-port", "0")
    assert done.returncode == 1
    assert "strawberry: a broker already runs with" in done.stderr
    assert "Traceback" not in done.stderr
