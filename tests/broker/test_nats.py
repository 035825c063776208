"""What one client may take of NATS, and that the others go on."""

import asyncio
import base64
import contextlib
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats.errors
import nkeys
import pytest
from nats.aio.client import Client

from broker import limits
from broker.logins import LoginCheck
from broker.nats import streams
from broker.nats.callout import Callout
from broker.nats.keys import NatsKeys
from broker.nats.logins import NatsAccess, NatsLogins, error_log, open_nats
from broker.process import BrokerProcess
from bus.link import open_link
from bus.link.connection import SubscriptionRefused
from contracts.access import Principal
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError, StorageError
from deploy.cli.main import main
from deploy.directory import Home
from deploy.home.brokers.nats import node_keys
from deploy.settings.options import NodeOptions
from hub_registry.storage.tables import now
from identity.keys import KeyPair
from tests.brokers import HUB_ID, Bus, open_bus
from tests.deploy.strawberry import environment_of
from tests.hub_registry.spokes import eventually

DEVICE, OTHER = Principal("device", "pc"), Principal("device", "tv")


async def test_what_a_device_retains_without_end_keeps_no_other_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "broker")
    monkeypatch.setattr(limits, "NATS_STORE_BYTES", 8 << 20)
    monkeypatch.setattr(limits, "NATS_STORE_LOOK_S", 0.1)
    for bounds in streams.BOUNDS.values():
        monkeypatch.setitem(bounds, "max_bytes", 2 << 20)
    async with (
        open_bus("nats", tmp_path) as bus,
        open_link(await bus.link_settings(DEVICE), wait_s=10) as greedy,
        open_link(await bus.link_settings(OTHER), wait_s=10) as other,
    ):
        await eventually(lambda: caplog.text.count("is bounded now") == len(streams.BOUNDS))
        await other.publish("devices/tv/status", b"before", retain=True, confirmed=True)
        for number in range(200):
            await greedy.publish(f"devices/pc/state/S/{number}", bytes(64 * 1024), qos=0, retain=True)
        await eventually(lambda: "$MQTT_rmsgs of NATS holds" in caplog.text)
        assert bus.fill["sessions"] < 0.8 < bus.fill["retained"] <= 1
        # What was retained is replaced.
        await other.publish("devices/tv/status", b"after", retain=True, confirmed=True)
        async with open_link(await bus.link_settings(Principal("hub", "main")), wait_s=10) as hub:
            heard = asyncio.Queue[bytes]()
            await hub.subscribe("devices/tv/status", lambda message: heard.put_nowait(message.payload))
            assert await asyncio.wait_for(heard.get(), 10) == b"after"
        assert other.connected


async def test_a_client_gets_no_more_subscriptions_than_a_node_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NATS_SUBSCRIPTIONS", 20)

    def hear(_: object) -> None:
        return None

    async with (
        open_bus("nats", tmp_path) as bus,
        open_link(await bus.link_settings(DEVICE), wait_s=10) as greedy,
        open_link(await bus.link_settings(OTHER), wait_s=10) as other,
    ):
        for number in range(20):
            await greedy.subscribe(f"devices/pc/calls/S/{number}", hear)
        with pytest.raises(SubscriptionRefused):
            await greedy.subscribe("devices/pc/calls/S/20", hear)
        await other.subscribe("devices/tv/calls/S/on", hear)
        assert greedy.connected


async def test_the_streams_are_watched_no_longer_when_the_hub_ends_while_the_client_flushes() -> None:
    begun = asyncio.Event()

    class Flushing:
        def jsm(self, **_: object) -> "Flushing":
            return self

        async def stream_info(self, name: str) -> None:
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise nats.errors.TimeoutError

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(streams.keep_bounded(Flushing(), {}))  # type: ignore[arg-type]
        await begun.wait()
        watching.cancel()


async def test_the_hub_ends_where_a_connection_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    connected, close_it = asyncio.Event(), Client.close

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"nonce": "1"}\r\n')
        async for line in reader:
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            elif line.startswith(b"SUB $SYS"):
                connected.set()
        writer.close()

    async def close(client: Client) -> None:
        await close_it(client)
        raise ConnectionResetError

    monkeypatch.setattr(Client, "close", close)
    async with await asyncio.start_server(node, "127.0.0.1") as server, asyncio.timeout(10):
        url = "nats://{}:{}".format(*server.sockets[0].getsockname())
        access = NatsAccess((url,), hub_id=HUB_ID, key=KeyPair.generate(), present=lambda *_: None)
        async with open_nats(access, wait_s=0):
            await connected.wait()


async def test_what_ends_the_hub_is_no_group_of_errors() -> None:
    access = NatsAccess(
        ("nats://127.0.0.1:1",), hub_id=HUB_ID, key=KeyPair.generate(), present=lambda *_: None
    )
    with pytest.raises(StorageError, match="no connection is left"):
        async with open_nats(access, wait_s=0):
            raise StorageError("no connection is left")


