"""The claim of a token that tells EMQX what its bearer may do."""

from pathlib import Path

import jwt
import pytest

from broker.logins import ACL_CLAIM, acl
from contracts.access import Principal, covers
from hub_registry.access.token_rows import TokenRequest
from hub_registry.registry import open_registry
from hub_registry.settings import RegistrySettings
from identity import tokens
from identity.keys import KeyPair
from tests.broker.rights_table import rows

WHO = (
    Principal("hub", "main"),
    Principal("device", "d1", owner="ann"),
    Principal("client", "tool", owner="ann"),
    Principal("client", "chatter", owner="ann", chat=True),
    Principal("client", "house", home_assistant=True),
    Principal("user", "ann", owner="ann"),
)


@pytest.mark.parametrize("who", WHO, ids=lambda who: who.id)
def test_emqx_is_told_the_rights_that_our_brokers_keep(who: Principal) -> None:
    rules = acl(who)
    assert {each["permission"] for each in rules} == {"allow"}
    for row in rows(who, device="d2", other="d3"):
        action = "publish" if row.way == "publish" else "subscribe"
        asked = row.filter or row.topic
        may = any(each["action"] == action and covers(each["topic"], asked) for each in rules)
        if row.way in ("publish", "by name"):
            assert may == row.allowed, row
        else:
            # What our brokers deliver a part of is refused as a whole.
            assert row.allowed or not may, row


async def test_a_token_for_the_bus_tells_emqx_and_one_for_http_does_not(tmp_path: Path) -> None:
    settings = RegistrySettings(database=tmp_path / "hub.db", for_emqx=True)
    async with open_registry(settings, key=KeyPair.generate()) as registry:
        device = await registry.devices.add("Lamp", owner=registry.admin.id)
        request = TokenRequest(
            kind="device", subject=device.id, owner=registry.admin.id, scopes=(), lifetime_s=60
        )
        token = await registry.authority.issue(request)
        told = jwt.decode(registry.authority.bus_token(token), options={"verify_signature": False})
        assert told[ACL_CLAIM] == acl(Principal("device", device.id, owner=registry.admin.id))
        assert ACL_CLAIM not in jwt.decode(token, options={"verify_signature": False})
        bus = registry.authority.bus_token(token)
        assert (
            tokens.verify(bus, key=registry.key.public, hub_id=registry.hub_id, audience="mqtt").sub
            == device.id
        )
