import asyncio

import pytest
from pydantic import SecretStr

from contracts.claims import Claims
from contracts.errors import Conflict, InvalidMessage, NotFound
from hub_registry.access.clients import Clients
from identity import tokens


@pytest.fixture
def clients(house) -> Clients:
    return Clients(house.store, house.authority, instance="main")


def claims_of(house, password: SecretStr) -> Claims:
    authority = house.authority
    return tokens.verify(
        password.get_secret_value(), key=authority.key.public, hub_id=authority.hub_id, audience="mqtt"
    )


async def test_a_client_gets_a_token_of_its_kind_that_may_chat_only_where_that_was_granted(house, clients):
    for name, chat in (("explorer", False), ("node-red", True)):
        client, password = await clients.add(name, owner="admin", chat=chat, lifetime_s=60)
        claims = claims_of(house, password)
        assert (client.name, claims.kind, claims.sub, claims.own) == (name, "client", name, "admin")
        assert claims.scopes == ({"chat"} if chat else set())
        assert "chat" in claims.scopes or not client.chat
    assert [(each.name, each.chat) for each in await clients.list()] == [
        ("explorer", False),
        ("node-red", True),
    ]


async def test_a_removed_client_is_refused_and_its_name_is_free_again(house, clients):
    _, password = await clients.add("explorer", owner="admin", chat=False, lifetime_s=60)
    await clients.remove("explorer")
    assert house.authority.is_revoked(claims_of(house, password).jti)
    assert await clients.list() == []
    with pytest.raises(NotFound, match="explorer"):
        await clients.remove("explorer")
    assert await clients.add("explorer", owner="admin", chat=False, lifetime_s=60)


async def test_a_client_whose_token_has_expired_is_gone(clients):
    with pytest.raises(NotFound):
        await clients.add("explorer", owner="admin", chat=False, lifetime_s=-60)
    assert await clients.list() == []


async def test_no_two_principals_have_one_user_name(house, clients):
    await house.devices.add("TV", owner="admin")
    radio = await house.devices.add("Radio", owner="admin")
    await house.devices.remove(radio.id)
    await house.accounts.add("Ada", role="member")
    await clients.add("explorer", owner="admin", chat=False, lifetime_s=60)
    for name in ("tv", "radio", "ada", "admin", "main", "hub", "explorer"):
        with pytest.raises(Conflict, match=name):
            await clients.add(name, owner="admin", chat=False, lifetime_s=60)
    device = await house.devices.add("Explorer", owner="admin")
    assert device.id == "explorer_2"


async def test_of_two_that_want_one_name_at_once_one_gets_it(clients):
    tries = await asyncio.gather(
        *(clients.add("explorer", owner="admin", chat=False, lifetime_s=60) for _ in range(2)),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in tries) == ["Conflict", "tuple"]


@pytest.mark.parametrize("name", ["", "Explorer", "1a", "a/b", "a+b", "a#", "strawberry-x", "a" * 33, "ä"])
async def test_what_cannot_stand_in_a_topic_or_is_ours_is_no_name(clients, name):
    with pytest.raises(InvalidMessage):
        await clients.add(name, owner="admin", chat=False, lifetime_s=60)