async def test_the_hub_ends_during_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    greeted = asyncio.Event()

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"nonce": "1", "tls_required": true}\r\n')
        await reader.read(1)
        greeted.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(node, "127.0.0.1") as server, asyncio.timeout(10):
        url = "tls://{}:{}".format(*server.sockets[0].getsockname())
        access = NatsAccess((url,), hub_id=HUB_ID, key=KeyPair.generate(), present=lambda *_: None)
        async with open_nats(access, wait_s=0):
            await greeted.wait()
            monkeypatch.setattr(limits, "NATS_ANSWER_S", 0.1)


async def test_the_hub_goes_on_where_a_server_answers_what_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "NATS_RETRY_S", (0.01, 0.01))
    monkeypatch.setattr(limits, "NATS_RECONNECT_S", 0.01)
    monkeypatch.setattr(limits, "NATS_LOST_S", 0.03)
    opened = 0

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        # The client has no answer to the first, and never connects again after the error.
        writer.write(b"INFO\r\n" if opened == 1 else b'INFO {"nonce": "1"}\r\n')
        async for line in reader:
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            elif line.startswith(b"SUB $SYS") and opened < 4:
                writer.write(b"PONG\r\n-ERR 'Slow Consumer'\r\n")
        writer.close()

    async with await asyncio.start_server(node, "127.0.0.1") as server:
        url = "nats://{}:{}".format(*server.sockets[0].getsockname())
        access = NatsAccess((url,), hub_id=HUB_ID, key=KeyPair.generate(), present=lambda kind, name: None)
        async with open_nats(access, wait_s=0) as logins:
            await eventually(
                lambda: opened == 5 and logins.servers is not None and logins.servers.is_connected
            )
    assert "because of ValueError" in caplog.text
    assert "because of Disconnected" in caplog.text


async def test_the_streams_are_looked_at_again_after_an_error_that_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "NATS_STORE_LOOK_S", 0.01)
    tried = 0

    class Failing:
        def jsm(self, **_: object) -> "Failing":
            return self

        async def stream_info(self, name: str) -> None:
            nonlocal tried
            tried += 1
            raise OSError("the line is cut")

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(streams.keep_bounded(Failing(), {}))  # type: ignore[arg-type]
        await eventually(lambda: tried == 2)
        watching.cancel()
    assert "OSError: the line is cut" in caplog.text


class Servers:
    """Three nodes, of which one ends when it is asked first; what is asked last of each gets an answer."""

    is_closed = False

    def __init__(self) -> None:
        self.kicks: list[str] = []
        self.rounds: Counter[str] = Counter()

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _: str, *, cb: Callable[[Any], Awaitable[None]]) -> "Servers":
        self.told = cb
        return self

    async def unsubscribe(self) -> None: ...

    async def publish(self, subject: str, _: bytes, *, reply: str) -> None:
        what = subject.rpartition(".")[2]
        self.rounds[what] += 1
        first = self.rounds[what] == 1
        for name in "a" if first else "ac":
            routes = [{"name": each} for each in ("abc" if first else "ac") if each != name]
            said: dict[str, Any] = {"connections": [{"cid": 7, "authorized_user": "device/pc/old"}]}
            answer = (
                {"statsz": {"routes": routes, "active_servers": 4}} if what == "STATSZ" else {"data": said}
            )
            data = json.dumps({"server": {"name": name, "id": name.upper()}, **answer}).encode()
            await self.told(SimpleNamespace(data=data))

    async def request(self, subject: str, _: bytes, *, timeout: float) -> SimpleNamespace:
        self.kicks.append(subject)
        if self.kicks.count(subject) == 1:
            raise nats.errors.TimeoutError
        return SimpleNamespace(data=b"{}")


async def test_a_login_ends_on_each_node_that_is_left_though_questions_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "NATS_ASK_AGAIN_S", 0.01)
    logins = NatsLogins(NatsAccess((), hub_id=HUB_ID, key=KeyPair.generate(), present=lambda *_: None))
    logins.servers = servers = Servers()  # type: ignore[assignment]
    await logins.revoke(DEVICE, Revocation(tokens=["old"], before=now()))
    assert {subject: servers.kicks.count(subject) > 1 for subject in servers.kicks} == {
        "$SYS.REQ.SERVER.A.KICK": True,
        "$SYS.REQ.SERVER.C.KICK": True,
    }


