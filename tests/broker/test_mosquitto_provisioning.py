import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.keys import KeyPair
from broker.mosquitto.commands import DefaultAccess, SetDefaultAccess
from broker.mosquitto.logins import hub_login
from broker.mosquitto.provisioning import open_security, provision
from contracts.errors import Conflict, Disconnected, LinkError, LoginRefused
from contracts.joining import Login
from tests.broker.mosquitto_world import ADMIN, HouseBroker, house_broker
from tests.mosquitto import Mosquitto, free_port

KEY = KeyPair.generate()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[HouseBroker]:
    with house_broker(tmp_path) as broker:
        yield broker


async def _allow_by_default(house: HouseBroker, *acltypes: str) -> None:
    acls = [DefaultAccess.model_validate({"acltype": each, "allow": True}) for each in acltypes]
    async with house.security() as security:
        await security.change([SetDefaultAccess(acls=tuple(acls))])


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


@pytest.mark.parametrize("acltype", ["publishClientSend", "subscribe"])
async def test_clients_that_live_from_what_everybody_may_are_named_and_nothing_is_done(
    house: HouseBroker, acltype: str
) -> None:
    await _allow_by_default(house, acltype)
    await house.add("old_radio", "radio/#")
    with pytest.raises(Conflict, match="old_radio") as refused:
        await provision(house.url, ADMIN, hub_id="home-1", key=KEY)
    assert "setDefaultACLAccess" in refused.value.hint
    async with house.security() as security:
        assert (await security.default_access())[acltype]
        assert "strawberry-hub-main" not in (await security.read()).clients


async def test_where_nobody_lives_from_it_the_default_is_forbidden(house: HouseBroker) -> None:
    await _allow_by_default(house, "publishClientSend", "subscribe")
    assert (await provision(house.url, ADMIN, hub_id="home-1", key=KEY)).changed
    async with house.security() as security:
        access = await security.default_access()
    assert not access["publishClientSend"]
    assert not access["subscribe"]


async def test_those_who_log_in_without_a_name_count_as_living_from_it(tmp_path: Path) -> None:
    with house_broker(tmp_path, anonymous=True) as house:
        await _allow_by_default(house, "publishClientSend")
        with pytest.raises(Conflict, match="without a name"):
            await provision(house.url, ADMIN, hub_id="home-1", key=KEY)


async def test_a_wrong_password_of_the_administrator_is_said_at_once(house: HouseBroker) -> None:
    wrong = Login(username="boss", password="guessed")
    with pytest.raises(LoginRefused, match="boss"):
        await provision(house.url, wrong, hub_id="home-1", key=KEY)


async def test_a_login_that_may_not_use_dynamic_security_is_told_so(house: HouseBroker) -> None:
    await house.add("radio", "radio/#")
    await house.add("explorer", "$CONTROL/dynamic-security/v1/response")
    for name in ("radio", "explorer"):
        with pytest.raises(LinkError, match="may not change who may log in"):
            await provision(house.url, Login(username=name, password=name), hub_id="home-1", key=KEY)


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
