"""Links over TLS, and links that know several addresses, on real brokers with real certificates."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from bus.link import Link, LinkSettings, Message, open_link
from bus.link.drivers import DriverName
from bus.link.tls_failure import connect_failure
from contracts.errors import Disconnected, LinkError, LoginRefused
from identity.certificates import Authority, ServerCertificate
from tests.broker.embedded_world import House, Listener, embedded_house
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

pytestmark = pytest.mark.parametrize("driver", ["loop", "thread"])

NAMES, ADDRESSES = ("localhost",), ("127.0.0.1",)


def settings(*urls: str, driver: DriverName, **more: object) -> LinkSettings:
    quick = {"client_id": "main", "backoff_s": 0.02, "backoff_max_s": 0.1, "refused_s": 0.05}
    return LinkSettings(urls=urls, driver=driver, **{**quick, **more})  # type: ignore[arg-type]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.load_or_create(tmp_path / "certs")


@pytest.fixture
def certificate(authority: Authority, tmp_path: Path) -> ServerCertificate:
    return authority.issue(NAMES, ADDRESSES, directory=tmp_path / "certs")


@pytest.fixture
async def house(certificate: ServerCertificate, tmp_path: Path) -> AsyncIterator[House]:
    """The embedded broker with TLS: MQTT 3.1.1."""
    listener = Listener(port=0, tls=certificate.context())
    async with embedded_house(tmp_path / "broker", listeners=(listener,)) as house:
        yield house


@pytest.fixture
def secure_mosquitto(certificate: ServerCertificate, tmp_path: Path) -> Mosquitto:
    """A Mosquitto with TLS, to be started: MQTT 5."""
    require(find_mosquitto() is not None, HINT)
    return Mosquitto(tmp_path, certificate=certificate)


def hub_of(house: House, *urls: str, driver: DriverName, **more: object) -> LinkSettings:
    """Settings of a hub that may do all it wants in the house."""
    token = SecretStr(house.token("main", "hub"))
    return settings(*(urls or (house.url,)), driver=driver, username="main", password=token, **more)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


async def error_of(link: Link) -> LinkError:
    """Wait until the link knows why it has no connection."""
    await until(lambda: link.last_error)
    assert link.last_error is not None
    return link.last_error


@asynccontextmanager
async def failing(settings: LinkSettings) -> AsyncIterator[LinkError]:
    async with open_link(settings, wait_s=0) as link:
        yield await error_of(link)
        assert not link.connected


async def flood(link: Link, *, count: int, size: int) -> list[int]:
    """Send messages to ourselves as fast as the link takes them; give the sizes in which they came."""
    sizes: list[int] = []
    complete = asyncio.Event()

    def arrived(message: Message) -> None:
        assert message.payload == bytes([message.payload[0]]) * len(message.payload)
        sizes.append(len(message.payload))
        if len(sizes) == count:
            complete.set()

    await link.subscribe("devices/pc/#", arrived)
    for number in range(count):
        await link.publish("devices/pc/events/x", bytes([number % 256]) * size)
    async with asyncio.timeout(60):
        await complete.wait()
    return sizes


async def test_calls_cross_tls_on_the_embedded_broker(
    house: House, authority: Authority, driver: DriverName
) -> None:
    async with open_link(hub_of(house, driver=driver, ca=authority.pem), wait_s=30) as link:
        assert link.url == house.url
        assert house.url.startswith("mqtts://")
        assert await flood(link, count=300, size=200) == [200] * 300


async def test_calls_cross_tls_on_mosquitto(
    secure_mosquitto: Mosquitto, authority: Authority, driver: DriverName
) -> None:
    with secure_mosquitto as broker:
        async with open_link(settings(broker.url, driver=driver, ca=authority.pem)) as link:
            assert link.protocol == 5
            assert await flood(link, count=300, size=200) == [200] * 300


@pytest.mark.parametrize("size", [16 * 1024 - 40, 16 * 1024, 300_000, 1_000_000])
async def test_large_messages_come_whole_though_tls_cuts_them_into_records(
    house: House, authority: Authority, driver: DriverName, size: int
) -> None:
    async with open_link(hub_of(house, driver=driver, ca=authority.pem, max_in_flight=4)) as link:
        assert await flood(link, count=12, size=size) == [size] * 12


async def test_what_tls_holds_back_is_read_though_the_socket_is_silent(
    certificate: ServerCertificate, authority: Authority, driver: DriverName
) -> None:
    # Two hundred messages in one TLS record: more than a turn of the loop reads, and then nothing more.
    context, got = certificate.context(), asyncio.Event()
    seen: list[Message] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00")
        await reader.read(1000)
        messages = b"".join(b"\x30\x05\x00\x01a\x00%c" % n for n in range(200))
        writer.write(b"\x90\x04\x00\x01\x00\x00" + messages)
        await reader.read()
        writer.close()

    def arrived(message: Message) -> None:
        seen.append(message)
        if len(seen) == 200:
            got.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"mqtts://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        link = open_link(settings(url, driver=driver, ca=authority.pem), wait_s=0)
        await link.subscribe("a", arrived)
        async with link, asyncio.timeout(60):
            await got.wait()
    assert [message.payload[0] for message in seen] == list(range(200))


async def test_small_packets_are_not_held_back_under_tls(
    house: House, authority: Authority, driver: DriverName, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped: list[ssl.SSLSocket] = []
    wrap = ssl.SSLContext.wrap_socket

    def remember(*arguments: object, **options: object) -> ssl.SSLSocket:
        wrapped.append(wrap(*arguments, **options))  # type: ignore[arg-type]
        return wrapped[-1]

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", remember)
    async with open_link(hub_of(house, driver=driver, ca=authority.pem)):
        client = wrapped[-1]
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_authority_that_is_not_trusted_is_named_as_the_reason(
    house: House, driver: DriverName, tmp_path: Path
) -> None:
    for ca in (None, Authority.load_or_create(tmp_path / "other").pem):
        async with failing(hub_of(house, driver=driver, ca=ca)) as error:
            assert isinstance(error, Disconnected)
            assert "authority that is not trusted" in error.message
            assert house.url in error.message
            assert "ca.pem" in error.hint
    assert house.broker.clients == 0


async def test_a_certificate_for_another_host_is_named_as_the_reason(
    authority: Authority, driver: DriverName, tmp_path: Path
) -> None:
    certificate = authority.issue(["hub.local"], ["192.0.2.7"], directory=tmp_path / "certs")
    listener = Listener(port=0, tls=certificate.context())
    async with embedded_house(tmp_path / "broker", listeners=(listener,)) as house:
        for host in ("127.0.0.1", "localhost"):
            url = f"mqtts://{host}:{house.port}"
            async with failing(hub_of(house, url, driver=driver, ca=authority.pem)) as error:
                assert f"its certificate is not for {host}" in error.message
                assert f"--name {host}" in error.hint


async def test_an_expired_certificate_is_named_as_the_reason(
    authority: Authority, driver: DriverName, tmp_path: Path
) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=500)
    certificate = authority.issue(NAMES, ADDRESSES, directory=tmp_path / "certs", at=long_ago)
    listener = Listener(port=0, tls=certificate.context())
    async with (
        embedded_house(tmp_path / "broker", listeners=(listener,)) as house,
        failing(hub_of(house, driver=driver, ca=authority.pem)) as error,
    ):
        assert "has expired" in error.message
        assert "strawberry certs --renew" in error.hint


async def test_a_port_without_tls_is_named_as_the_reason(driver: DriverName, tmp_path: Path) -> None:
    async with embedded_house(tmp_path / "broker") as house:
        url = f"mqtts://127.0.0.1:{house.port}"
        async with failing(hub_of(house, url, driver=driver)) as error:
            assert "TLS" in error.message
            assert "8883" in error.hint


async def test_a_broker_that_hangs_in_the_handshake_is_given_up(driver: DriverName) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"mqtts://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, failing(settings(url, driver=driver, connect_timeout_s=0.2)) as error:
        assert "timed out" in error.message


async def test_an_authority_that_is_replaced_counts_at_the_next_attempt(
    house: House, authority: Authority, driver: DriverName, tmp_path: Path
) -> None:
    trusted = [Authority.load_or_create(tmp_path / "old").pem]
    async with open_link(hub_of(house, driver=driver, ca=lambda: trusted[0]), wait_s=0) as link:
        assert "not trusted" in (await error_of(link)).message
        trusted[0] = authority.pem
        await until(lambda: link.connected)


async def test_an_authority_that_is_no_certificate_is_told_and_mended(
    house: House, authority: Authority, driver: DriverName
) -> None:
    trusted = ["nonsense"]
    async with open_link(hub_of(house, driver=driver, ca=lambda: trusted[0]), wait_s=0) as link:
        assert "not a PEM certificate" in (await error_of(link)).message
        trusted[0] = authority.pem
        await until(lambda: link.connected)


async def test_a_certificate_that_is_renewed_while_running_serves_the_next_connection(
    authority: Authority, driver: DriverName, tmp_path: Path
) -> None:
    directory = tmp_path / "certs"
    context = authority.issue(["hub.local"], [], directory=directory).context()
    async with (
        embedded_house(tmp_path / "broker", listeners=(Listener(port=0, tls=context),)) as house,
        open_link(hub_of(house, driver=driver, ca=authority.pem), wait_s=0) as link,
    ):
        assert "is not for 127.0.0.1" in (await error_of(link)).message
        authority.issue(["hub.local"], ADDRESSES, directory=directory).load_into(context)
        await until(lambda: link.connected)


async def test_the_next_address_is_tried_where_one_does_not_answer(
    house: House, authority: Authority, driver: DriverName
) -> None:
    dead = f"mqtts://127.0.0.1:{free_port()}"
    unknown = "mqtts://no-such-machine.invalid"
    async with open_link(hub_of(house, dead, unknown, house.url, driver=driver, ca=authority.pem)) as link:
        await until(lambda: link.connected)
        assert link.url == house.url
        assert link.last_error is None


async def test_the_next_address_is_tried_where_one_refuses_the_login(
    house: House, authority: Authority, certificate: ServerCertificate, driver: DriverName, tmp_path: Path
) -> None:
    listener = Listener(port=0, tls=certificate.context())
    async with embedded_house(tmp_path / "2", listeners=(listener,)) as second:
        login = hub_of(second, house.url, second.url, driver=driver, ca=authority.pem, refused_s=3600)
        async with open_link(login, wait_s=30) as link:
            assert link.url == second.url


async def test_the_first_address_is_the_first_again_after_a_connection_is_lost(
    house: House, authority: Authority, driver: DriverName, tmp_path: Path
) -> None:
    require(find_mosquitto() is not None, HINT)
    first = Mosquitto(tmp_path)
    login = hub_of(house, first.url, house.url, driver=driver, ca=authority.pem)
    async with open_link(login, wait_s=30) as link:
        assert (link.url, link.protocol) == (house.url, 4)
        with first:
            link.reconnect()
            await until(lambda: link.url == first.url and link.connected)
            assert link.protocol == 5
        await until(lambda: link.url == house.url and link.connected)


async def test_the_hint_for_a_port_with_tls_names_its_scheme(house: House, driver: DriverName) -> None:
    async with open_link(settings(house.url.replace("mqtts", "mqtt"), driver=driver), wait_s=0) as link:
        await until(lambda: link.last_error is not None)
        assert link.last_error is not None
        assert link.last_error.hint.startswith("Check the address, and that the broker runs. If this ")
        assert "mqtts://" in link.last_error.hint


def test_a_connection_that_fails_is_told_in_words_of_the_field(driver: DriverName) -> None:
    for error, tls, said in (
        (socket.gaierror(socket.EAI_NONAME, "unknown"), False, "there is no machine named nas"),
        (socket.gaierror(socket.EAI_AGAIN, "temporary"), False, "nas cannot be looked up now"),
        (ConnectionResetError(104, "Connection reset by peer"), True, "TLS handshake"),
        (ConnectionRefusedError(111, "Connect call failed ('::1', 1)"), False, "Connection refused"),
        (ConnectionRefusedError(10061, "The target machine refused"), False, "The target machine refused"),
    ):
        assert said in connect_failure(error, "nas", tls=tls)[0]


async def test_what_is_wrong_with_each_address_is_told_and_a_refusal_counts_most(
    house: House, authority: Authority, driver: DriverName, tmp_path: Path
) -> None:
    dead = f"mqtts://127.0.0.1:{free_port()}"
    login = settings(
        dead, house.url, driver=driver, username="main", password=SecretStr("wrong"), ca=authority.pem
    )
    async with open_link(login, wait_s=0) as link:
        await until(lambda: isinstance(link.last_error, LoginRefused))
        message = str(link.last_error)
    assert f"no connection to {dead}" in message
    assert f"{house.url} refuses the login of main" in message
    assert "wrong" not in message