async def test_a_node_that_answers_without_its_health_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NATS_ASK_AGAIN_S", 0.01)

    async def node(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id": "A", "server_name": "a"}\r\n')
        writer.close()

    async with await asyncio.start_server(node, "127.0.0.1") as server:
        url = "nats://{}:{}".format(*server.sockets[0].getsockname())
        logins = NatsLogins(
            NatsAccess((url,), hub_id=HUB_ID, key=KeyPair.generate(), present=lambda *_: None)
        )
        logins.servers = Servers()  # type: ignore[assignment]
        await logins.nodes()  # the first question is lost
        (found,) = await logins.nodes()
    assert (found.name, found.state, found.bus) == ("a", "serves", False)


async def test_an_address_whose_logins_are_refused_fills_neither_the_log_nor_the_hubs_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = KeyPair.generate()
    # On a busy machine three hundred logins take seconds, in which the address would get further ones.
    check, at = LoginCheck(HUB_ID, key.public, lambda _: False), 0.0
    callout = Callout(NatsKeys(key).issuer, check, clock=lambda: at)
    token = Bus("nats", "", key, None, "").token(DEVICE).get_secret_value()
    for _ in range(300):
        assert "error" in await asked(callout, "192.0.2.7", "\x1b[2J\n" + 1000 * "x", "bad")
    assert len(caplog.records) == 20
    assert len(caplog.records[0].getMessage()) < 400
    assert caplog.records[0].getMessage().isprintable()
    assert "error" in await asked(callout, "192.0.2.7", "pc", token)
    assert "jwt" in await asked(callout, "192.0.2.8", "pc", token)
    at += 1 / limits.NATS_REFUSALS[1]
    assert "jwt" in await asked(callout, "192.0.2.7", "pc", token)


async def asked(callout: Callout, host: str, user: str, password: str) -> dict[str, Any]:
    """Return what NATS is answered that asks about a login."""
    server, who = (nkeys.from_seed(nkeys.encode_seed(bytes(32), kind)) for kind in SERVER_AND_USER)
    nats = {
        "server_id": {"id": server.public_key.decode()},
        "user_nkey": who.public_key.decode(),
        "client_info": {"host": host, "mqtt_id": user},
        "connect_opts": {"user": user, "pass": password},
    }

    class Message:
        data = b"." + base64.urlsafe_b64encode(json.dumps({"nats": nats}).encode()) + b"."
        answer = b""

        async def respond(self, data: bytes) -> None:
            self.answer = data

    message = Message()
    await callout.answer(message)  # type: ignore[arg-type]
    body = message.answer.split(b".")[1]
    answer: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))["nats"]
    return answer


SERVER_AND_USER = (nkeys.PREFIX_BYTE_SERVER, nkeys.PREFIX_BYTE_USER)


async def test_a_node_goes_by_the_key_of_the_hub_without_its_database_and_makes_none_in_a_cluster(
    tmp_path: Path,
) -> None:
    home, cluster = Home(tmp_path), NodeOptions(nodes=("one.lan:6222",))
    with pytest.raises(ConfigError, match="there is neither") as refused:
        await node_keys(home, cluster)
    assert "Copy" in str(refused.value.hint)
    assert not home.hub.exists()
    (tmp_path / "strawberry.toml").write_text('[database]\nurl = "postgresql://nobody@/none?host=/none"\n')
    key = KeyPair.generate()
    home.hub.mkdir()
    key.save(home.hub / "key.pem")
    assert (await node_keys(home, cluster)).issuer == NatsKeys(key).issuer.public_key.decode()
    (home.hub / "key.pem").unlink()
    assert (await node_keys(home, cluster)).issuer == NatsKeys(key).issuer.public_key.decode()


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("one.lan,two lan", "'two lan' is not a node such as one.lan or one.lan:6222"),
        ("one.lan,two.lan,", "'' is not a node"),
        ("one.lan,two.lan:mqtt", "'mqtt' is not a port"),
        ("one.lan,one.lan:6222", "one node is no cluster"),
    ],
)
def test_a_list_of_nodes_with_a_mistake_is_refused(
    nodes: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["broker", "run", "--kind", "nats", "--cluster", nodes])
    assert f"--cluster: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["broker", "run", "--kind", "nats"], ["render", "nats"]])
def test_without_its_packages_one_line_says_what_to_install(words: list[str], tmp_path: Path) -> None:
    KeyPair.load_or_create(tmp_path / "hub" / "key.pem")
    script = "import sys; sys.modules['nkeys'] = None; from deploy.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, *words], env=environment_of(tmp_path), capture_output=True, text=True
    )
    told, hint = done.stderr.splitlines()
    assert (done.returncode, told) == (1, "strawberry: NATS is not installed")
    assert "[nats]" in hint


async def test_what_keeps_a_node_from_storing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "broker.process")
    full = "[ERR] write error: no space left on device"
    program = (
        f"import sys, time; print({full!r}, {full!r}, 'told', sep='\\n', file=sys.stderr); time.sleep(60)"
    )
    command = [sys.executable, "-c", program]
    node = BrokerProcess("NATS", command, (), errors=(), tells=("no space left",))
    async with node.running():
        await eventually(lambda: "told" in caplog.text)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == [
        f"NATS: {full}"
    ]


async def test_errors_that_take_turns_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    note = error_log()
    for number in range(10):
        await note(OSError(f"node {number % 2} is away"))
    assert len(caplog.records) == 2
