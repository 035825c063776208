"""Retained messages that are lost altogether: hub and a real spoke say everything again by themselves."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from bus.link import Link
from contracts import topics
from contracts.devices.joining import BusAccess
from hub_registry.devices.presence import PresenceState
from spoke.app import open_spoke
from spoke.settings import SpokeSettings
from tests.hub_registry.http_client import over_http
from tests.hub_registry.hubs import Hub, open_hub
from tests.hub_registry.retained import settled
from tests.hub_registry.spokes import eventually

SKILL = """
from spoke import Skill


class CoffeeSkill(Skill):
    \"\"\"The coffee machine.\"\"\"

    async def setup(self) -> None:
        self.state("water", 3)

    def brew(self) -> str:
        \"\"\"Brew.\"\"\"
        return "Brewing."
"""


@pytest.fixture
async def hub(tmp_path, mosquitto, hub_key) -> AsyncIterator[Hub]:
    """A hub with a spoke of its own on a broker that keeps nothing over a restart."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "coffee.py").write_text(SKILL)
    async with (
        open_hub(
            tmp_path / "hub",
            mosquitto.url,
            key=hub_key,
            bus=BusAccess(brokers=(mosquitto.url,), authentication="proof"),
        ) as hub,
        over_http(hub.registry) as url,
    ):
        device = await hub.registry.devices.add("Kitchen", owner="admin")
        invitation = await hub.registry.invite(device.id)
        settings = SpokeSettings(
            home=tmp_path / "spoke",
            hub_url=url,
            skills=(tmp_path / "skills",),
            heartbeat_s=0.2,
            republish_within_s=0.1,
            reclaim_s=0.1,
        )
        async with open_spoke(settings, token=SecretStr(invitation.token)):
            yield hub


ALL = {
    topics.HUB_STATUS.build(instance="main"),
    topics.STATUS.build(device="kitchen"),
    topics.HEARTBEAT.build(device="kitchen"),
    topics.SKILL.build(device="kitchen", skill="CoffeeSkill"),
    topics.STATE.build(device="kitchen", skill="CoffeeSkill", property="water"),
}


def is_whole(hub: Hub) -> bool:
    entry = hub.registry.directory.get("kitchen")
    return (
        entry is not None
        and entry.presence.state is PresenceState.ONLINE
        and set(entry.skills) == {"CoffeeSkill"}
    )


async def whole(hub: Hub, link: Link) -> None:
    await settled(link, ALL)
    await eventually(lambda: is_whole(hub))


async def test_after_a_broker_that_keeps_nothing_was_restarted(hub, mosquitto):
    await whole(hub, hub.outside)
    mosquitto.kill()
    await eventually(lambda: not hub.outside.connected)
    mosquitto.start()
    await eventually(lambda: hub.outside.connected)
    await whole(hub, hub.outside)


async def test_after_a_purge_the_devices_say_again_what_they_have_and_the_hub_is_silent(hub):
    await whole(hub, hub.outside)
    purged = await hub.service.purge()
    assert purged.connected == ("kitchen",)
    assert purged.left == ()
    await settled(hub.outside, ALL - {topics.HUB_STATUS.build(instance="main")})
