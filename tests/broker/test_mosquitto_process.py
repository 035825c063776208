import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import psutil
import pytest
from pydantic import SecretStr

from broker import process
from broker.mosquitto.config import MosquittoListener
from broker.mosquitto.own_logins import admin_login, hub_login
from broker.mosquitto.process import MosquittoSettings, RunningMosquitto, open_mosquitto
from broker.mosquitto.provisioning import open_security, provision
from broker.probe import ProbeLogin, open_probe
from bus.link import Link, LinkSettings, Message, open_link
from contracts import topics
from contracts.errors import ConfigError, Disconnected, PortTaken
from identity.certificates import Authority, ServerCertificate
from identity.keys import KeyPair
from tests.mosquitto import HINT, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

KEY = KeyPair.generate()
STATUS = topics.STATUS.build(device="lamp_pi")


@pytest.fixture(autouse=True)
def _installed() -> None:
    require(find_mosquitto() is not None, HINT)


@pytest.fixture
def settings(tmp_path: Path) -> MosquittoSettings:
    listeners = (MosquittoListener(port=free_port()),)
    return MosquittoSettings(data_dir=tmp_path / "broker", hub_id="home-1", key=KEY, listeners=listeners)


@asynccontextmanager
async def hub_link(broker: RunningMosquitto, key: KeyPair = KEY) -> AsyncIterator[Link]:
    login = hub_login(key, "main")
    password = SecretStr(login.password or "")
    quick = {"backoff_s": 0.02, "backoff_max_s": 0.1, "refused_s": 0.1}
    link_settings = LinkSettings(
        urls=(broker.url,),
        client_id="hub",
        username=login.username,
        password=password,
        **quick,  # type: ignore[arg-type]
    )
    async with open_link(link_settings) as link:
        yield link


async def retained_status(link: Link) -> bytes:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    unsubscribe = await link.subscribe(topics.STATUS.filter(), inbox.put_nowait)
    message = await asyncio.wait_for(inbox.get(), 30)
    await unsubscribe()
    return message.payload


async def test_the_hub_can_log_in_as_soon_as_it_is_entered_and_nobody_else_can(
    settings: MosquittoSettings,
) -> None:
    async with open_mosquitto(settings) as broker:
        async with hub_link(broker) as link:
            await link.publish(STATUS, b"x", confirmed=True)
        async with open_probe(ProbeLogin(broker.url, "nobody")) as nobody:
            assert not nobody.accepted


async def test_it_is_over_with_the_context(settings: MosquittoSettings) -> None:
    async with open_mosquitto(settings) as broker:
        pid = broker.pid
        assert pid is not None
        assert psutil.Process(pid).name() == "mosquitto"
    assert not psutil.pid_exists(pid)


async def test_what_is_retained_and_who_was_let_in_outlive_a_restart(settings: MosquittoSettings) -> None:
    async with open_mosquitto(settings) as broker, hub_link(broker) as link:
        await link.publish(STATUS, b"kept", retain=True, confirmed=True)
    async with open_mosquitto(settings) as broker, hub_link(broker) as link:
        assert await retained_status(link) == b"kept"


