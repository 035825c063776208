"""The embedded broker over TCP and WebSocket, with TLS and without: the same rules on every way in."""

import asyncio
import contextlib
import errno
import logging
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from broker.embedded.opening import BrokerLimits, EmbeddedBroker, EmbeddedSettings, Listener, open_embedded
from contracts import topics
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError
from identity.certificates import Authority, client_context
from identity.keys import KeyPair
from tests.broker.embedded_world import (
    QUICK_S,
    Client,
    connect_packet,
    embedded_house,
    packet,
    publish_packet,
    subscribe_packet,
)
from tests.broker.listener_world import WAYS, Place, Way, open_place
from tests.mosquitto import HINT
from tests.requirements import require

STATUS = "devices/pc/status"
MQTT = [Subprotocol("mqtt")]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    each: Way = request.param
    return each


@pytest.fixture
async def place(tmp_path: Path, way: Way) -> AsyncIterator[Place]:
    async with open_place(tmp_path, way) as place:
        yield place


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(tmp_path, "ws") as place:
        yield place


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(QUICK_S):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


# ---- the same on every way


async def test_messages_of_all_sizes_go_there_and_back(place: Place) -> None:
    client = await place.client("main", "hub")
    await client.subscribe("devices/pc/#")
    sizes = [0, 1, 125, 126, 127, 65_535, 65_536, 200_000, 1_000_000]
    for size in sizes:
        await client.publish("devices/pc/events/x", bytes([size % 251]) * size)
    got = [await client.next() for _ in sizes]
    assert [message.payload for message in got] == [bytes([size % 251]) * size for size in sizes]


async def test_many_messages_in_a_row_arrive_in_their_order(place: Place) -> None:
    client = await place.client("main", "hub")
    await client.subscribe("devices/pc/#")
    for number in range(500):
        client.paho.publish("devices/pc/events/x", str(number), 1)
    assert [int((await client.next()).payload) for _ in range(500)] == list(range(500))


async def test_retained_messages_and_wills_work(place: Place) -> None:
    hub = await place.client("main", "hub")
    await hub.subscribe("devices/#")
    wire = await place.log_in("pc", will=(STATUS, b"gone"))
    await wire.send(publish_packet(STATUS, b"here", packet_id=7))
    assert await wire.receive(4) == b"\x40\x02\x00\x07"
    await wire.close()
    assert [(await hub.next()).payload for _ in range(2)] == [b"here", b"gone"]


async def test_a_wrong_token_is_refused(place: Place) -> None:
    wire = await place.open()
    await wire.send(connect_packet("pc", "wrong"))
    assert await wire.receive(4) == b"\x20\x02\x00\x05"
    assert await wire.ended()


async def test_packets_may_come_in_pieces_and_together(place: Place) -> None:
    wire = await place.open()
    whole = connect_packet("pc", place.house.token("pc"))
    for at in range(0, len(whole), 40):
        await wire.send(whole[at : at + 40])
    assert await wire.receive(4) == b"\x20\x02\x00\x00"
    await wire.send(b"\xc0\x00" * 3 + b"\xc0")
    await wire.send(b"\x00")
    assert await wire.receive(8) == b"\xd0\x00" * 4


async def test_who_says_nothing_is_cut_off(tmp_path: Path, way: Way) -> None:
    async with open_place(tmp_path, way, limits=BrokerLimits(connect_timeout_s=0.3)) as place:
        # On a machine that stands still it is cut off in the handshake already.
        with contextlib.suppress(OSError, EOFError, WebSocketException):
            wire = await place.open()
            assert await wire.ended()
        raw = await place.raw()
        assert await raw.ended()


async def test_who_begins_a_handshake_and_dawdles_is_cut_off(tmp_path: Path, way: Way) -> None:
    beginning = {
        "tcp": b"\x10",
        "tls": b"\x16\x03\x01\x02\x00\x01",
        "ws": b"GET / HT",
        "wss": b"\x16\x03\x01",
    }
    async with open_place(tmp_path, way, limits=BrokerLimits(connect_timeout_s=0.5)) as place:
        raw = await place.raw()

        async def drip() -> None:
            for byte in beginning[way] + bytes(100):
                raw.send(bytes((byte,)))
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as tasks:
            dripping = tasks.create_task(drip())
            assert await raw.ended()
            dripping.cancel()
        await until(lambda: not place_sockets(place))


