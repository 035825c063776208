"""The faults of amqtt 0.12.1, each seen on amqtt as it comes and gone from the embedded broker.

Where a scene goes well on amqtt itself one day, its test fails: then the cure is not needed any more.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from amqtt.contexts import BrokerConfig

from broker.embedded.opening import BrokerLimits
from contracts.claims import PrincipalKind
from tests.broker.embedded_world import (
    House,
    connect_packet,
    embedded_house,
    publish_packet,
    stock_house,
)

OPEN = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}


@pytest.fixture
async def stock(tmp_path: Path) -> AsyncIterator[House]:
    async with stock_house(tmp_path / "stock") as house:
        yield house


@pytest.fixture
async def ours(tmp_path: Path) -> AsyncIterator[House]:
    async with embedded_house(tmp_path / "ours") as house:
        yield house


async def retained_for_a_stranger(house: House) -> list[str]:
    """Topics a device gets that asked only for its own status, while the hub reads everything."""
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/#")
    await hub.publish("devices/kitchen/status", b"secret", retain=True)
    await hub.until("devices/kitchen/status")
    device = await house.client("pc")
    await device.subscribe("devices/pc/status")
    await hub.publish("devices/pc/status", b"end")
    return [message.topic for message in await device.until("devices/pc/status")]


async def test_nobody_gets_retained_messages_that_only_others_subscribed_to(
    stock: House, ours: House
) -> None:
    assert "devices/kitchen/status" in await retained_for_a_stranger(stock)
    assert await retained_for_a_stranger(ours) == ["devices/pc/status"]


async def will_of_a_silent_client(house: House) -> bool:
    """Whether the will of a client comes that says nothing for longer than its keepalive."""
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/#")
    await house.socket("pc", keepalive=1, will=("devices/pc/status", b"offline"))
    try:
        async with asyncio.timeout(house.patience_s):
            return (await hub.inbox.get()).payload == b"offline"
    except TimeoutError:
        return False


@pytest.mark.slow
async def test_a_client_that_falls_silent_is_disconnected_with_its_will(stock: House, ours: House) -> None:
    assert await asyncio.gather(will_of_a_silent_client(stock), will_of_a_silent_client(ours)) == [
        False,
        True,
    ]


async def delivery_after_a_false_login(house: House) -> bool:
    """Whether a device still gets its calls after somebody tried its client id with a wrong password."""
    hub = await house.client("main", "hub")
    victim = await house.client("pc")
    await victim.subscribe("devices/pc/calls/+/+")
    attacker = await house.open()
    attacker.send(connect_packet("pc", "wrong"))
    assert await attacker.receive(4) == b"\x20\x02\x00\x05"
    assert await attacker.ended()
    await hub.publish("devices/pc/calls/Light/on", b"call")
    try:
        async with asyncio.timeout(house.patience_s):
            return (await victim.inbox.get()).payload == b"call"
    except TimeoutError:
        return False


@pytest.mark.slow
async def test_a_false_login_does_not_disturb_the_one_whose_name_it_uses(stock: House, ours: House) -> None:
    assert await asyncio.gather(delivery_after_a_false_login(stock), delivery_after_a_false_login(ours)) == [
        False,
        True,
    ]


async def sessions_after_false_logins(house: House) -> int:
    """How many sessions thirty failed logins leave in the broker's memory."""
    for number in range(30):
        socket = await house.open()
        socket.send(connect_packet(f"guess-{number}", "wrong"))
        assert await socket.receive(4) == b"\x20\x02\x00\x05"
    return house.sessions


async def test_failed_logins_leave_nothing_behind(stock: House, ours: House) -> None:
    assert await sessions_after_false_logins(stock) == 30
    assert await sessions_after_false_logins(ours) == 0


async def older_connection_ends(house: House) -> bool:
    """Whether a client's older connection ends when it comes again."""
    older = await house.socket("pc")
    await house.socket("pc")
    return await older.ended(within_s=house.patience_s)


@pytest.mark.slow
async def test_a_client_that_comes_again_takes_the_place_of_its_older_connection(
    stock: House, ours: House
) -> None:
    assert await older_connection_ends(stock) is False
    assert await older_connection_ends(ours) is True


