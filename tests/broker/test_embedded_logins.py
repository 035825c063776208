"""The embedded broker is told who may log in."""

from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from broker.embedded.logins import EmbeddedLogins
from broker.logins import BusLogin
from bus.link import LinkSettings, open_link
from contracts.access import Principal
from contracts.devices.presence import Revocation
from identity import tokens
from tests.broker.embedded_world import House, code_for, embedded_house


def login(house: House, name: str, token: str) -> BusLogin:
    return BusLogin(Principal(kind="device", id=name), SecretStr(token), 0)


def hub_link(house: House):
    settings = LinkSettings(
        urls=(f"mqtt://127.0.0.1:{house.port}",),
        client_id="main",
        username="main",
        password=SecretStr(house.token("main", "hub")),
    )
    return open_link(settings)


async def test_whoever_is_admitted_uses_this_token_and_no_other(tmp_path: Path) -> None:
    async with embedded_house(tmp_path) as house, hub_link(house) as link:
        old, new = house.token("pc"), house.token("pc")
        device = await house.client("pc")
        await EmbeddedLogins(link).allow(login(house, "pc", new))
        await device.gone()
        assert await code_for(house, "pc", old) == 5
        assert await code_for(house, "pc", new) == 0


async def test_a_token_of_a_person_that_is_revoked_says_nothing_about_the_others(tmp_path: Path) -> None:
    async with embedded_house(tmp_path) as house, hub_link(house) as link:
        gone, kept = house.token("ada", "user"), house.token("ada", "user")
        revoked = Revocation(tokens=[tokens.token_id(gone)], before=datetime.now(UTC))
        await EmbeddedLogins(link).revoke(Principal(kind="user", id="ada"), revoked)
        assert await code_for(house, "ada", gone) == 5
        assert await code_for(house, "ada", kept) == 0


async def test_more_is_settled_than_goes_into_one_packet(tmp_path: Path) -> None:
    async with embedded_house(tmp_path) as house, hub_link(house) as link:
        token, other, revoked = house.token("pc"), house.token("pc"), house.token("tv")
        many = [f"{number:032x}" for number in range(40_000)]
        logins = [login(house, f"device_{number}", token) for number in range(2_500)]
        await EmbeddedLogins(link).sync(
            [*logins, login(house, "pc", token)],
            Revocation(tokens=[*many, tokens.token_id(revoked)], before=datetime.now(UTC)),
        )
        assert await code_for(house, "tv", revoked) == 5
        assert await code_for(house, "pc", other) == 5
        assert await code_for(house, "pc", token) == 0
