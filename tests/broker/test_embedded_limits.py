"""What one client may take of the embedded broker, and that the others go on."""

import asyncio
import contextlib
import logging
import socket as sockets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.embedded.authentication import VerifiedLogin
from broker.embedded.limits import Admission, BrokerLimits, Refusals, Strangers
from broker.embedded.peer import StreamPeer
from bus.ports import listen
from contracts.access import Principal
from contracts.claims import Claims
from contracts.devices.rpc import Accepted
from identity.envelope import Seal, unseal
from identity.keys import KeyPair
from tests.broker.embedded_world import (
    HUB,
    QUICK_S,
    House,
    Socket,
    code_for,
    connect_packet,
    embedded_house,
    packet,
    publish_packet,
    subscribe_packet,
    text,
)

UNAVAILABLE = 3
"""A CONNACK's code."""

ROOM_FOR_EVERYTHING = 10_000
"""More than the bytes that systems keep for a connection nobody reads, in packets of 4 KiB."""


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with embedded_house(tmp_path) as house:
        yield house


async def test_a_thousand_signed_calls_at_once_all_arrive(house: House) -> None:
    hub = await house.client("main", "hub")
    device = await house.client("pc")
    await device.subscribe("devices/pc/calls/+/+")
    await hub.subscribe("devices/pc/results/#")
    key = KeyPair.generate()
    seal, call_id = Seal(HUB, key), "0198c0de-0000-7000-8000-000000000000"
    topic = f"devices/pc/results/main/{call_id}"
    call = seal.seal(topic, Accepted(id=call_id, epoch=1))
    await asyncio.gather(*(hub.publish("devices/pc/calls/Light/on", call) for _ in range(1000)))
    for _ in range(1000):
        assert (await device.next()).payload == call
    await asyncio.gather(*(device.publish(topic, call) for _ in range(1000)))
    for _ in range(1000):
        assert unseal(HUB, topic, (await hub.next()).payload, key.public)


async def test_a_device_that_sends_too_many_messages_is_refused_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(messages_per_s=0.001, burst_s=10_000)) as house:
        hub = await house.client("main", "hub")
        await hub.subscribe("devices/#")
        busy, other = await house.client("pc"), await house.client("tv")
        for number in range(30):
            await busy.publish("devices/pc/events/x", str(number).encode())
        await other.publish("devices/tv/events/x", b"heard")
        for _ in range(30):
            await hub.publish("hub/main/status", b"the hub has no such limit")
        messages = await hub.until("devices/tv/events/x")
        assert [m.payload for m in messages] == [*(str(n).encode() for n in range(10)), b"heard"]
    assert "refused device pc: it sends too many messages: 'devices/pc/events/x'" in caplog.text


async def test_a_device_that_sends_too_many_bytes_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(bytes_per_s=0.1, burst_s=10_000)) as house:
        hub = await house.client("main", "hub")
        await hub.subscribe("devices/#")
        device = await house.client("pc")
        for size in (850, 200, 90):
            await device.publish("devices/pc/events/x", bytes(size))
        assert [len((await hub.next()).payload) for _ in range(2)] == [850, 90]
    assert "refused device pc: it sends too many bytes" in caplog.text


async def test_the_will_of_a_device_that_sent_too_much_comes_all_the_same(tmp_path: Path) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(messages_per_s=0.001, burst_s=1_000)) as house:
        hub = await house.client("main", "hub")
        await hub.subscribe("devices/#")
        busy = await house.socket("pc", will=("devices/pc/status", b"offline"))
        for _ in range(5):
            busy.send(publish_packet("devices/pc/events/x", b""))
        await busy.close()
        assert [m.topic for m in await hub.until("devices/pc/status")] == [
            "devices/pc/events/x",
            "devices/pc/status",
        ]


async def test_a_device_retains_no_more_topics_and_bytes_than_it_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(retained_topics=3, retained_bytes=1000)) as house:
        device, other, hub = (
            await house.client("pc"),
            await house.client("tv"),
            await house.client("main", "hub"),
        )
        for number in range(4):
            await device.publish(f"devices/pc/skills/S{number}", b"x" * 100, retain=True)
        await device.publish("devices/pc/skills/S0", b"y" * 801, retain=True)
        await device.publish("devices/pc/skills/S1", b"", retain=True)
        await device.publish("devices/pc/skills/S4", b"z", retain=True)
        await other.publish("devices/tv/skills/S", b"x", retain=True)
        await hub.subscribe("devices/#")
        kept = {message.topic: message.payload[:1] for message in [await hub.next() for _ in range(4)]}
    assert kept == {
        "devices/pc/skills/S0": b"x",
        "devices/pc/skills/S2": b"x",
        "devices/pc/skills/S4": b"z",
        "devices/tv/skills/S": b"x",
    }
    assert "refused device pc: it has too many retained topics: 'devices/pc/skills/S3'" in caplog.text
    assert "refused device pc: its retained messages are too large together" in caplog.text


