"""A real spoke renews its token over HTTP and comes back on the bus with it, on each broker of our own."""

import asyncio

import pytest
from pydantic import SecretStr

from bus.rpc import Caller, CallRequest
from contracts.claims import Claims
from contracts.devices.joining import BusAccess
from contracts.devices.rpc import Actor
from contracts.errors import Unauthorized
from hub_registry.devices.presence import PresenceChange, PresenceState
from hub_registry.registry import open_registry
from hub_registry.settings import RegistrySettings
from identity import tokens
from identity.envelope import Seal
from spoke.app import open_spoke
from spoke.membership.joining import join
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings
from tests.hub_registry.http_client import over_http
from tests.hub_registry.own_brokers import KINDS, open_own
from tests.hub_registry.spokes import aged, eventually
from tests.ports import free_port

SKILL = """
import asyncio
from pathlib import Path

from spoke import Skill

PLACE = Path(__file__).parent


class CoffeeSkill(Skill):
    \"\"\"The coffee machine.\"\"\"

    def __init__(self) -> None:
        self._brewed = 0

    async def brew(self) -> int:
        \"\"\"Brew, slowly.\"\"\"
        self._brewed += 1
        (PLACE / "begun").touch()
        while not (PLACE / "done").exists():
            await asyncio.sleep(0.02)
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
        bus=BusAccess(
            brokers=(f"mqtt://127.0.0.1:{port}",),
            authentication="token" if kind == "mosquitto" else "proof",
        ),
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
        device = await registry.devices.add("Kitchen", owner="admin")
        invitation = await registry.invite(device.id)
        spoke = SpokeSettings(
            home=tmp_path / "spoke", hub_url=url, skills=(tmp_path / "skills",), check_s=0.1
        )
        await join(spoke, token=SecretStr(invitation.token), clock=HubClock())
        old = await aged(registry, device.id, spoke.directory / "enrolment.json")
        renew, may_renew = registry.authority.renew, asyncio.Event()

        async def renew_later(claims: Claims, *, lifetime_s: int) -> str:
            await may_renew.wait()
            return await renew(claims, lifetime_s=lifetime_s)

        registry.authority.renew = renew_later  # type: ignore[method-assign]
        async with open_spoke(spoke), asyncio.TaskGroup() as tasks:
            entry = registry.directory.get(device.id)
            await eventually(lambda: entry.presence.state is PresenceState.ONLINE and entry.skills)
            first = entry.presence.high.connection
            request = CallRequest(
                device=device.id, skill="CoffeeSkill", method="brew", actor=Actor(user="admin", agent="test")
            )
            calling = tasks.create_task(caller.call(request))
            await eventually((tmp_path / "skills" / "begun").exists)
            may_renew.set()
            await eventually(lambda: entry.presence.high.connection > first)
            await eventually(lambda: registry.authority.on_bus("device", device.id) not in (old, None))
            assert not calling.done()
            (tmp_path / "skills" / "done").touch()
            assert await calling == 1
            await eventually(lambda: entry.presence.state is PresenceState.ONLINE)
            with pytest.raises(Unauthorized, match="revoked"):
                registry.authority.check(tokens.issue(registry.key, old))
            assert registry.authority.on_bus("device", device.id).aud == "http"
