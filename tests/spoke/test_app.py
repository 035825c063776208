"""A whole spoke against a broker and a hub."""

import asyncio
import hashlib
import json

import httpx

from contracts import topics
from spoke.app import open_spoke
from tests.ports import free_port
from tests.spoke.home import DEVICE, BusSide, Place, StandInHub, serving, wait_for


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


async def test_a_spoke_answers_people_while_it_still_waits_for_a_broker(place: Place) -> None:
    place.add_skill("clock.py", _CLOCK)
    with serving(StandInHub(brokers=[f"mqtt://127.0.0.1:{free_port()}"])) as hub:
        settings = place.settings(hub, broker_wait_s=3600)
        file = settings.directory / "run.json"

        async def run() -> None:
            async with open_spoke(settings, token=hub.invite()):
                raise AssertionError("there is no broker")

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run())
            await wait_for(file.exists, "the address of the chat")
            headers = {"authorization": f"Bearer {(settings.directory / 'http.token').read_text()}"}
            url = json.loads(file.read_text())["url"]
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
                answer = await client.post("/api/chat", json={"message": "strike the hour"})
            assert answer.json()["answer"] == "It strikes."
            running.cancel()


_CLOCK = """
from spoke import Skill, skill_method


class ClockSkill(Skill):
    \"\"\"Strikes.\"\"\"

    @skill_method(sentences={"en": ["strike the hour"]})
    def strike(self) -> str:
        \"\"\"Strike.\"\"\"
        return "It strikes."
"""
