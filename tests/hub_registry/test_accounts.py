import pytest

from contracts.errors import Conflict, NotFound


async def test_the_first_start_makes_one_admin_and_a_second_start_none(house):
    assert await house.accounts.first_admin() == house.admin
    assert [user.role for user in await house.accounts.users()] == ["admin"]


async def test_only_guests_are_read_only(house):
    guest = await house.accounts.add("Visitor", role="guest")
    assert guest.read_only
    assert not house.admin.read_only
    assert await house.accounts.get(guest.id) == guest


async def test_two_users_cannot_have_one_name(house):
    await house.accounts.add("Ada", role="member")
    with pytest.raises(Conflict, match="ada"):
        await house.accounts.add("ada", role="member")


async def test_an_unknown_user_is_named(house):
    with pytest.raises(NotFound, match="nobody"):
        await house.accounts.get("nobody")
