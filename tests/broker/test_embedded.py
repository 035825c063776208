"""Logging in, rights, where it listens and how it stops, as clients of the embedded broker see it."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import paho.mqtt.client as paho
import pytest

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from bus.ports import listen, port_owner
from contracts import topics
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError
from identity import tokens
from identity.keys import KeyPair
from identity.logins.proofs import login_password
from tests.broker.embedded_world import (
    HUB,
    QUICK_S,
    Client,
    House,
    Socket,
    code_for,
    connect_packet,
    embedded_house,
    expect_retained,
)
from tests.proofs import bus_password


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with embedded_house(tmp_path) as house:
        yield house


# ---- logging in


@pytest.mark.parametrize(
    ("kind", "client_id", "code"),
    [
        ("device", "pc", 0),
        ("device", "pc-2", 5),
        ("device", "tv", 5),
        ("hub", "pc", 0),
        ("hub", "pc-agent", 0),
        ("client", "pc-explorer", 0),
        ("client", "pcx", 5),
        ("user", "pc-phone.1", 0),
        ("user", "pc-", 5),
        ("user", "pc-a/b", 5),
    ],
)
async def test_the_client_id_is_the_name_and_for_all_but_devices_a_suffix(
    house: House, kind: str, client_id: str, code: int
) -> None:
    assert await code_for(house, "pc", house.token("pc", kind), client_id) == code  # type: ignore[arg-type]


async def test_a_device_logs_in_with_its_token_and_a_new_proof_of_its_key_each_time(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    key, other = KeyPair.generate(), KeyPair.generate()
    claims = tokens.make_claims(
        hub_id=HUB, subject="pc", kind="device", owner="anna", scopes=(), lifetime_s=60, key=key.public
    )
    token = tokens.issue(house.key, claims)
    good = bus_password(HUB, "pc", key, token)
    used = good().get_secret_value()
    assert await code_for(house, "pc", used) == 0
    stale = login_password(key, token=token, hub_id=HUB, client_id="pc", now=time.time() - 120)
    for refused in (
        used,
        token,
        f"{token}~",
        f"{token}~{token}",
        bus_password(HUB, "pc", other, token)().get_secret_value(),
        bus_password("another", "pc", key, token)().get_secret_value(),
        bus_password(HUB, "tv", key, token)().get_secret_value(),
        stale,
    ):
        assert await code_for(house, "pc", refused) == 5
    assert await code_for(house, "pc", good().get_secret_value()) == 0
    # Nothing that a device chooses is in the log, or it could have a line for each attempt.
    assert "refused 127.0.0.1: the proof is for another request\n" in caplog.text


async def test_a_client_without_an_id_is_given_one(house: House) -> None:
    first = await house.client("anna", "user", client_id="")
    second = await house.client("anna", "user", client_id="")
    assert house.broker.clients == 2
    for client in (first, second):
        assert not client.left.is_set()


def _false_token(house: House, kind: str) -> str:
    """A token that is wrong in one way and right in every other."""

    def claims(**changes: Any) -> dict[str, Any]:
        # Of the kind with the most rights: what would be gained by it.
        made = tokens.make_claims(
            hub_id=HUB, subject="pc", kind="hub", owner="", scopes=("register",), lifetime_s=60
        )
        return {**made.model_dump(exclude_none=True), **changes}

    def signed(**changes: Any) -> str:
        return jwt.encode(claims(**changes), house.key.for_tokens, algorithm="EdDSA")

    header, payload, signature = signed().split(".")
    match kind:
        case "expired":
            return signed(iat=int(time.time()) - 120, exp=int(time.time()) - 60)
        case "other audience":
            return signed(aud="another")
        case "other hub":
            return signed(iss="home-2")
        case "other key":
            return jwt.encode(claims(), KeyPair.generate().for_tokens, algorithm="EdDSA")
        case "tampered":
            return f"{header}.{signed(exp=int(time.time()) + 10**6).split('.')[1]}.{signature}"
        case "no algorithm":
            return jwt.encode(claims(), None, algorithm="none")
        case "no algorithm but a signature":
            return f"{jwt.encode(claims(), None, algorithm='none').split('.')[0]}.{payload}.{signature}"
        case "public key as a secret":
            # The classic way to fool a verifier that takes any algorithm.
            return jwt.encode(claims(), house.key.public.raw, algorithm="HS256")
        case "no token":
            return ""
        case "nonsense":
            return "nonsense"
        case "endless":
            return "x" * 60_000
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "expired",
        "revoked",
        "other audience",
        "other hub",
        "other key",
        "tampered",
        "no algorithm",
        "no algorithm but a signature",
        "public key as a secret",
        "no token",
        "nonsense",
        "endless",
    ],
)
async def test_nobody_logs_in_with_a_token_that_is_not_good(house: House, kind: str) -> None:
    if kind == "revoked":
        false = house.token("pc", "hub")
        gone = tokens.verify(false, key=house.key.public, hub_id=HUB, audience="mqtt").jti
        hub = await house.client("main", "hub")
        await hub.publish(
            topics.BROKER_CONTROL.build(),
            Revocation(tokens=[gone], before=datetime.now(UTC)).model_dump_json().encode(),
        )
        await hub.stop()
        await hub.gone()
    else:
        false = _false_token(house, kind)
    before = house.broker.clients
    assert await code_for(house, "pc", false) == 5
    assert house.broker.clients == before
    assert await code_for(house, "pc", house.token("pc")) == 0


async def test_the_same_name_of_another_kind_does_not_take_the_place_of_a_device(house: House) -> None:
    device = await house.client("pc")
    await house.client("pc", "client")
    assert house.broker.clients == 2
    assert not device.left.is_set()


async def test_a_client_of_another_version_is_told_so_at_once(house: House) -> None:
    for level in (3, 5):
        socket = await house.open()
        socket.send(connect_packet("pc", house.token("pc"), level=level))
        assert await socket.receive(4) == b"\x20\x02\x00\x01"
        assert await socket.ended()
        await socket.close()
    modern = Client("pc", house.token("pc"), protocol=paho.MQTTv5)
    assert await modern.connect(house.port) == 132  # unsupported protocol version
    await modern.stop()


async def test_a_will_on_a_foreign_topic_is_refused_with_the_login(house: House) -> None:
    socket = await house.open()
    socket.send(connect_packet("pc", house.token("pc"), will=("devices/tv/status", b"offline")))
    assert await socket.receive(4) == b"\x20\x02\x00\x05"
    await socket.close()


async def test_a_token_that_expires_ends_its_connection_with_the_will(house: House) -> None:
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/#")
    for lifetime_s in (1, 4, 16):
        device = await house.open()
        token = house.token("pc", lifetime_s=lifetime_s)
        device.send(connect_packet("pc", token, will=("devices/pc/status", b"offline")))
        # On a machine that stands still it may have expired before.
        if await device.receive(4) == b"\x20\x02\x00\x00":
            break
    assert (await hub.next()).payload == b"offline"
    assert await device.ended()


# ---- rights


async def test_a_device_publishes_only_what_is_its_own_and_stays_connected(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/#")
    device = await house.client("pc")
    for topic in ("devices/tv/status", "hub/main/status", "devices/pc/calls/Light/on", "$SYS/x", "other"):
        await device.publish(topic, b"forged", retain=True)
    await device.publish(topics.BROKER_CONTROL.template, b"{}")
    await device.publish("devices/pc/status", b"mine")
    assert (await hub.next()).payload == b"mine"
    assert "refused device pc: it may not publish on this topic: 'devices/tv/status'" in caplog.text
    assert caplog.text.count("may not publish") == 1


async def test_a_subscription_must_lie_within_the_rights(house: House) -> None:
    device = await house.client("pc")
    allowed = ("devices/pc/calls/+/+", "devices/pc/calls/Light/on", "hub/+/status", "devices/pc/status")
    refused = (
        "#",
        "+/pc/status",
        "devices/+/status",
        "devices/pc/#",
        "$SYS/#",
        "$CONTROL/#",
        "devices/pc/results/+/+",
    )
    assert [await device.subscribe(each) for each in allowed] == [1] * len(allowed)
    assert [await device.subscribe(each) for each in refused] == [0x80] * len(refused)


async def test_overlapping_subscriptions_give_one_message(house: House) -> None:
    hub = await house.client("main", "hub")
    for filter_ in ("devices/#", "devices/+/status", "devices/pc/status"):
        await hub.subscribe(filter_)
    await hub.publish("devices/pc/status", b"once")
    await hub.publish("hub/x/status", b"")
    await hub.subscribe("hub/#")
    await hub.publish("hub/x/status", b"end")
    assert len(await hub.until("hub/x/status", b"end")) == 2


async def test_unsubscribing_ends_the_messages(house: House) -> None:
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/+/status")
    await hub.subscribe("hub/#")
    hub.paho.unsubscribe("devices/+/status")
    await hub.publish("devices/pc/status", b"late")
    await hub.publish("hub/main/status", b"end")
    assert (await hub.next()).payload == b"end"


async def test_a_message_of_every_qos_arrives_once(house: House) -> None:
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/#", 2)
    device = await house.client("pc")
    for qos in (0, 1, 2):
        await device.publish("devices/pc/events/x", str(qos).encode(), qos=qos)
    assert [(m.payload, m.qos) for m in [await hub.next() for _ in range(3)]] == [
        (b"0", 0),
        (b"1", 1),
        (b"2", 1),
    ]


# ---- where it listens


async def test_a_busy_port_is_an_error_that_names_who_has_it(tmp_path: Path, house: House) -> None:
    with pytest.raises(ConfigError) as caught:
        async with open_embedded(
            EmbeddedSettings(
                data_dir=tmp_path / "2",
                hub_id=HUB,
                hub_key=house.key.public,
                listeners=(Listener(port=house.port),),
            )
        ):
            pass
    assert f"MQTT on 127.0.0.1 port {house.port}" in caught.value.message
    assert f"(pid {os.getpid()})" in caught.value.message
    assert "another port" in caught.value.hint


def test_a_port_that_nobody_has_has_no_owner() -> None:
    with listen("127.0.0.1", 0, purpose="a test") as sock:
        port = sock.getsockname()[1]
    assert port_owner(port) is None


# ---- how it behaves


async def test_no_token_appears_in_any_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with embedded_house(tmp_path) as house:
        good, bad = house.token("pc"), house.token("tv", lifetime_s=-60)
        assert await code_for(house, "pc", good) == 0
        assert await code_for(house, "tv", bad) == 5
        assert await code_for(house, "pc", "a-password-of-somebody") == 5
    assert "broker started at" in caplog.text
    for secret in (good, bad, "a-password-of-somebody"):
        for part in (
            secret,
            secret[-20:],
            secret.encode().hex(),
            " ".join(f"{b:02x}" for b in secret[:9].encode()),
        ):
            assert part not in caplog.text


async def test_nothing_is_left_of_a_broker_that_was_stopped(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with embedded_house(tmp_path) as house:
        idle = await Socket.open(house.port)
        device = await Socket.open(house.port)
        will = ("devices/pc/heartbeat", b"offline")
        device.send(connect_packet("pc", house.token("pc"), will=will) + b"\xc0\x00")
        assert await device.receive(6) == b"\x20\x02\x00\x00\xd0\x00"
    assert asyncio.all_tasks() == before
    for each in (idle, device):
        assert await each.ended()
        await each.close()


async def test_the_wills_of_all_are_retained_when_the_broker_stops(tmp_path: Path) -> None:
    key = KeyPair.generate()
    for number in range(10):  # the last one is stored just before the end, or it is not
        expected = {"devices/pc/status": b"offline %d" % number}
        async with embedded_house(tmp_path, key=key) as house:
            device = Client("pc", house.token("pc"))
            device.paho.will_set("devices/pc/status", expected["devices/pc/status"], 1, retain=True)
            assert await device.connect(house.port) == 0
            await device.publish("devices/pc/status", b"online", retain=True)
        await device.gone()
        await device.stop()
        async with embedded_house(tmp_path, key=key) as again:
            await expect_retained(await again.client("main", "hub"), expected)


async def test_an_error_of_the_caller_comes_through_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with embedded_house(tmp_path):
            raise LookupError("mine")


async def test_cancelling_the_caller_stops_the_broker(tmp_path: Path) -> None:
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with embedded_house(tmp_path) as house:
            started.set_result(house.port)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run())
        port = await asyncio.wait_for(started, QUICK_S)
        task.cancel()
    with pytest.raises(OSError):
        await Socket.open(port)
