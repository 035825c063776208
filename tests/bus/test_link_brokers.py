"""What the link finds out by itself: which MQTT is spoken, what the loop can do, when to try again."""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pydantic import SecretStr

from bus.link import Link, LinkSettings, Message, open_link
from bus.link.client import read_subscriptions
from bus.link.drivers import DriverName
from contracts.errors import Forbidden
from tests.broker.embedded_world import embedded_house
from tests.hub_registry.spokes import eventually
from tests.mosquitto import Mosquitto


async def _echo(link: Link) -> Message:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    await link.subscribe("devices/echo/#", inbox.put_nowait)
    await link.send(
        Message("devices/echo/events/x", b"hello", expiry_s=30, response_topic="a", correlation=b"7")
    )
    return await inbox.get()


async def test_a_broker_that_speaks_only_mqtt_3_is_spoken_to_in_it(tmp_path: Path) -> None:
    async with embedded_house(tmp_path) as house:
        token = SecretStr(house.token("main", "hub"))
        url = f"mqtt://127.0.0.1:{house.port}"
        async with open_link(
            LinkSettings(urls=(url,), client_id="main", username="main", password=token)
        ) as link:
            message = await _echo(link)
            assert link.protocol == 4
            # What only MQTT 5 carries is left out; no message depends on it.
            assert (message.payload, message.response_topic, message.correlation) == (b"hello", None, None)


async def test_each_handler_of_overlapping_filters_has_a_message_once(mosquitto: Mosquitto) -> None:
    heard: list[tuple[str, bytes]] = []

    def note(name: str) -> Callable[[Message], None]:
        return lambda message: heard.append((name, message.payload))

    async with open_link(LinkSettings(urls=(mosquitto.url,), client_id="one", backoff_s=0.02)) as link:
        again = asyncio.Event()

        async def connected() -> None:
            again.set()

        for name, filter_ in (("all", "a/#"), ("same", "a/#"), ("plus", "a/+"), ("one", "a/b"), ("x", "a/x")):
            await link.subscribe(filter_, note(name))
        # Also after a reconnect, when all are subscribed together.
        link.on_connected(connected)
        link.reconnect()
        await again.wait()
        await link.send(Message("a/b", b"1", expiry_s=30, response_topic="a/b", correlation=b"\x0b"))
        await link.publish("a/b/c", b"end")
        await eventually(lambda: heard.count(("same", b"end")))
    assert sorted(heard) == sorted(
        [(name, b"1") for name in ("all", "same", "plus", "one")]
        + [(name, b"end") for name in ("all", "same")]
    )


def test_identifiers_are_found_among_all_properties_of_a_message() -> None:
    given = Properties(PacketTypes.PUBLISH)
    given.PayloadFormatIndicator, given.MessageExpiryInterval, given.TopicAlias = 1, 11, 11
    given.ResponseTopic, given.ContentType, given.CorrelationData = "answer", "text/plain", b"\x0b\x0b"
    given.UserProperty = [("name", "value"), ("\x0b", "")]
    given.SubscriptionIdentifier = 7
    given.SubscriptionIdentifier = 268_435_455
    packed = bytearray(given.pack())
    found, end = read_subscriptions(packed + b"payload", 0)
    assert (sorted(found), end) == ([7, 268_435_455], len(packed))
    assert read_subscriptions(bytearray(b"\0payload"), 0) == ((), 1)
    for cut in range(len(packed)):
        with pytest.raises((IndexError, KeyError)):
            read_subscriptions(packed[:cut], 0)


class _LoopWithoutReaders(asyncio.SelectorEventLoop):
    """As Windows' Proactor loop, which subprocesses need there."""

    add_reader = asyncio.AbstractEventLoop.add_reader
    remove_reader = asyncio.AbstractEventLoop.remove_reader
    add_writer = asyncio.AbstractEventLoop.add_writer
    remove_writer = asyncio.AbstractEventLoop.remove_writer


