import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.mosquitto.own_logins import hub_login
from broker.mosquitto.provisioning import open_security, provision
from contracts import topics
from contracts.devices.joining import Login
from contracts.errors import Conflict, Disconnected, LinkError, LoginRefused
from identity.keys import KeyPair
from tests.broker.mosquitto_world import ADMIN, HouseBroker, house_broker
from tests.mosquitto import Mosquitto
from tests.ports import free_port

KEY = KeyPair.generate()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[HouseBroker]:
    with house_broker(tmp_path) as broker:
        yield broker


async def _run(house: HouseBroker, program: str, *arguments: str) -> None:
    """Run a program of Mosquitto's own as the administrator."""
    port = house.url.rpartition(":")[2]
    login = ["-h", "127.0.0.1", "-p", port, "-u", str(ADMIN.username), "-P", str(ADMIN.password)]
    ran = await asyncio.create_subprocess_exec(program, *login, *arguments)
    assert await ran.wait() == 0


async def _control(house: HouseBroker, *command: str) -> None:
    await _run(house, "mosquitto_ctrl", "dynsec", *command)


async def _allow_by_default(house: HouseBroker, acltype: str) -> None:
    allowed = {"command": "setDefaultACLAccess", "acls": [{"acltype": acltype, "allow": True}]}
    payload = json.dumps({"commands": [allowed]})
    await _run(house, "mosquitto_pub", "-t", topics.DYNAMIC_SECURITY, "-m", payload)


async def test_clients_that_were_there_publish_and_subscribe_as_before(house: HouseBroker) -> None:
    await house.add("homeassistant", "zigbee2mqtt/#", "homeassistant/#")
    await house.add("zigbee", "zigbee2mqtt/#")
    async with house.login("homeassistant") as assistant, house.login("zigbee") as zigbee:
        assert await assistant.subscribe("zigbee2mqtt/#")
        assert await zigbee.publish("zigbee2mqtt/lamp", b"before", retain=True)
        assert (await assistant.next()).payload == b"before"

        done = await provision(house.url, ADMIN, hub_id="home-1", key=KEY)

        assert [(each.username, each.reaches_us) for each in done.others] == [
            ("homeassistant", False),
            ("zigbee", False),
        ]
        # Neither was disconnected, and both still may what they might.
        assert await zigbee.publish("zigbee2mqtt/lamp", b"after", retain=True)
        assert (await assistant.next()).payload == b"after"
        assert await assistant.publish("homeassistant/light/config", b"{}")
    async with house.login("homeassistant") as again:
        assert await again.subscribe("zigbee2mqtt/#")
        assert (await again.next()).payload == b"after"


async def test_the_hub_can_let_devices_in_afterwards(house: HouseBroker) -> None:
    await provision(house.url, ADMIN, hub_id="home-1", key=KEY, instance="kitchen")
    async with open_security(house.url, hub_login(KEY, "kitchen")) as security:
        state = await security.read()
    assert "strawberry-hub-kitchen" in state.clients
    assert state.roles.keys() >= {"strawberry-hub-kitchen", "strawberry-base"}


async def test_a_client_that_can_reach_our_topics_is_named(house: HouseBroker) -> None:
    await house.add("explorer", "#")
    done = await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    assert [(each.username, each.reaches_us) for each in done.others] == [("explorer", True)]


async def test_a_second_time_changes_nothing_and_disconnects_nobody(house: HouseBroker) -> None:
    assert (await provision(house.url, ADMIN, hub_id="home-1", key=KEY)).changed
    async with open_security(house.url, hub_login(KEY, "main")) as hub:
        assert not (await provision(house.url, ADMIN, hub_id="home-1", key=KEY)).changed
        await hub.read()


async def test_a_hub_with_a_new_key_gets_in_again(house: HouseBroker) -> None:
    await provision(house.url, ADMIN, hub_id="home-1", key=KeyPair.generate())
    assert (await provision(house.url, ADMIN, hub_id="home-1", key=KEY)).changed
    async with open_security(house.url, hub_login(KEY, "main")):
        pass


async def test_a_second_hub_is_refused_and_the_first_one_named(house: HouseBroker) -> None:
    await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    with pytest.raises(Conflict, match="Strawberry hub home-1"):
        await provision(house.url, ADMIN, hub_id="home-2", key=KeyPair.generate())


