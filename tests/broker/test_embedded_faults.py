"""Faults of amqtt 0.12.1 as it comes that no other test shows to be gone from the embedded broker."""

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from contracts.claims import PrincipalKind
from tests.broker.embedded_world import House, connect_packet, embedded_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with embedded_house(tmp_path) as house:
        yield house


async def test_a_false_login_does_not_disturb_the_one_whose_name_it_uses(house: House) -> None:
    hub = await house.client("main", "hub")
    victim = await house.client("pc")
    await victim.subscribe("devices/pc/calls/+/+")
    attacker = await house.open()
    attacker.send(connect_packet("pc", "wrong"))
    assert await attacker.receive(4) == b"\x20\x02\x00\x05"
    assert await attacker.ended()
    await hub.publish("devices/pc/calls/Light/on", b"call")
    assert (await victim.next()).payload == b"call"


async def test_failed_logins_leave_nothing_behind(house: House) -> None:
    for number in range(30):
        socket = await house.open()
        socket.send(connect_packet(f"guess-{number}", "wrong"))
        assert await socket.receive(4) == b"\x20\x02\x00\x05"
    assert house.broker.clients == 0


@pytest.mark.parametrize(("name", "kind"), [("main", "hub"), ("pc", "device"), ("explorer", "client")])
async def test_a_shared_subscription_is_refused_instead_of_granted_and_silent(
    house: House, name: str, kind: PrincipalKind
) -> None:
    client = await house.client(name, kind)
    assert await client.subscribe("$share/group/devices/pc/status") == 0x80


async def test_nobody_comes_in_without_a_name_and_only_this_machine_is_listened_on(house: House) -> None:
    connections = psutil.Process().net_connections(kind="tcp")
    listening = [each for each in connections if each.status == psutil.CONN_LISTEN]
    assert [each.laddr.ip for each in listening if each.laddr.port == house.port] == ["127.0.0.1"]
    socket = await house.open()
    socket.send(connect_packet("", None, client_id="anyone"))
    assert (await socket.receive(4))[3] == 5


async def test_a_message_keeps_its_qos_on_the_way_unless_the_subscriber_wants_less(house: House) -> None:
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/pc/#", 1)
    await hub.subscribe("devices/tv/#", 0)
    await hub.publish("devices/pc/status", b"", qos=0)
    await hub.publish("devices/tv/status", b"", qos=1)
    assert [(await hub.next()).qos, (await hub.next()).qos] == [0, 0]