async def test_it_is_started_again_on_the_same_ports_when_it_is_killed(
    settings: MosquittoSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_mosquitto(settings) as broker, hub_link(broker) as link:
        pid, ports = broker.pid, broker.ports
        assert pid is not None
        back = asyncio.Event()

        async def connected() -> None:
            back.set()

        link.on_connected(connected)
        os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(back.wait(), 60)
        assert broker.pid != pid
        assert broker.ports == ports
    assert "Mosquitto ended and is started again in 0.2 s: by SIGKILL" in caplog.text


@pytest.mark.slow
async def test_one_that_is_frozen_is_ended_all_the_same(settings: MosquittoSettings) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60), open_mosquitto(settings) as broker:
            pid = broker.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
    assert not psutil.pid_exists(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the limit is left alone")
async def test_it_may_hold_more_connections_than_a_system_gives_by_itself(
    settings: MosquittoSettings,
) -> None:
    async with open_mosquitto(settings) as broker:
        allowed, most = psutil.Process(broker.pid).rlimit(psutil.RLIMIT_NOFILE)
    assert allowed == min(8192, most)


async def test_a_taken_port_names_who_has_it(settings: MosquittoSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = replace(settings, listeners=(MosquittoListener(port=port),))
        with pytest.raises(PortTaken, match=rf"port {port}: it is in use by .*pid {os.getpid()}"):
            async with open_mosquitto(taken):
                pass


async def test_one_that_does_not_start_says_why(settings: MosquittoSettings, tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_text("not a library")
    with pytest.raises(ConfigError, match=r"does not start: .*broken\.so"):
        async with open_mosquitto(replace(settings, plugin=broken)):
            pass


async def test_a_program_that_the_system_does_not_start_is_told_as_well(
    settings: MosquittoSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "tied", lambda *_, **__: [str(tmp_path / "away")])
    with pytest.raises(ConfigError, match=r"does not start: .*No such file"):
        async with open_mosquitto(settings):
            pass


async def test_an_error_of_the_body_comes_out_as_it_is(settings: MosquittoSettings) -> None:
    with pytest.raises(KeyError):
        async with open_mosquitto(settings):
            raise KeyError


async def test_the_first_listener_has_to_be_one_that_our_programs_can_use(
    settings: MosquittoSettings, certificate: ServerCertificate
) -> None:
    for first in (MosquittoListener(transport="websocket"), MosquittoListener(tls=certificate)):
        with pytest.raises(ConfigError, match="first listener"):
            async with open_mosquitto(replace(settings, listeners=(first,))):
                pass
    everywhere = MosquittoListener(host="0.0.0.0", port=free_port(), insecure=True)
    async with open_mosquitto(replace(settings, listeners=(everywhere,))) as broker, hub_link(broker):
        assert broker.url.startswith("mqtt://127.0.0.1:")


async def test_its_files_are_for_the_owner_only_and_hold_no_password(settings: MosquittoSettings) -> None:
    async with open_mosquitto(settings) as broker:
        pid = broker.pid
        command = " ".join(psutil.Process(pid).cmdline())
    files = list(settings.data_dir.iterdir())
    assert {each.name for each in files} >= {"mosquitto.conf", "dynsec.json"}
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
    for secret in (hub_login(KEY, "main").password, admin_login(KEY).password):
        assert secret is not None
        assert secret not in command
        assert all(secret.encode() not in each.read_bytes() for each in files)


async def test_a_hub_with_a_new_key_still_rules_its_broker(settings: MosquittoSettings) -> None:
    async with open_mosquitto(settings):
        pass
    new = KeyPair.generate()
    async with open_mosquitto(replace(settings, key=new)) as broker:
        async with hub_link(broker, new) as link:
            await link.publish(STATUS, b"x", confirmed=True)
        async with open_probe(
            ProbeLogin(
                broker.url, "old", admin_login(KEY).username, SecretStr(admin_login(KEY).password or "")
            )
        ) as old:
            assert not old.accepted


async def test_a_broken_file_of_logins_is_put_aside_and_made_anew(
    settings: MosquittoSettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / "dynsec.json").write_text('{"clients": [')
    async with open_mosquitto(settings) as broker, open_security(broker.url, hub_login(KEY, "main")):
        pass
    assert (settings.data_dir / "dynsec.broken").exists()
    assert "all logins are added again" in caplog.text


@pytest.fixture
def certificate(tmp_path: Path) -> ServerCertificate:
    authority = Authority.load_or_create(tmp_path / "certs")
    return authority.issue(["localhost"], ["127.0.0.1"], directory=tmp_path / "certs")


async def test_others_connect_by_tls_and_by_websocket(
    settings: MosquittoSettings, certificate: ServerCertificate, tmp_path: Path
) -> None:
    listeners = (
        MosquittoListener(port=free_port()),
        MosquittoListener(host="0.0.0.0", port=free_port(), tls=certificate),
        MosquittoListener(host="0.0.0.0", port=free_port(), transport="websocket", tls=certificate),
        MosquittoListener(port=free_port(), transport="websocket"),
    )
    login = hub_login(KEY, "main")
    ca = Authority.load_or_create(tmp_path / "certs").pem
    async with open_mosquitto(replace(settings, listeners=listeners)) as broker:
        for scheme, port in zip(("mqtt", "mqtts", "wss", "ws"), broker.ports, strict=True):
            known = ProbeLogin(
                f"{scheme}://127.0.0.1:{port}",
                "hub",
                login.username,
                SecretStr(login.password or ""),
                ca=ca,
            )
            async with open_probe(known) as probe:
                assert probe.accepted, scheme
                assert await probe.subscribe("devices/#")
            if scheme in ("mqtts", "wss"):
                with pytest.raises(Disconnected):
                    async with open_probe(replace(known, ca=None)):
                        pass


async def test_it_can_be_provisioned_over_tls_by_who_trusts_its_authority(
    settings: MosquittoSettings, certificate: ServerCertificate, tmp_path: Path
) -> None:
    listeners = (MosquittoListener(port=free_port()), MosquittoListener(port=free_port(), tls=certificate))
    ca = Authority.load_or_create(tmp_path / "certs").pem
    async with open_mosquitto(replace(settings, listeners=listeners)) as broker:
        url, admin = f"mqtts://localhost:{broker.ports[1]}", admin_login(KEY)
        done = await provision(url, admin, ca=ca, hub_id="home-1", key=KEY, instance="second")
        assert done.changed
        async with open_security(url, hub_login(KEY, "second"), ca=ca) as security:
            assert "strawberry-hub-second" in (await security.read()).clients
        with pytest.raises(Disconnected, match="authority that is not trusted"):
            await provision(url, admin, hub_id="home-1", key=KEY)


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
async def test_what_is_for_this_machine_listens_nowhere_else(
    settings: MosquittoSettings, transport: Literal["tcp", "websocket"]
) -> None:
    listeners = (
        MosquittoListener(port=free_port()),
        MosquittoListener(port=free_port(), transport=transport),
    )
    async with open_mosquitto(replace(settings, listeners=listeners)) as broker:
        listening = psutil.Process(broker.pid).net_connections("tcp")
        hosts = {each.laddr.ip for each in listening if each.status == psutil.CONN_LISTEN}
    assert hosts == {"127.0.0.1"}


async def test_every_address_of_the_machine_means_both_kinds(settings: MosquittoSettings) -> None:
    everywhere = MosquittoListener(host="::", port=free_port(), insecure=True)
    async with open_mosquitto(replace(settings, listeners=(everywhere,))) as broker:
        listening = psutil.Process(broker.pid).net_connections("tcp")
        hosts = {each.laddr.ip for each in listening if each.status == psutil.CONN_LISTEN}
    assert "0.0.0.0" in hosts
    assert hosts <= {"0.0.0.0", "::"}


def _shown(port: int) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as encrypted:
        return encrypted.getpeercert(binary_form=True) or b""


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
async def test_a_renewed_certificate_is_shown_once_it_was_reloaded(
    settings: MosquittoSettings, certificate: ServerCertificate, tmp_path: Path, transport: str
) -> None:
    lan = MosquittoListener(port=free_port(), transport=transport, tls=certificate)  # type: ignore[arg-type]
    async with open_mosquitto(
        replace(settings, listeners=(MosquittoListener(port=free_port()), lan))
    ) as broker:
        before = await asyncio.to_thread(_shown, broker.ports[1])
        lost = asyncio.Event()
        async with hub_link(broker) as link:
            link.on_disconnected(lost.set)
            authority = Authority.load_or_create(tmp_path / "certs")
            authority.issue(["localhost", "hub.local"], ["127.0.0.1"], directory=tmp_path / "certs")
            broker.reload_certificates()
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(OSError):
                        if await asyncio.to_thread(_shown, broker.ports[1]) != before:
                            break
            # Who is connected stays so, where the broker lets it.
            if transport == "websocket":
                await asyncio.wait_for(lost.wait(), 30)
            assert lost.is_set() == (transport == "websocket")


async def test_what_it_says_is_in_the_debug_log(
    settings: MosquittoSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "broker.process")
    async with open_mosquitto(settings):
        pass
    assert "Mosquitto: " in caplog.text