async def test_a_foreign_client_with_the_hubs_user_name_is_named_and_left_alone(house: HouseBroker) -> None:
    await house.add("strawberry-hub-main", "x/#")
    with pytest.raises(Conflict, match="strawberry-hub-main"):
        await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    async with house.login("strawberry-hub-main") as stranger:
        assert stranger.accepted


@pytest.mark.parametrize(("acltype", "said"), [("publishClientSend", "publish"), ("subscribe", "subscribe")])
async def test_what_everybody_may_is_never_taken_away_but_said_with_those_who_may_live_from_it(
    house: HouseBroker, acltype: str, said: str
) -> None:
    await _allow_by_default(house, acltype)
    await house.add("old_radio", "radio/#")
    with pytest.raises(Conflict, match=f"anyone may {said}.*old_radio"):
        await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    async with house.security() as security:
        assert (await security.default_access())[acltype]
        assert "strawberry-hub-main" not in (await security.read()).clients


async def test_what_the_refusal_tells_to_do_helps(house: HouseBroker) -> None:
    await _allow_by_default(house, "subscribe")
    with pytest.raises(Conflict) as refused:
        await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    told = re.search(r"-t '(?P<topic>[^']+)' -m '(?P<payload>[^']+)'", refused.value.hint)
    assert told is not None
    await _run(house, "mosquitto_pub", "-t", told["topic"], "-m", told["payload"])
    await provision(house.url, ADMIN, hub_id="home-1", key=KEY)


async def test_those_who_log_in_without_a_name_are_among_the_others(tmp_path: Path) -> None:
    with house_broker(tmp_path, anonymous=True) as house:
        await house.add("somebody", "devices/#")
        await _control(house, "createGroup", "accounts")
        await _control(house, "addGroupRole", "accounts", "somebody-role")
        await _control(house, "setAnonymousGroup", "accounts")
        done = await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    assert [(each.username, each.reaches_us) for each in done.others] == [("somebody", True), ("", True)]


async def test_rights_that_a_client_has_by_a_group_count(house: HouseBroker) -> None:
    await house.add("somebody", "hub/#")
    await house.add("member", "radio/#")
    await _control(house, "createGroup", "family")
    await _control(house, "addGroupRole", "family", "somebody-role")
    await _control(house, "addGroupClient", "family", "member")
    done = await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    assert {each.username: each.reaches_us for each in done.others} == {"somebody": True, "member": True}


async def test_a_wrong_password_of_the_administrator_is_said_at_once(house: HouseBroker) -> None:
    wrong = Login(username="boss", password="guessed")
    with pytest.raises(LoginRefused, match="boss"):
        await provision(house.url, wrong, hub_id="home-1", key=KEY)


async def test_a_login_that_may_not_use_dynamic_security_is_told_so(house: HouseBroker) -> None:
    await house.add("radio", "radio/#")
    await house.add("explorer", "$CONTROL/dynamic-security/v1/response")
    for name in ("radio", "explorer"):
        with pytest.raises(LinkError, match="may not change the logins"):
            await provision(house.url, Login(username=name, password=name), hub_id="home-1", key=KEY)


@pytest.mark.slow
async def test_a_mosquitto_without_the_plugin_is_told_from_one_that_is_down(mosquitto: Mosquitto) -> None:
    with pytest.raises(LinkError, match="control topic") as refused:
        await provision(mosquitto.url, ADMIN, hub_id="home-1", key=KEY)
    assert "mosquitto_dynamic_security" in refused.value.hint
    with pytest.raises(Disconnected):
        await provision(f"mqtt://127.0.0.1:{free_port()}", ADMIN, hub_id="home-1", key=KEY)


async def test_the_administrators_password_is_kept_nowhere(house: HouseBroker, tmp_path: Path) -> None:
    await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    password = hub_login(KEY, "main").password
    assert ADMIN.password is not None
    assert password is not None
    for folder, _, files in os.walk(tmp_path):
        for name in files:
            content = (Path(folder) / name).read_bytes()
            assert ADMIN.password.encode() not in content
            assert password.encode() not in content