async def takes_a_large_message(house: House) -> bool:
    """Whether a message of four mebibytes is acknowledged."""
    device = await house.socket("pc")
    device.send(publish_packet("devices/pc/status", bytes(4 * 1024 * 1024), packet_id=1))
    try:
        return await device.receive(4) == b"\x40\x02\x00\x01"
    except (asyncio.IncompleteReadError, OSError):
        return False


async def test_a_packet_over_the_limit_ends_its_connection(stock: House, ours: House) -> None:
    assert await takes_a_large_message(stock) is True
    assert await takes_a_large_message(ours) is False


async def waits_for_a_login_for_ever(house: House) -> bool:
    """Whether a connection that says nothing stays open."""
    socket = await house.open()
    ended = await socket.ended(within_s=house.patience_s)
    return not ended


@pytest.mark.slow
async def test_a_connection_without_a_login_ends(stock: House, tmp_path: Path) -> None:
    async with embedded_house(tmp_path / "ours", limits=BrokerLimits(connect_timeout_s=0.5)) as ours:
        assert await asyncio.gather(waits_for_a_login_for_ever(stock), waits_for_a_login_for_ever(ours)) == [
            True,
            False,
        ]


async def test_a_shared_subscription_is_refused_instead_of_granted_and_silent(
    tmp_path: Path, ours: House
) -> None:
    async with stock_house(tmp_path, plugins=OPEN) as stock:
        client = await stock.client("main", "hub")
        assert await client.subscribe("$share/group/devices/#") == 1
        await client.publish("devices/pc/status", b"lost")
        await client.subscribe("end")
        await client.publish("end", b"")
        assert [message.topic for message in await client.until("end")] == ["end"]
    logins: list[tuple[str, PrincipalKind]] = [("main", "hub"), ("pc", "device"), ("explorer", "client")]
    for name, kind in logins:
        client = await ours.client(name, kind)
        assert await client.subscribe("$share/group/devices/pc/status") == 0x80


async def answer_to_a_token(house: House) -> int:
    """The CONNACK's code for a device with a token of the hub."""
    socket = await house.open()
    socket.send(connect_packet("pc", house.token("pc")))
    return (await socket.receive(4))[3]


async def test_a_token_with_a_public_key_is_understood(tmp_path: Path, ours: House) -> None:
    plugin = "amqtt.contrib.jwt.UserAuthJwtPlugin"
    settings = {"secret_key": "s" * 32, "user_claim": "sub", "algorithm": "EdDSA"}
    async with stock_house(tmp_path, plugins={plugin: settings}) as stock:
        assert await answer_to_a_token(stock) == 5
    assert await answer_to_a_token(ours) == 0


async def answer_to_nobody(house: House) -> int:
    """The CONNACK's code for a login without name and password."""
    socket = await house.open()
    socket.send(connect_packet("", None, client_id="anyone"))
    return (await socket.receive(4))[3]


async def test_nobody_comes_in_without_a_name_and_only_this_machine_is_listened_on(
    ours: House,
) -> None:
    stock = BrokerConfig()
    assert stock.listeners["default"].bind == "0.0.0.0:1883"
    plugins: Any = stock.plugins
    assert plugins["amqtt.plugins.authentication.AnonymousAuthPlugin"] == {"allow_anonymous": True}
    assert [each.laddr.ip for each in listening(ours.port)] == ["127.0.0.1"]
    assert await answer_to_nobody(ours) == 5


def listening(port: int) -> list[Any]:
    """The sockets of this process that listen on a port."""
    connections = psutil.Process().net_connections(kind="tcp")
    return [each for each in connections if each.status == psutil.CONN_LISTEN and each.laddr.port == port]


async def messages_by_turns(house: House) -> list[int]:
    """The QoS at which a subscriber with QoS 1 gets a message with QoS 0, and the other way round."""
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/pc/#", 1)
    await hub.subscribe("devices/tv/#", 0)
    await hub.publish("devices/pc/status", b"", qos=0)
    await hub.publish("devices/tv/status", b"", qos=1)
    return [(await hub.next()).qos, (await hub.next()).qos]


async def test_a_message_keeps_its_qos_on_the_way_unless_the_subscriber_wants_less(
    stock: House, ours: House
) -> None:
    assert await messages_by_turns(stock) == [1, 0]
    assert await messages_by_turns(ours) == [0, 0]
