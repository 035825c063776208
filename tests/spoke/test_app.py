"""A whole spoke against a broker and a hub."""

import hashlib

from contracts import topics
from spoke.app import open_spoke
from tests.spoke.home import DEVICE, BusSide, Place, StandInHub


async def test_a_new_spoke_joins_announces_itself_and_answers_a_call(
    hub: StandInHub, bus: BusSide, place: Place
) -> None:
    async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
        await spoke.announced()
        status = await bus.online()
        assert await bus.call("write", "hello") == "wrote hello"
    assert (spoke.device, spoke.skills) == (DEVICE, ("JournalSkill",))
    assert place.journal == ["hello"]
    topic = topics.SKILL.build(device=DEVICE, skill="JournalSkill")
    assert status.skills == {"JournalSkill": hashlib.sha256(bus.payloads(topic)[-1]).hexdigest()}
