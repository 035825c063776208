"""What the embedded broker remembers: revocations, retained messages, wills."""

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest

from contracts import topics
from contracts.claims import Claims
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError
from identity import tokens
from identity.keys import KeyPair
from tests.broker.embedded_world import (
    HUB,
    Client,
    House,
    code_for,
    connect_packet,
    embedded_house,
    expect_retained,
)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with embedded_house(tmp_path) as house:
        yield house


# ---- revoking


def revocation(**what: Any) -> bytes:
    return Revocation(before=datetime.now(UTC), **what).model_dump_json().encode()


async def test_the_hub_revokes_a_token_and_its_session_ends_at_once_with_the_will(tmp_path: Path) -> None:
    async with embedded_house(tmp_path) as house:
        hub = await house.client("main", "hub")
        await hub.subscribe("devices/#")
        await hub.subscribe("#")
        token, other = house.token("pc"), house.token("pc")
        device = await house.open()
        device.send(connect_packet("pc", token, will=("devices/pc/status", b"offline")))
        await device.receive(4)
        bystander = await house.client("tv")
        jti = jwt.decode(token, options={"verify_signature": False})["jti"]
        await hub.publish(topics.BROKER_CONTROL.template, revocation(tokens=[jti]), retain=True)
        assert await device.ended()
        await device.close()
        assert (await hub.next()).payload == b"offline"
        assert await code_for(house, "pc", token) == 5
        assert await code_for(house, "pc", other) == 0
        assert not bystander.left.is_set()
        assert hub.inbox.empty()
        file = tmp_path / "revoked.json"
        assert jti in json.loads(file.read_text())["tokens"]
        if os.name == "posix":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with embedded_house(tmp_path, key=house.key) as again:
        assert await code_for(again, "pc", token) == 5
        assert await code_for(again, "pc", other) == 0


async def test_a_principal_that_is_given_one_token_may_use_no_other(house: House) -> None:
    hub = await house.client("main", "hub")
    device = await house.client("pc")
    token, other = house.token("pc"), house.token("pc")
    jti = jwt.decode(token, options={"verify_signature": False})["jti"]
    await hub.publish(topics.BROKER_CONTROL.template, revocation(only={"device/pc": jti}))
    await device.gone()
    assert await code_for(house, "pc", other) == 5
    assert await code_for(house, "pc", token) == 0
    await hub.publish(topics.BROKER_CONTROL.template, revocation(only={"device/pc": ""}))
    assert await code_for(house, "pc", token) == 5


async def test_only_the_hub_revokes(house: House) -> None:
    victim = await house.client("tv")
    for name, kind in (("pc", "device"), ("anna", "user"), ("explorer", "client")):
        client = await house.client(name, kind, scopes=("register", "chat", "call"))  # type: ignore[arg-type]
        await client.publish(topics.BROKER_CONTROL.template, revocation(only={"device/tv": ""}))
    assert await code_for(house, "tv2", house.token("tv2")) == 0
    assert not victim.left.is_set()


async def test_a_revocation_that_cannot_be_understood_changes_nothing(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    hub = await house.client("main", "hub")
    await hub.publish(topics.BROKER_CONTROL.template, b"{")
    assert "refused hub main: it is no valid JSON" in caplog.text


async def test_a_broken_file_of_revocations_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "revoked.json").write_text("{")
    with pytest.raises(ConfigError, match=r"revoked\.json cannot be read"):
        async with embedded_house(tmp_path):
            pass


# ---- retained


async def test_what_is_retained_outlives_a_restart_and_what_was_emptied_does_not(tmp_path: Path) -> None:
    async with embedded_house(tmp_path) as house:
        device = await house.client("pc")
        await device.publish("devices/pc/status", b"old", retain=True)
        await device.publish("devices/pc/status", b"online", retain=True)
        await device.publish("devices/pc/skills/Light", b"gone", retain=True)
        await device.publish("devices/pc/skills/Light", b"", retain=True)
    async with embedded_house(tmp_path, key=house.key) as again:
        hub = await again.client("main", "hub")
        await expect_retained(hub, {"devices/pc/status": b"online"})


BROKER_PROCESS = """
import asyncio, sys
from pathlib import Path
from typing import Any
from broker.embedded.opening import EmbeddedBroker, EmbeddedSettings, Listener, open_embedded
from identity import tokens
from identity.keys import KeyPair

async def main(directory):
    key = KeyPair.load(directory / "key.pem").public
    listeners = (Listener(port=0),)
    settings = EmbeddedSettings(data_dir=directory, hub_id="home-1", hub_key=key, listeners=listeners)
    async with open_embedded(settings) as broker:
        print(broker.port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
async def test_an_acknowledged_retained_message_outlives_the_kill_of_the_process(tmp_path: Path) -> None:
    key = KeyPair.generate()
    key.save(tmp_path / "key.pem")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BROKER_PROCESS, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await asyncio.wait_for(process.stdout.readline(), 30))
    remote = Client("pc", tokens.issue(key, device_claims("pc")))
    assert await remote.connect(port) == 0
    expected = {f"devices/pc/skills/Skill{number}": b"%d" % number for number in range(100)}
    await asyncio.gather(
        *(remote.publish(topic, payload, retain=True) for topic, payload in expected.items())
    )
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await remote.gone()
    await remote.stop()
    async with embedded_house(tmp_path, key=key) as again:
        await expect_retained(await again.client("main", "hub"), expected)


def device_claims(name: str) -> Claims:
    return tokens.make_claims(hub_id=HUB, subject=name, kind="device", owner="", scopes=(), lifetime_s=600)


async def test_a_file_of_retained_messages_that_is_broken_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "retained.db").write_bytes(b"no database" * 1000)
    async with embedded_house(tmp_path) as house:
        device = await house.client("pc")
        await device.publish("devices/pc/status", b"online", retain=True)
    assert "put aside" in caplog.text
    assert (tmp_path / "retained.broken").exists()
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "retained.db").stat().st_mode) == 0o600


async def test_the_will_comes_when_a_connection_breaks_and_not_when_its_client_leaves(house: House) -> None:
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/#")
    polite = await house.socket("tv", will=("devices/tv/status", b"offline"))
    polite.send(b"\xe0\x00")
    assert await polite.ended()
    await polite.close()
    broken = await house.socket("pc", will=("devices/pc/status", b"offline"))
    await broken.close()
    assert (await hub.next()).topic == "devices/pc/status"


async def test_a_take_over_publishes_the_will_of_the_older_connection_first(house: House) -> None:
    hub = await house.client("main", "hub")
    await hub.subscribe("devices/#")
    older = await house.socket("pc", will=("devices/pc/status", b"1 offline"))
    newer = await house.client("pc")
    await newer.publish("devices/pc/status", b"2 online")
    assert [(await hub.next()).payload for _ in range(2)] == [b"1 offline", b"2 online"]
    await older.close()
