"""A whole spoke against a broker and a hub."""

import asyncio
import json

import httpx

from spoke.app import open_spoke
from tests.ports import free_port
from tests.spoke.home import Place, StandInHub, serving, wait_for


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
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
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