def test_a_loop_that_cannot_watch_sockets_is_served_by_a_thread(mosquitto: Mosquitto) -> None:
    async def main() -> Message:
        async with open_link(LinkSettings(urls=(mosquitto.url,), client_id="one")) as link:
            return await _echo(link)

    with asyncio.Runner(loop_factory=_LoopWithoutReaders) as runner:
        assert runner.run(main()).payload == b"hello"


@pytest.mark.parametrize("driver", ["loop", "thread"])
async def test_small_packets_are_not_held_back(
    mosquitto: Mosquitto, driver: DriverName, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []
    create = socket.create_connection

    def remember(*arguments: object, **options: object) -> socket.socket:
        opened.append(create(*arguments, **options))  # type: ignore[arg-type]
        return opened[-1]

    monkeypatch.setattr(socket, "create_connection", remember)
    settings = LinkSettings(urls=(mosquitto.url,), client_id="one", driver=driver)
    async with open_link(settings) as link:
        await _echo(link)
        (client,) = opened
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("answer", [b"", b"\x20\x03\x00\x00\x00", b"\x20\x03\x00\x87\x00"])
async def test_a_broker_that_stays_away_hangs_up_or_refuses_the_login_is_tried_less_and_less_often(
    answer: bytes,
) -> None:
    attempts: list[float] = []
    enough = asyncio.Event()
    # Where it gives no answer, each attempt is made in both versions.
    each = 1 if answer else 2

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.append(time.monotonic())
        await reader.read(1000)
        writer.write(answer)
        writer.close()
        if len(attempts) == 5 * each:
            enough.set()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = LinkSettings(
            urls=(f"mqtt://127.0.0.1:{port}",),
            client_id="one",
            backoff_s=0.04,
            backoff_max_s=0.16,
            # The waits after refusals are as short at first.
            refused_s=3600,
        )
        async with open_link(settings, wait_s=0):
            await enough.wait()
    gaps = [later - earlier for earlier, later in pairwise(attempts[::each])]
    # By chance up to half of each wait is left out, so that many clients do not come in step.
    assert all(gap >= least for gap, least in zip(gaps, (0.02, 0.04, 0.08, 0.08), strict=True)), gaps


@pytest.mark.parametrize("driver", ["loop", "thread"])
@pytest.mark.parametrize("piece", [1, 3, 100_000])
async def test_messages_are_heard_whole_and_in_order_however_the_bytes_come(
    driver: DriverName, piece: int
) -> None:
    # Beyond what a turn of the loop handles, with one whose length takes three bytes.
    sizes = [number % 7 for number in range(150)] + [20_000]
    stream = b"".join(_qos_0(b"%d" % size + b"x" * size) for size in sizes)
    heard: list[bytes] = []
    complete = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00")
        await reader.read(1000)
        writer.write(b"\x90\x04\x00\x01\x00\x00")
        for at in range(0, len(stream), piece):
            writer.write(stream[at : at + piece])
            await writer.drain()
        await reader.read()
        writer.close()

    def arrived(message: Message) -> None:
        heard.append(message.payload)
        if len(heard) == len(sizes):
            complete.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        link = open_link(LinkSettings(urls=(url,), client_id="one", driver=driver), wait_s=0)
        await link.subscribe("a", arrived)
        async with link, asyncio.timeout(60):
            await complete.wait()
    assert heard == [b"%d" % size + b"x" * size for size in sizes]


@pytest.mark.parametrize("driver", ["loop", "thread"])
async def test_a_message_that_the_broker_refuses_is_told_and_one_that_nobody_hears_is_none(
    driver: DriverName,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00")
        for reason in (b"\x87", b"\x10"):  # not authorised; no matching subscribers
            published = await reader.readexactly(9)
            assert published[:5] == b"\x32\x07\x00\x01a"
            # An acknowledgement of what was never sent means nothing.
            writer.write(b"\x40\x02\xff\xff" + b"\x40\x03" + published[5:7] + reason)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_link(LinkSettings(urls=(url,), client_id="one", driver=driver)) as link:
            with pytest.raises(Forbidden, match="did not take a message"):
                await link.publish("a", b"x", confirmed=True)
            await link.publish("a", b"x", confirmed=True)


@pytest.mark.parametrize("driver", ["loop", "thread"])
async def test_each_message_is_acknowledged_also_when_nothing_else_is_sent(driver: DriverName) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00")
        for number in range(1, 21):
            writer.write(b"\x32\x06\x00\x01a" + number.to_bytes(2, "big") + b"\x00")
            if number in (1, 20):
                count = 1 if number == 1 else 19
                received.put_nowait(await reader.readexactly(4 * count))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_link(LinkSettings(urls=(url,), client_id="one", driver=driver)), asyncio.timeout(60):
            acknowledged = await received.get() + await received.get()
    assert acknowledged == b"".join(b"\x40\x02" + number.to_bytes(2, "big") for number in range(1, 21))


async def test_an_answer_and_the_acknowledgement_of_its_question_leave_as_one_piece() -> None:
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    ready = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00")
        subscribe = await reader.read(1000)
        writer.write(b"\x90\x04" + subscribe[2:4] + b"\x00\x01")
        await ready.wait()
        writer.write(b"\x32\x06\x00\x01a\x00\x07\x00")
        pieces.put_nowait(await reader.read(1000))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        link = open_link(LinkSettings(urls=(url,), client_id="one", driver="loop"), wait_s=0)
        await link.subscribe("a", lambda _: link.publish_nowait(Message("b", b"the answer")))
        async with link, asyncio.timeout(60):
            await link.wait_connected()
            ready.set()
            piece = await pieces.get()
    assert b"the answer" in piece
    assert b"\x40\x02\x00\x07" in piece


def _qos_0(payload: bytes) -> bytes:
    """A PUBLISH on the topic ``a`` in MQTT 5."""
    length, header = 4 + len(payload), bytearray(b"\x30")
    while length >= 0x80:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(header) + bytes((length,)) + b"\x00\x01a\x00" + payload


async def test_what_is_subscribed_raised_and_unsubscribed_while_the_link_subscribes_again_counts() -> None:
    asked: asyncio.Queue[bytes] = asyncio.Queue()
    connected, go = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00")
        connected.set()
        while (head := await reader.read(2)) and head[0] == 0x82:
            subscribe = await reader.readexactly(head[1])
            asked.put_nowait(subscribe)
            await go.wait()
            writer.write(b"\x90\x04" + subscribe[:2] + b"\x00\x01")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        link = open_link(LinkSettings(urls=(url,), client_id="one"), wait_s=0)
        leave = [await link.subscribe(f"early/{number}", print) for number in range(50)]
        await link.subscribe("stays", print, qos=0)
        async with link, asyncio.timeout(60):
            await connected.wait()
            for unsubscribe in leave:
                await unsubscribe()
                await asyncio.sleep(0)
            await asked.get()
            await link.subscribe("late", print)
            await link.subscribe("stays", print, qos=1)
            go.set()
            await link.wait_connected()
    again = [asked.get_nowait() for _ in range(asked.qsize())]
    assert any(b"late" in each for each in again)
    assert any(each.partition(b"stays")[2][:1] == b"\x01" for each in again)


async def test_what_was_subscribed_before_follows_the_qos_of_other_settings(mosquitto: Mosquitto) -> None:
    heard: asyncio.Queue[Message] = asyncio.Queue()
    settings = LinkSettings(urls=(mosquitto.url,), client_id="one", backoff_s=0.02)
    async with (
        open_link(settings) as link,
        open_link(LinkSettings(urls=(mosquitto.url,), client_id="two")) as two,
    ):
        await link.subscribe("a", heard.put_nowait)
        await two.send(Message("a", b"x", 1))
        assert (await heard.get()).qos == 1
        connected = asyncio.Event()

        async def note() -> None:
            connected.set()

        link.on_connected(note)
        link.use(replace(settings, qos=0))
        async with asyncio.timeout(60):
            await connected.wait()
        await two.send(Message("a", b"x", 1))
        assert (await heard.get()).qos == 0