async def test_a_client_that_does_not_read_is_disconnected_with_its_will_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.embedded")
    async with embedded_house(tmp_path, limits=BrokerLimits(outgoing_bytes=256 * 1024)) as house:
        hub = await house.client("main", "hub")
        await hub.subscribe("devices/+/status")
        good = await house.client("good", "client")
        await good.subscribe("#")
        lazy = await house.socket("pc", will=("devices/pc/status", b"offline"))
        lazy.send(subscribe_packet("hub/+/status"))
        lazy.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(ROOM_FOR_EVERYTHING):
            await hub.publish("hub/main/status", bytes(4096))
            if not hub.inbox.empty():
                break
        assert (await hub.next()).payload == b"offline"
        await hub.publish("devices/pc/status", b"end")
        assert (await good.until("devices/pc/status", b"end"))[0].topic == "hub/main/status"
    assert "disconnected device pc: it does not read" in caplog.text


async def test_retained_messages_wait_for_a_slow_reader_instead_of_filling_the_memory(tmp_path: Path) -> None:
    limits = BrokerLimits(outgoing_bytes=128 * 1024, retained_bytes=64 * 1024 * 1024)
    async with embedded_house(tmp_path, limits=limits) as house:
        device = await house.client("pc")
        topics = [f"devices/pc/skills/S{number}" for number in range(200)]
        await asyncio.gather(*(device.publish(topic, bytes(20_000), retain=True) for topic in topics))
        reader = await house.client("explorer", "client")
        await reader.subscribe("#")
        assert sorted([(await reader.next()).topic for _ in topics]) == sorted(topics)
        assert not reader.left.is_set()


async def test_there_are_just_as_many_connections_as_are_allowed_and_the_hub(tmp_path: Path) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(connections=3)) as house:
        clients = [await house.client(name) for name in ("a", "b", "c")]
        assert await house.open_and_log_in("d") == UNAVAILABLE
        assert await house.open_and_log_in("a") == 0, "it takes the place that it has"
        await house.client("main", "hub")
        await clients[1].stop()
        await clients[1].gone()
        # The broker learns of it a moment later; until then the place is taken.
        while await house.open_and_log_in("d") != 0:
            pass


async def test_the_oldest_that_has_not_logged_in_makes_room(tmp_path: Path) -> None:
    limits = BrokerLimits(strangers=2, connect_timeout_s=2 * QUICK_S)
    async with embedded_house(tmp_path, limits=limits) as house:
        first, second, third = [await house.open() for _ in range(3)]
        assert await first.ended()
        for name, stranger in (("a", second), ("b", third)):
            stranger.send(connect_packet(name, house.token(name)))
            assert await stranger.receive(4) == b"\x20\x02\x00\x00"


async def test_silent_sockets_keep_no_device_out_however_many_they_are(tmp_path: Path) -> None:
    limits = BrokerLimits(strangers=100, connect_timeout_s=2 * QUICK_S)
    async with embedded_house(tmp_path, limits=limits) as house:
        silent = [await house.open() for _ in range(150)]
        assert await house.open_and_log_in("pc") == 0
        await house.socket("main", "hub")
        assert await silent[0].ended()


async def test_one_login_takes_no_more_connections_than_it_may(house: House) -> None:
    watcher = house.token("watcher", "client")
    codes: list[int] = []
    while len(codes) < BrokerLimits().connections and 3 not in codes:
        bare = await house.open()
        bare.send(connect_packet("watcher", watcher, client_id=f"watcher-{len(codes)}"))
        codes.append((await bare.receive(4))[3])
    assert codes == [0] * BrokerLimits().principal_connections + [UNAVAILABLE]
    await house.client("other", "client")


async def test_logins_leave_room_for_devices(tmp_path: Path) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(connections=3, reserved=1)) as house:
        for name in ("a", "b"):
            await house.client(name, "client")
        assert await code_for(house, "c", house.token("c", "client")) == UNAVAILABLE
        assert await house.open_and_log_in("pc") == 0


async def test_one_machine_crowds_out_only_itself() -> None:
    strangers = Strangers(most=3)
    with contextlib.ExitStack() as stack:
        hosts = ["192.0.2.1", *(4 * ["192.0.2.2"])]
        sockets_ = [stack.enter_context(sockets.socket()) for _ in hosts]
        peers = [StreamPeer(sock, (host, 1), tls=None) for sock, host in zip(sockets_, hosts, strict=True)]
        evicted = [strangers.add(peer) for peer in peers]
    assert evicted == [None, None, None, peers[1], peers[2]]