async def test_those_in_the_middle_of_a_handshake_count_as_strangers(
    tmp_path: Path, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_place(tmp_path, way, limits=BrokerLimits(strangers=3, connect_timeout_s=600)) as place:
        waiting = [await place.raw() for _ in range(3)]
        for raw in waiting:
            raw.send(b"\x16\x03\x01" if place.trust else b"GET ")
        waiting.append(await place.raw())
        assert await waiting[0].ended()
        assert "too many others have not logged in yet" in caplog.text
        for raw in waiting:
            await raw.close()
        await until(lambda: not place_sockets(place))
        await place.log_in("pc")


async def test_a_broker_that_stops_waits_for_no_handshake(tmp_path: Path, way: Way) -> None:
    async with open_place(tmp_path, way) as place:
        raw = await place.raw()
        raw.send(b"\x16\x03\x01" if place.trust else b"GET ")
        await until(lambda: place_sockets(place))
    assert await raw.ended()


@pytest.mark.slow
async def test_the_silent_are_disconnected_and_their_will_is_told(place: Place) -> None:
    hub = await place.client("main", "hub")
    await hub.subscribe("devices/#")
    await place.log_in("pc", keepalive=1, will=(STATUS, b"gone"))
    assert (await hub.next()).payload == b"gone"


async def test_a_packet_over_the_limit_ends_the_connection(place: Place) -> None:
    wire = await place.log_in("pc")
    await wire.send(b"\x30\x81\x80\x80\x01")
    assert await wire.ended()


async def test_a_stranger_may_not_send_much(tmp_path: Path, way: Way) -> None:
    async with open_place(tmp_path, way, limits=BrokerLimits(connect_bytes=1000)) as place:
        wire = await place.open()
        await wire.send(packet(1, bytes(1001)))
        assert await wire.ended()


async def test_who_sends_too_much_is_not_heard(
    tmp_path: Path, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_place(tmp_path, way, limits=BrokerLimits(messages_per_s=0.001, burst_s=5_000)) as place:
        client = await place.client("pc")
        await client.subscribe(STATUS)
        for _ in range(10):
            await client.publish(STATUS, b"x")
        assert "it sends too many messages" in caplog.text


async def test_who_does_not_read_is_disconnected(tmp_path: Path, way: Way) -> None:
    async with open_place(tmp_path, way, limits=BrokerLimits(outgoing_bytes=300_000)) as place:
        hub = await place.client("main", "hub")
        await hub.subscribe(STATUS)
        wire = await place.log_in("pc", will=(STATUS, b"gone"))
        await wire.send(subscribe_packet("devices/pc/calls/+/+"))
        assert len(await wire.receive(5)) == 5
        wire.stop_reading()
        # The operating system takes some megabytes for those who do not read.
        for _ in range(500):
            await hub.publish("devices/pc/calls/Light/on", bytes(100_000))
            if not hub.inbox.empty():
                break
        assert (await hub.next()).payload == b"gone"


@pytest.mark.slow
async def test_who_asks_without_end_and_reads_no_answer_is_disconnected(tmp_path: Path, way: Way) -> None:
    limits = BrokerLimits(outgoing_bytes=20_000, packets_per_s=1_000_000_000, turn=100_000)
    async with open_place(tmp_path, way, limits=limits) as place:
        hub = await place.client("main", "hub")
        await hub.subscribe(STATUS)
        wire = await place.log_in("pc", will=(STATUS, b"gone"))
        wire.stop_reading()

        async def ask() -> None:
            while True:
                await wire.send(b"\xc0\x00" * 10_000)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(ask())
            assert (await hub.next()).payload == b"gone"
            asking.cancel()


async def test_the_revoked_are_disconnected(place: Place) -> None:
    hub, device = await place.client("main", "hub"), await place.client("pc")
    revocation = Revocation(only={"device/pc": ""}, before=datetime.now(UTC))
    await hub.publish(topics.BROKER_CONTROL.build(), revocation.model_dump_json().encode())
    await device.gone()


async def test_a_connection_in_another_way_takes_the_place_of_the_first(tmp_path: Path) -> None:
    listeners = (Listener(port=0), Listener(port=0, transport="websocket"))
    async with embedded_house(tmp_path, listeners=listeners) as house:
        assert isinstance(house.broker, EmbeddedBroker)
        first = await house.client("pc")
        second = Client("pc", house.token("pc"), transport="websockets")
        house.clients.append(second)
        assert await second.connect(house.broker.ports[1]) == 0
        await first.gone()
        assert house.broker.clients == 1


async def test_no_socket_is_left_when_all_have_gone(place: Place) -> None:
    for _ in range(20):
        wire = await place.log_in("pc")
        await wire.close()
        raw = await place.raw()
        raw.send(b"\x16\x03\x01\x00\x05rubbish and more rubbish\r\n\r\n")
        await raw.close()
    await until(lambda: not place_sockets(place))
    assert place.house.broker.clients == 0


async def test_no_token_is_logged_however_much_is_logged(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = place.house.token("pc")
    wire = await place.open()
    await wire.send(connect_packet("pc", token))
    assert await wire.receive(4) == b"\x20\x02\x00\x00"
    with_ours = [
        each for each in caplog.records if each.name.startswith(("broker", "amqtt", "websockets.server"))
    ]
    assert not any(token in each.getMessage() for each in with_ours)


def place_sockets(place: Place) -> list[object]:
    """Connections that the broker has."""
    port = place.house.port
    connections = psutil.Process().net_connections("tcp")
    return [each for each in connections if each.laddr.port == port and each.status != psutil.CONN_LISTEN]


# ---- TLS


@pytest.fixture(params=["tls", "wss"])
async def secure(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(tmp_path, request.param) as place:
        yield place


async def test_a_failed_handshake_is_logged_once_for_each_host(
    secure: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(5):
        raw = await secure.raw()
        raw.send(connect_packet("pc", secure.house.token("pc")))
        assert await raw.ended()

    def connect_without_trust() -> None:
        with socket.create_connection(("127.0.0.1", secure.house.port)) as plain:
            client_context(None).wrap_socket(plain, server_hostname="localhost")

    for _ in range(5):
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(connect_without_trust)
    # One kind of failure is one line: the first sent no TLS, the second does not trust us.
    await until(lambda: len(caplog.records) >= 2)
    messages = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert sorted(messages) == [
        "refused 127.0.0.1: it does not speak TLS",
        "refused 127.0.0.1: it does not trust the certificate of this broker",
    ]


async def test_who_hangs_up_in_the_handshake_is_not_worth_a_line(
    secure: Place, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        raw = await secure.raw()
        await raw.close()
    await until(lambda: not place_sockets(secure))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_renewed_certificate_counts_from_the_next_connection_on(
    secure: Place, tmp_path: Path
) -> None:
    before = await secure.log_in("pc")
    secure.authority.issue(["new.local"], ["127.0.0.1"], directory=tmp_path / "certs").load_into(
        secure.context
    )
    pair = await asyncio.open_connection(
        "127.0.0.1", secure.house.port, ssl=secure.trust, server_hostname="new.local"
    )
    pair[1].close()
    with contextlib.suppress(OSError):
        await pair[1].wait_closed()
    await before.send(b"\xc0\x00")
    assert await before.receive(2) == b"\xd0\x00"


async def test_mosquitto_sub_listens_over_tls(tmp_path: Path) -> None:
    program = shutil.which("mosquitto_sub")
    require(program is not None, HINT)
    assert program is not None
    async with open_place(tmp_path, "tls") as place:
        hub = await place.client("main", "hub")
        await hub.publish(STATUS, b"here", retain=True)
        command = [program, "--cafile", str(tmp_path / "certs" / "ca.pem"), "-h", "127.0.0.1"]
        command += ["-p", str(place.house.port), "-i", "pc", "-u", "pc", "-P", place.house.token("pc")]
        child = await asyncio.create_subprocess_exec(
            *command, "-C", "1", "-t", STATUS, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asyncio.wait_for(child.communicate(), QUICK_S)
        assert output == b"here\n"


# ---- WebSocket


@pytest.mark.parametrize("protocols", [None, [Subprotocol("chat")]])
async def test_a_websocket_that_is_not_for_mqtt_is_refused(
    web: Place, protocols: list[Subprotocol] | None
) -> None:
    with pytest.raises(InvalidStatus) as caught:
        await connect(web.house.url, subprotocols=protocols)
    assert caught.value.response.status_code == 400


async def test_mqtt_is_chosen_among_several(web: Place) -> None:
    async with connect(web.house.url + "/mqtt", subprotocols=[Subprotocol("chat"), *MQTT]) as connection:
        assert connection.subprotocol == "mqtt"


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1", None, 101),
        ("localhost", "http://localhost:8080", 101),
        ("192.168.1.5", "http://192.168.1.5", 101),
        ("[::1]", "http://[::1]:3", 101),
        ("evil.example", None, 421),
        ("evil.example", "http://evil.example", 421),
        ("", None, 421),
        ("127.0.0.1", "http://evil.example", 403),
        ("localhost", "http://127.0.0.1", 403),
        ("127.0.0.1", "null", 403),
        ("127.0.0.1", "http://127.0.0.1.evil.example", 403),
        ("127.0.0.1", "http://[", 403),
    ],
)
async def test_only_programs_and_pages_of_this_machine_may_connect(
    tmp_path: Path, host: str, origin: str | None, status: int
) -> None:
    listener = Listener(port=0, transport="websocket")
    async with embedded_house(tmp_path, listeners=(listener,)) as house:
        raw = await house.open()
        lines = ["GET / HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"]
        lines += ["Sec-WebSocket-Protocol: mqtt"]
        lines += [f"Origin: {origin}"] if origin is not None else []
        raw.send("\r\n".join([*lines, "", ""]).encode())
        assert (await raw.receive(12)).decode() == f"HTTP/1.1 {status}"


async def test_a_page_that_is_asked_for_is_told_that_there_is_none(web: Place) -> None:
    raw = await web.raw()
    raw.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await raw.receive(12)) == b"HTTP/1.1 426"
    assert await raw.ended()


@pytest.mark.parametrize(
    "request_",
    [
        b"rubbish\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: %s\r\n" % (b"a" * 9000) * 40,
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
    ],
)
async def test_what_is_no_request_ends_the_connection(
    web: Place, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        raw = await web.raw()
        raw.send(request_)
        raw.writer.write_eof()
        assert await raw.ended()
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) <= 1
    assert not [each for each in caplog.records if each.exc_info]


async def test_frames_that_come_with_the_request_are_not_lost(web: Place) -> None:
    raw = await web.raw()
    lines = ["GET / HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"]
    login = connect_packet("pc", web.house.token("pc"))
    frame = b"\x82\xfe" + len(login).to_bytes(2, "big") + bytes(4) + login
    raw.send("\r\n".join([*lines, "Sec-WebSocket-Protocol: mqtt", "", ""]).encode() + frame)
    async with asyncio.timeout(QUICK_S):
        await raw.reader.readuntil(b"\r\n\r\n")
    assert await raw.receive(6) == b"\x82\x04\x20\x02\x00\x00"


async def test_messages_may_come_in_fragments_with_pings_in_between(web: Place) -> None:
    wire = await web.log_in("pc")
    assert wire.web is not None
    await wire.send(subscribe_packet(STATUS))
    assert len(await wire.receive(5)) == 5
    whole = publish_packet(STATUS, b"x" * 1000)

    async def fragments() -> AsyncIterator[bytes]:
        for at in range(0, len(whole), 100):
            yield whole[at : at + 100]

    await wire.send(b"")
    await (await wire.web.ping())
    await wire.web.send(fragments())
    await (await wire.web.ping(b"are you there"))
    assert (await wire.receive(len(whole)))[-1000:] == b"x" * 1000


async def test_a_text_message_ends_the_connection(web: Place) -> None:
    wire = await web.log_in("pc")
    assert wire.web is not None
    await wire.web.send("text")
    assert await wire.ended()
    assert wire.web.close_code == 1003
    await until(lambda: web.house.broker.clients == 0)


async def test_a_frame_that_no_packet_needs_ends_the_connection(tmp_path: Path) -> None:
    async with open_place(tmp_path, "ws", limits=BrokerLimits(packet_bytes=10_000)) as place:
        wire = await place.log_in("pc")
        await wire.send(bytes(100_000))
        assert await wire.ended()
        assert wire.web is not None
        assert wire.web.close_code == 1009


async def test_a_stranger_may_not_fill_the_memory_with_one_frame(tmp_path: Path) -> None:
    async with open_place(tmp_path, "ws", limits=BrokerLimits(connect_bytes=1000)) as place:
        wire = await place.open()
        await wire.send(bytes(500_000))
        assert await wire.ended()


@pytest.mark.slow
async def test_who_pings_without_end_and_reads_no_answer_is_held_back(web: Place) -> None:
    wire = await web.log_in("pc")
    assert wire.web is not None
    wire.stop_reading()
    sent = 0
    with contextlib.suppress(TimeoutError, ConnectionClosed):
        while sent < 50_000_000:
            async with asyncio.timeout(1):
                await wire.web.ping(bytes(120) + sent.to_bytes(5, "big"))
            sent += 125
    assert sent < 50_000_000


async def test_a_farewell_of_the_websocket_alone_tells_the_will(web: Place) -> None:
    hub = await web.client("main", "hub")
    await hub.subscribe(STATUS)
    wire = await web.log_in("pc", will=(STATUS, b"gone"))
    assert wire.web is not None
    await wire.web.close()
    assert (await hub.next()).payload == b"gone"


# ---- where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "hub.local"])
async def test_other_machines_are_not_let_in_by_accident(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="would show every token") as caught:
        async with embedded_house(tmp_path, listeners=(Listener(port=0), Listener(host, 0))):
            pass
    assert "--insecure-lan" in caught.value.hint
    assert not (tmp_path / "retained.db").exists()


async def test_other_machines_are_let_in_with_tls_or_when_told_so(tmp_path: Path) -> None:
    authority = Authority.load_or_create(tmp_path / "certs")
    context = authority.issue(["localhost"], ["127.0.0.1"], directory=tmp_path / "certs").context()
    settings = EmbeddedSettings(
        data_dir=tmp_path,
        hub_id="home-1",
        hub_key=KeyPair.generate().public,
        listeners=(
            Listener("0.0.0.0", 0, insecure=True),
            Listener("0.0.0.0", 0, tls=context),
            Listener("localhost", 0, "websocket"),
            Listener("0.0.0.0", 0, "websocket", tls=context),
        ),
    )
    async with open_embedded(settings) as broker:
        assert (broker.port, broker.url) == (broker.ports[0], broker.urls[0])
        assert broker.urls == (
            f"mqtt://127.0.0.1:{broker.ports[0]}",
            f"mqtts://127.0.0.1:{broker.ports[1]}",
            f"ws://localhost:{broker.ports[2]}",
            f"wss://127.0.0.1:{broker.ports[3]}",
        )
        for port in broker.ports:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()


async def test_all_addresses_are_those_of_both_protocols(tmp_path: Path) -> None:
    async with embedded_house(tmp_path, listeners=(Listener("::", 0, insecure=True),)) as house:
        for host in ("127.0.0.1", "::1"):
            _, writer = await asyncio.open_connection(host, house.port)
            writer.close()
            await writer.wait_closed()


async def test_nobody_connects_before_the_ports_can_be_announced(tmp_path: Path) -> None:
    key = KeyPair.generate().public
    settings = EmbeddedSettings(tmp_path, "home-1", key, listeners=(Listener(port=0),))
    seen = []

    def look(ports: tuple[int, ...]) -> None:
        with socket.socket() as client:
            seen.append(client.connect_ex(("127.0.0.1", ports[0])))

    async with open_embedded(settings, on_bound=look):
        assert seen == [errno.ECONNREFUSED]
