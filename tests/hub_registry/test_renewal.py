"""A real spoke renews its token over HTTP and comes back on the bus with it, on each broker of our own."""

import pytest
from pydantic import SecretStr

from broker.envelope import Seal
from broker.rpc import Caller, CallRequest
from contracts.rpc import Actor
from hub_registry.presence import PresenceChange, State
from hub_registry.registry import open_registry
from hub_registry.settings import RegistrySettings, TokenLifetimes
from spoke.app import open_spoke
from spoke.settings import SpokeSettings
from tests.hub_registry.http_client import over_http
from tests.hub_registry.own_brokers import KINDS, open_own
from tests.hub_registry.spokes import eventually
from tests.ports import free_port

SKILL = """
import asyncio

from spoke import Skill


class CoffeeSkill(Skill):
    \"\"\"The coffee machine.\"\"\"

    def __init__(self) -> None:
        self._brewed = 0

    async def brew(self) -> int:
        \"\"\"Brew, slowly.\"\"\"
        self._brewed += 1
        await asyncio.sleep(4)
        return self._brewed
"""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_that_is_open_while_the_token_is_renewed_runs_once_and_is_answered(
    kind, tmp_path, hub_key
):
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "coffee.py").write_text(SKILL)
    port = free_port()
    settings = RegistrySettings(
        database=tmp_path / "hub" / "hub.db",
        brokers=(f"mqtt://127.0.0.1:{port}",),
        lifetimes=TokenLifetimes(device_s=3),
    )
    async with (
        open_registry(settings, key=hub_key) as registry,
        open_own(kind, tmp_path / "broker", registry, port=port) as hub,
        over_http(registry) as url,
        Caller(
            hub.link, Seal(registry.hub_id, hub_key), instance="main", keys=registry.directory.public_key
        ) as caller,
    ):

        def follow(change: PresenceChange) -> None:
            tell = caller.device_online if change.connected else caller.device_offline
            tell(change.device, change.epoch, change.connection)

        hub.service.on_presence(follow)
        device = await registry.add_device("Kitchen", owner="admin")
        invitation = await registry.invite(device.id)
        spoke = SpokeSettings(home=tmp_path / "spoke", hub_url=url, skills=(tmp_path / "skills",), look_s=0.1)
        async with open_spoke(spoke, token=SecretStr(invitation.token)):
            entry = registry.directory.get(device.id)
            await eventually(lambda: entry.presence.state is State.ONLINE and entry.skills)
            first = entry.presence.high.connection
            request = CallRequest(
                device=device.id, skill="CoffeeSkill", method="brew", actor=Actor(user="admin", agent="test")
            )
            assert await caller.call(request) == 1
            assert entry.presence.high.connection > first
            # By now the token that it joined with has expired, and it is there all the same.
            await eventually(lambda: entry.presence.state is State.ONLINE)
            renewed = [token for token in await registry.authority.list() if token.used_at]
            assert len(renewed) > 1