def test_logins_of_one_other_machine_share_a_bound_and_this_machine_has_none() -> None:
    admission = Admission(BrokerLimits(address_connections=1))
    watcher, other = (
        VerifiedLogin(Principal("client", name), cast("Claims", None)) for name in ("watcher", "other")
    )
    for host in ("192.0.2.1", "127.0.0.1"):
        admission.count(watcher, host, 1)
    assert admission.refusal(other, "192.0.2.1") == "its address has too many connections"
    assert admission.refusal(other, "192.0.2.2") is None
    assert admission.refusal(other, "127.0.0.1") is None


async def test_connections_of_one_login_share_what_may_wait_for_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    limits = BrokerLimits(outgoing_bytes=400_000, packet_bytes=50_000)
    async with embedded_house(tmp_path, limits=limits) as house:
        hub = await house.client("main", "hub")
        lazy = [await house.socket("watcher", "client", client_id=f"watcher-{n}") for n in range(4)]
        for each in lazy:
            each.send(subscribe_packet("hub/+/status"))
            each.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(ROOM_FOR_EVERYTHING):
            await hub.publish("hub/main/status", bytes(4096))
            if house.broker.clients == 1:
                break
        assert house.broker.clients == 1
    assert "it does not read: over 100000 bytes wait for it" in caplog.text


@pytest.mark.slow  # rates are per second
@pytest.mark.parametrize("limits", [BrokerLimits(packets_per_s=100), BrokerLimits(read_bytes_per_s=10_000)])
async def test_a_login_that_floods_the_broker_is_read_slowly_and_others_go_on(
    tmp_path: Path, limits: BrokerLimits
) -> None:
    async with embedded_house(tmp_path, limits=limits) as house:
        flood = [await house.socket("watcher", "client", client_id=f"watcher-{n}") for n in range(5)]
        for each in flood:
            each.send(10_000 * packet(12, b""))
        device = await house.socket("pc")
        for number in range(50):
            device.send(publish_packet("devices/pc/status", b"", packet_id=number + 1))
            await device.receive(4)
        # What is read by now, of 100,000 bytes, took a second for each 200.
        assert sum(len(each.reader._buffer) for each in flood) < 50_000  # type: ignore[attr-defined]


async def test_topics_count_to_what_a_device_retains_and_sends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = BrokerLimits(retained_bytes=100_000, bytes_per_s=0.1, burst_s=2_000_000)
    async with embedded_house(tmp_path, limits=limits) as house:
        hub, device = await house.client("main", "hub"), await house.client("pc")
        for number in range(4):
            await device.publish(f"devices/pc/state/{number}{'x' * 60_000}/y", b"1", retain=True)
        await hub.subscribe("devices/#")
        await hub.publish("devices/pc/end", b"end")
        assert [message.topic[17:19] for message in await hub.until("devices/pc/end")] == ["0x", ""]
    assert "refused device pc: its retained messages are too large together" in caplog.text
    assert "refused device pc: it sends too many bytes" in caplog.text


async def test_one_that_does_not_log_in_makes_room_in_time(tmp_path: Path) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(strangers=1, connect_timeout_s=0.2)) as house:
        stranger = await house.open()
        assert await stranger.ended()
        # On a machine that stands still a login may be too late once.
        while await house.open_and_log_in("pc") != 0:
            pass


async def test_the_first_packet_may_not_be_large(house: House) -> None:
    stranger = await house.open()
    stranger.send(packet(1, text("MQTT") + bytes(1_000_000))[:200_000])
    assert await stranger.ended()


async def test_strangers_fill_no_log_however_often_they_come(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    for length in range(1, 6):
        stranger = await house.open()
        stranger.send(b"\x10\xff\xff\xff" + bytes((length,)))
        assert await stranger.ended()
    assert [record.getMessage() for record in caplog.records if "refused" in record.getMessage()] == [
        "refused 127.0.0.1: a packet is over the limit of 131072 bytes"
    ]


async def test_a_connection_has_only_so_many_subscriptions(tmp_path: Path) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(subscriptions=2)) as house:
        client = await house.client("explorer", "client")
        assert [await client.subscribe(f"devices/{name}/status") for name in "abca"] == [1, 1, 0x80, 1]
        hub = await house.client("main", "hub")
        assert [await hub.subscribe(f"devices/{name}/status") for name in "abca"] == [1, 1, 1, 1]


async def test_a_packet_of_just_the_limit_passes(tmp_path: Path) -> None:
    async with embedded_house(tmp_path, limits=BrokerLimits(packet_bytes=100_000)) as house:
        hub = await house.client("main", "hub")
        await hub.subscribe("devices/#")
        topic = "devices/pc/status"
        device = await house.socket("pc")
        device.send(publish_packet(topic, bytes(100_000 - 2 - len(topic))))
        assert len((await hub.next()).payload) == 100_000 - 2 - len(topic)
        device.send(publish_packet(topic, bytes(100_000 - 1 - len(topic))))
        assert await device.ended()


