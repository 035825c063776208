"""Letting in and shutting out on a real Mosquitto, with strangers' clients beside."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr

from broker.logins import BusLogin
from broker.mosquitto.commands import (
    Acl,
    ChangeClient,
    CreateClient,
    RoleUse,
    SetRole,
)
from broker.mosquitto.config import MosquittoListener
from broker.mosquitto.dynsec import DynamicSecurity
from broker.mosquitto.logins import MosquittoLogins
from broker.mosquitto.own_logins import hub_login
from broker.mosquitto.process import MosquittoSettings, RunningMosquitto, open_mosquitto
from broker.probe import Probe, ProbeLogin, open_probe
from bus.link import LinkSettings, open_link
from contracts import topics
from contracts.access import Principal
from contracts.devices.presence import Revocation
from contracts.errors import Conflict, Disconnected, LinkError, NotFound
from identity.keys import KeyPair
from tests.mosquitto import HINT, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

KEY = KeyPair.generate()
LAMP = Principal("device", "lamp_pi", "anna")
LOCK = Principal("device", "lock_pi", "anna")
EXPLORER = Principal("client", "explorer", "anna")
NOTHING = Revocation(before=datetime.now(UTC))
EVENT = topics.EVENT.build(device="lamp_pi", name="pressed")


def login(principal: Principal, token: str = "token", *, expires_in_s: int = 600) -> BusLogin:
    return BusLogin(principal, SecretStr(token), int(time.time()) + expires_in_s)


@dataclass
class World:
    broker: RunningMosquitto
    security: DynamicSecurity
    logins: MosquittoLogins

    @asynccontextmanager
    async def log_in(self, name: str, token: str = "token") -> AsyncIterator[Probe]:
        async with open_probe(ProbeLogin(self.broker.url, name, name, SecretStr(token))) as probe:
            yield probe

    async def gets_in(self, name: str, token: str = "token") -> bool:
        async with self.log_in(name, token) as probe:
            return probe.accepted


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    require(find_mosquitto() is not None, HINT)
    settings = MosquittoSettings(
        data_dir=tmp_path, hub_id="home-1", key=KEY, listeners=(MosquittoListener(port=free_port()),)
    )
    hub = hub_login(KEY, "main")
    async with open_mosquitto(settings) as broker:
        password = SecretStr(hub.password or "")
        link_settings = LinkSettings(
            urls=(broker.url,), client_id="hub", username=hub.username, password=password, backoff_s=0.02
        )
        async with open_link(link_settings) as link, DynamicSecurity(link) as security:
            yield World(broker, security, MosquittoLogins(security))


async def test_who_is_let_in_logs_in_with_the_token_and_with_nothing_else(world: World) -> None:
    await world.logins.allow(login(LAMP, "the token"))
    assert await world.gets_in("lamp_pi", "the token")
    assert not await world.gets_in("lamp_pi", "another token")


async def test_letting_in_again_with_the_same_token_disconnects_nobody(world: World) -> None:
    await world.logins.allow(login(LAMP))
    async with world.log_in("lamp_pi") as lamp:
        await world.logins.allow(login(LAMP))
        await world.logins.sync([login(LAMP)], NOTHING)
        assert await lamp.publish(EVENT, b"still here")
        assert not lamp.gone.is_set()


async def test_a_new_token_ends_the_old_one_and_its_connection(world: World) -> None:
    await world.logins.allow(login(LAMP, "old"))
    async with world.log_in("lamp_pi", "old") as lamp:
        await world.logins.allow(login(LAMP, "new"))
        await asyncio.wait_for(lamp.gone.wait(), 30)
    assert not await world.gets_in("lamp_pi", "old")
    assert await world.gets_in("lamp_pi", "new")


async def test_who_is_shut_out_is_disconnected_and_cannot_come_back(world: World) -> None:
    await world.logins.allow(login(LAMP))
    await world.logins.allow(login(LOCK))
    async with world.log_in("lamp_pi") as lamp, world.log_in("lock_pi") as lock:
        await world.logins.revoke(LAMP, NOTHING)
        await asyncio.wait_for(lamp.gone.wait(), 30)
        assert not await world.gets_in("lamp_pi")
        assert await lock.publish(topics.EVENT.build(device="lock_pi", name="x"), b"not concerned")
    await world.logins.revoke(LAMP, NOTHING)


async def test_who_was_shut_out_can_be_let_in_again(world: World) -> None:
    await world.logins.allow(login(LAMP))
    await world.logins.revoke(LAMP, NOTHING)
    await world.logins.allow(login(LAMP))
    assert await world.gets_in("lamp_pi")


async def test_shutting_out_one_who_never_was_in_does_nothing(world: World) -> None:
    await world.logins.revoke(LAMP, NOTHING)
    assert "lamp_pi" not in (await world.security.read()).clients


async def test_settling_lets_in_who_is_missing_and_shuts_out_who_should_not_be_there(world: World) -> None:
    await world.logins.allow(login(LAMP))
    await world.logins.allow(login(EXPLORER))
    async with world.log_in("lamp_pi") as lamp, world.log_in("explorer") as explorer:
        await world.logins.sync([login(LAMP), login(LOCK)], NOTHING)
        await asyncio.wait_for(explorer.gone.wait(), 30)
        assert not lamp.gone.is_set()
    assert await world.gets_in("lock_pi")
    assert not await world.gets_in("explorer")
    state = await world.security.read()
    assert state.clients.keys() == {"strawberry-admin", "strawberry-hub-main", "lamp_pi", "lock_pi"}
    assert not any("explorer" in name for name in state.roles)


async def test_settling_mends_what_was_changed_by_hand(world: World) -> None:
    await world.logins.sync([login(LAMP), login(LOCK), login(EXPLORER)], NOTHING)
    before = await world.security.read()
    everything = frozenset((Acl(acltype="publishClientSend", topic="#"),))
    await world.security.change(
        [
            SetRole(command="modifyRole", rolename="strawberry-device-lamp_pi", acls=everything),
            SetRole(command="modifyRole", rolename="strawberry-base", acls=everything),
            ChangeClient(command="disableClient", username="lock_pi"),
            ChangeClient(command="deleteClient", username="explorer"),
        ]
    )
    await world.logins.sync([login(LAMP), login(LOCK), login(EXPLORER)], NOTHING)
    assert await world.security.read() == before


async def test_settling_leaves_strangers_alone(world: World) -> None:
    role = SetRole(rolename="radio", acls=frozenset((Acl(acltype="publishClientSend", topic="radio/#"),)))
    radio = CreateClient(
        username="radio", password=SecretStr("r"), roles=frozenset((RoleUse(rolename="radio"),))
    )
    await world.security.change([role, radio, CreateClient(username="idle", password=SecretStr("i"))])
    async with world.log_in("radio", "r") as stranger:
        await world.logins.sync([], NOTHING)
        assert await stranger.publish("radio/volume", b"11")
    assert await world.gets_in("idle", "i")


async def test_a_user_name_that_a_stranger_has_is_named_and_keeps_nobody_else_out(world: World) -> None:
    await world.security.change([CreateClient(username="lamp_pi", password=SecretStr("mine"))])
    with pytest.raises(Conflict, match="'lamp_pi'"):
        await world.logins.allow(login(LAMP))
    with pytest.raises(Conflict, match="not Strawberry's"):
        await world.logins.sync([login(LAMP), login(LOCK)], NOTHING)
    await world.logins.revoke(LAMP, NOTHING)
    assert await world.gets_in("lock_pi")
    assert await world.gets_in("lamp_pi", "mine")


async def test_two_of_ours_with_one_name_are_told_apart(world: World) -> None:
    await world.logins.allow(login(Principal("client", "lamp_pi")))
    with pytest.raises(Conflict, match="a client has the user name 'lamp_pi'"):
        await world.logins.allow(login(LAMP))
    with pytest.raises(Conflict, match="two have the user name"):
        await world.logins.sync([login(Principal("client", "lamp_pi")), login(LAMP)], NOTHING)
    # The client is gone from the database: then the device gets the name.
    await world.logins.sync([login(LAMP, "another")], NOTHING)
    assert await world.gets_in("lamp_pi", "another")


async def test_an_expired_login_is_not_let_in_by_settling(world: World) -> None:
    await world.logins.allow(login(LAMP))
    await world.logins.sync([login(LAMP, expires_in_s=-1)], NOTHING)
    assert not await world.gets_in("lamp_pi")


@pytest.mark.slow
async def test_a_hundred_and_fifty_devices_are_settled_in_a_few_messages(world: World) -> None:
    logins = [login(Principal("device", f"device_{number}"), "t" * 600) for number in range(150)]
    await world.logins.sync(logins, NOTHING)
    assert len((await world.security.read()).clients) == 152
    assert await world.gets_in("device_149", "t" * 600)
    await world.logins.sync([], NOTHING)
    assert (await world.security.read()).clients.keys() == {"strawberry-admin", "strawberry-hub-main"}


async def test_while_the_broker_is_away_it_is_said_and_settling_makes_up_for_it(world: World) -> None:
    pid = world.broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    admitting = asyncio.gather(world.logins.allow(login(LAMP)), return_exceptions=True)
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    (outcome,) = await admitting
    assert isinstance(outcome, Disconnected)
    with pytest.raises(Disconnected):
        await world.logins.revoke(LOCK, NOTHING)
    async with asyncio.timeout(60):
        while True:
            try:
                await world.logins.sync([login(LAMP)], NOTHING)
                break
            except Disconnected:
                await asyncio.sleep(0.02)
    assert await world.gets_in("lamp_pi")


async def test_a_refused_command_is_an_error_that_says_which(world: World) -> None:
    with pytest.raises(NotFound, match="disableClient"):
        await world.security.change([ChangeClient(command="disableClient", username="ghost")])
    created = CreateClient(username="twice", password=SecretStr("x"))
    await world.security.change([created])
    with pytest.raises(Conflict, match="createClient"):
        await world.security.change([created])
    with pytest.raises(LinkError, match="createRole: "):
        await world.security.change([SetRole(rolename="x" * 70_000, acls=frozenset())])


async def test_no_password_is_in_what_a_command_shows(world: World) -> None:
    del world
    assert "hunter2" not in repr(CreateClient(username="a", password=SecretStr("hunter2")))
