import asyncio
import logging
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from pydantic import SecretStr

from bus.link import Link, LinkSettings, Message, open_link
from bus.link.client import stop_loop
from contracts.errors import ConfigError, Disconnected, LoginRefused
from tests.mosquitto import HINT, Mosquitto
from tests.ports import free_port
from tests.requirements import require


def settings(url: str, name: str = "one", **more: object) -> LinkSettings:
    quick = {"backoff_s": 0.02, "backoff_max_s": 0.1, "refused_s": 0.05}
    return LinkSettings(urls=(url,), client_id=name, **{**quick, **more})  # type: ignore[arg-type]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


@pytest.fixture(params=["loop", "thread"])
async def link(request: pytest.FixtureRequest, mosquitto: Mosquitto) -> AsyncIterator[Link]:
    async with open_link(settings(mosquitto.url, driver=request.param)) as link:
        yield link


async def test_a_message_comes_back_to_its_subscriber(link: Link) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    await link.subscribe("a/+", inbox.put_nowait)
    await link.send(Message("a/b", b"hello", expiry_s=30, response_topic="a/answer", correlation=b"7"))
    message = await inbox.get()
    assert (message.topic, message.payload, message.retain) == ("a/b", b"hello", False)
    assert link.protocol == 5


@asynccontextmanager
async def watching(mosquitto: Mosquitto, filter_: str) -> AsyncIterator[asyncio.Queue[MQTTMessage]]:
    """What a plain MQTT 5 client sees."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    seen: asyncio.Queue[MQTTMessage] = asyncio.Queue()
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)

    def tell(act: Callable[..., None], *given: Any) -> None:
        loop.call_soon_threadsafe(act, *given)

    client.on_message = lambda _client, _data, message: tell(seen.put_nowait, message)
    client.on_subscribe = lambda *_: tell(ready.set)
    client.on_connect = lambda client, *_: client.subscribe(filter_, qos=1)
    client.connect_async("127.0.0.1", mosquitto.port)
    client.loop_start()
    try:
        await ready.wait()
        yield seen
    finally:
        client.disconnect()
        await asyncio.to_thread(stop_loop, client)


async def test_others_see_the_properties_of_mqtt_5(link: Link, mosquitto: Mosquitto) -> None:
    async with watching(mosquitto, "a/+") as seen:
        await link.send(Message("a/b", b"hello", expiry_s=30, response_topic="a/answer", correlation=b"7"))
        properties: Any = (await seen.get()).properties
    assert properties is not None
    assert (properties.ResponseTopic, properties.CorrelationData) == ("a/answer", b"7")
    assert 0 < properties.MessageExpiryInterval <= 30


async def test_five_thousand_messages_arrive_in_order(link: Link) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    await link.subscribe("n", inbox.put_nowait)
    for number in range(5_000):
        await link.publish("n", b"%d" % number)
    assert [int((await inbox.get()).payload) for _ in range(5_000)] == list(range(5_000))


async def test_in_each_turn_of_the_loop_messages_have_one_slice_of_time(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.link.drivers.READ_SLICE_S", 0)
    turns, arrived = 0, Counter[int]()

    async def count() -> None:
        nonlocal turns
        while arrived.total() < 3_000:
            turns += 1
            await asyncio.sleep(0)

    async with (
        open_link(settings(mosquitto.url, driver="loop")) as link,
        open_link(settings(mosquitto.url, "two", driver="thread")) as sender,
    ):
        await link.subscribe("flood", lambda _: arrived.update([turns]))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(count())
            for _ in range(3_000):
                tasks.create_task(sender.publish("flood", b"x"))
    # One for the last of what was held and one for what just came; not one more each time that more came.
    assert max(arrived.values()) <= 2


async def test_the_prefix_is_only_on_the_wire(mosquitto: Mosquitto) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    async with (
        open_link(settings(mosquitto.url, topic_prefix="strawberry/")) as link,
        watching(mosquitto, "#") as seen,
    ):
        await link.subscribe("a/b", inbox.put_nowait)
        await link.send(Message("a/b", b"x", response_topic="a/c"))
        outside = await seen.get()
        assert outside.topic == "strawberry/a/b"
        properties: Any = outside.properties
        assert properties.ResponseTopic == "strawberry/a/c"
        assert (await inbox.get()).topic == "a/b"


async def test_a_retained_message_is_known_as_such(link: Link) -> None:
    await link.publish("kept", b"x", retain=True, confirmed=True)
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    await link.subscribe("kept", inbox.put_nowait)
    assert (await inbox.get()).retain


async def test_after_a_killed_broker_is_back_the_link_has_its_subscriptions(
    link: Link, mosquitto: Mosquitto
) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    lost, back = asyncio.Event(), asyncio.Event()

    async def again() -> None:
        back.set()

    await link.subscribe("a", inbox.put_nowait)
    link.on_disconnected(lost.set)
    link.on_connected(again)
    mosquitto.kill()
    await lost.wait()
    assert not link.connected
    assert isinstance(link.last_error, Disconnected)
    assert "gave no reason" in str(link.last_error)
    with pytest.raises(Disconnected):
        await link.publish("a", b"not queued")
    mosquitto.start()
    await back.wait()
    await link.publish("a", b"new")
    assert (await inbox.get()).payload == b"new"


async def test_what_waits_for_a_confirmation_ends_when_the_broker_dies(
    link: Link, mosquitto: Mosquitto
) -> None:
    async def flood() -> None:
        while True:
            await link.publish("a", b"x" * 1000, confirmed=True)

    flooding = asyncio.gather(*(flood() for _ in range(300)), return_exceptions=True)
    await asyncio.sleep(0.05)
    mosquitto.kill()
    assert {type(error) for error in await flooding} == {Disconnected}


async def test_more_than_the_bound_wait_for_room_and_all_arrive(mosquitto: Mosquitto) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    async with open_link(settings(mosquitto.url, max_in_flight=4)) as link:
        await link.subscribe("a", inbox.put_nowait)
        refused = 0
        for _ in range(10):
            try:
                link.publish_nowait(Message("a", b""))
            except Disconnected:
                refused += 1
        assert refused == 6
        async with asyncio.TaskGroup() as tasks:
            for _ in range(50):
                tasks.create_task(link.publish("a", b""))
        for _ in range(54):
            await inbox.get()


async def test_the_last_will_is_made_anew_for_each_connection(mosquitto: Mosquitto) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    made = iter(range(1, 100))

    def will() -> Message:
        return Message("will", b"%d" % next(made))

    async with (
        open_link(settings(mosquitto.url, "watcher")) as watcher,
        open_link(settings(mosquitto.url, "mortal"), will=will),
    ):
        await watcher.subscribe("will", inbox.put_nowait)
        # A client of the same id takes the session over, at which the broker publishes the will.
        async with open_link(settings(mosquitto.url, "mortal")):
            first = int((await inbox.get()).payload)
            second = int((await inbox.get()).payload)
        assert first == 1
        assert second > first


async def test_a_clean_end_leaves_no_will(link: Link, mosquitto: Mosquitto) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    await link.subscribe("#", inbox.put_nowait)
    for driver in ("loop", "thread"):
        async with open_link(
            settings(mosquitto.url, "leaver", driver=driver), will=lambda: Message("will", b"dead")
        ) as leaver:
            await leaver.publish("bye", b"")
        assert (await inbox.get()).topic == "bye"
    await link.publish("end", b"")
    assert (await inbox.get()).topic == "end"


async def test_a_failing_handler_is_logged_and_the_others_go_on(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()

    def fail(_: Message) -> None:
        raise RuntimeError("the reason")

    await link.subscribe("a", fail)
    await link.subscribe("a", inbox.put_nowait)
    with caplog.at_level(logging.ERROR):
        await link.publish("a", b"x")
        await inbox.get()
    assert "the reason" in caplog.text


async def test_after_unsubscribing_nothing_comes(link: Link) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    unsubscribe = await link.subscribe("a", inbox.put_nowait)
    await link.subscribe("b", inbox.put_nowait)
    await unsubscribe()
    await link.publish("a", b"")
    await link.publish("b", b"")
    assert (await inbox.get()).topic == "b"


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    """A password file with one user, `anna`, whose password is `right`."""
    file = tmp_path / "passwords"
    file.touch()
    require(shutil.which("mosquitto_passwd") is not None, HINT)
    subprocess.run(["mosquitto_passwd", "-b", str(file), "anna", "right"], check=True)
    file.chmod(0o644)
    return file


async def test_a_wrong_password_is_told_and_the_right_one_is_taken_later(
    tmp_path: Path, passwords: Path
) -> None:
    current = ["wrong"]
    with Mosquitto(tmp_path, password_file=passwords) as broker:
        async with open_link(
            settings(broker.url, username="anna", password=lambda: SecretStr(current[0])), wait_s=0.3
        ) as link:
            assert not link.connected
            await until(lambda: isinstance(link.last_error, LoginRefused))
            assert "refuses the login of anna:" in str(link.last_error)
            assert link.protocol is None
            current[0] = "right"
            await link.wait_connected()
            assert link.protocol == 5


async def test_a_broker_that_is_not_there_is_named_and_found_when_it_comes(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    async with open_link(settings(broker.url), wait_s=0.1) as link:
        await until(lambda: str(broker.port) in str(link.last_error))
        with broker:
            await link.wait_connected()


async def test_a_peer_that_does_not_speak_mqtt_leaves_a_reason() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x30\xff\xff\xff\xff\xff HTTP/1.1 400")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, open_link(settings(f"mqtt://127.0.0.1:{port}"), wait_s=0.2) as link:
        await until(lambda: link.last_error is not None)
        assert not link.connected


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x30\x03\x00\xff\x00",  # a topic longer than its packet
        b"\x30\x06\x00\x01a\xff\x7f\x00",  # properties longer than their packet
        b"\x34\x06\x00\x01a\x00\x01\x00",  # QoS 2, which was never asked for
        b"\x40\x01\x00",  # an acknowledgement of half a number
        b"\xf0\x00",
    ],
)
@pytest.mark.parametrize("driver", ["loop", "thread"])
async def test_a_broker_that_goes_mad_is_left_and_tried_again(driver: str, rubbish: bytes) -> None:
    visits = asyncio.Semaphore(0)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00" + rubbish)
        visits.release()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, open_link(settings(f"mqtt://127.0.0.1:{port}", driver=driver), wait_s=0):
        for _ in range(3):
            await visits.acquire()


async def test_cancelling_passes_through(mosquitto: Mosquitto) -> None:
    entered = asyncio.Event()

    async def live() -> None:
        async with open_link(settings(mosquitto.url)):
            entered.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(live())
        await entered.wait()
        task.cancel()
    assert task.cancelled()


async def test_an_error_in_the_body_comes_out_as_itself(mosquitto: Mosquitto) -> None:
    with pytest.raises(KeyError):
        async with open_link(settings(mosquitto.url)):
            raise KeyError("mine")


@pytest.mark.parametrize("url", ["http://x", "mqtt://", "localhost:1883", "mqtt://x:99999", "mqtt://a..b"])
def test_what_is_no_broker_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        open_link(settings(url))


async def test_a_broker_that_stays_away_is_told_about_once(caplog: pytest.LogCaptureFixture) -> None:
    url = f"mqtt://127.0.0.1:{free_port()}"
    with caplog.at_level(logging.DEBUG, logger="bus.link"):
        async with open_link(settings(url), wait_s=0.01):
            while sum("no connection to" in each.message for each in caplog.records) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert sum(each.startswith(f"no connection to {url}") for each in warnings) == 1