MALFORMED = {
    "a packet type that does not exist": b"\xf0\x00",
    "a length of five bytes": b"\x30\xff\xff\xff\xff\x01",
    "a second CONNECT": connect_packet("pc", "x"),
    "a PUBLISH with QoS 3": packet(3, text("devices/pc/status") + b"\0\1", flags=6),
    "a PUBLISH on a wildcard": publish_packet("devices/#", b""),
    "a PUBLISH on nothing": publish_packet("", b""),
    "a PUBLISH with packet id 0": publish_packet("devices/pc/status", b"", packet_id=0),
    "a PUBLISH cut short": packet(3, b"\x00\x40devices"),
    "a topic that is not UTF-8": packet(3, text(b"\xff\xfe") + b"x"),
    "a topic with NUL": publish_packet("devices/pc/\0", b""),
    "a SUBSCRIBE to nothing": packet(8, b"\0\1", flags=2),
    "a SUBSCRIBE with QoS 3": packet(8, b"\0\1" + text("#") + b"\3", flags=2),
    "a SUBSCRIBE with wrong flags": packet(8, b"\0\1" + text("#") + b"\0"),
    "a SUBSCRIBE that takes long": packet(8, b"\0\1" + 251 * (text("#") + b"\0"), flags=2),
    "a PUBACK without an id": packet(4, b""),
}


@pytest.mark.parametrize("what", MALFORMED)
async def test_a_malformed_packet_ends_its_connection_with_the_will_and_no_other(
    house: House, what: str
) -> None:
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/#")
    device = await house.socket("pc", will=("devices/pc/status", b"offline"))
    device.send(MALFORMED[what])
    assert await device.ended()
    assert (await hub.next()).payload == b"offline"


def mutated(base: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with one of them changed, or cut somewhere."""
    changed = st.tuples(st.integers(0, len(base) - 1), st.integers(0, 255)).map(
        lambda change: base[: change[0]] + bytes((change[1],)) + base[change[0] + 1 :]
    )
    return changed | st.integers(0, len(base)).map(lambda end: base[:end])


VALID = (
    connect_packet("pc", "token", will=("devices/pc/status", b"offline"))
    + publish_packet("devices/pc/status", b"x", packet_id=1)
    + subscribe_packet("devices/pc/#")
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    noise=st.lists(st.binary(max_size=200) | mutated(VALID), min_size=1, max_size=4), logged_in=st.booleans()
)
def test_noise_ends_at_most_its_own_connection(
    noisy_house: tuple[asyncio.Runner, House], noise: list[bytes], logged_in: bool
) -> None:
    runner, house = noisy_house

    async def scene() -> None:
        stranger = await Socket.open(house.port)
        if logged_in:
            stranger.send(connect_packet("pc", house.token("pc")))
            assert await stranger.receive(4) == b"\x20\x02\x00\x00"
        for data in noise:
            stranger.send(data)
        stranger.writer.write_eof()
        assert await stranger.ended()
        await stranger.close()
        witness = house.clients[0]
        await witness.publish("hub/main/status", b"alive")
        assert (await witness.until("hub/main/status"))[-1].payload == b"alive"

    runner.run(scene())


@pytest.fixture
def noisy_house(tmp_path: Path) -> Iterator[tuple[asyncio.Runner, House]]:
    """A house that many examples of one test share, with a witness who is logged in all the time."""
    with asyncio.Runner() as runner:
        home = embedded_house(tmp_path)
        house = runner.run(home.__aenter__())
        witness = runner.run(house.client("main", "hub"))
        runner.run(witness.subscribe("hub/main/status"))
        yield runner, house
        runner.run(home.__aexit__(None, None, None))


async def test_accepted_sockets_send_small_packets_at_once() -> None:
    with listen("127.0.0.1", 0, purpose="a test") as listening:
        client = await Socket.open(listening.getsockname()[1])
        sock, address = await asyncio.get_running_loop().sock_accept(listening)
    peer = StreamPeer(sock, address, tls=None)
    assert await peer.open(most=100)
    assert sock.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY)
    assert sock.getsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE)
    await peer.close()
    await client.close()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_refusal_is_told_once_in_a_while_with_the_number_left_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = Refusals(every_s=10, clock=clock)
    for _ in range(5):
        refusals.report("device pc", "it sends too many messages", "t")
    refusals.report("device tv", "it sends too many messages", "t")
    clock.now += 10
    refusals.report("device pc", "it sends too many messages", "t")
    assert [record.getMessage() for record in caplog.records] == [
        "refused device pc: it sends too many messages: 't'",
        "refused device tv: it sends too many messages: 't'",
        "refused device pc: it sends too many messages: 't' (4 more since)",
    ]
