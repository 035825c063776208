"""A spoke with a voice, as a process: its sound card, its hub and its speech server go in turn."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.cli.client import find_spoke
from deploy.home.directory import Home
from tests.e2e.house import House, Spoke, wait_for
from tests.ports import free_port
from tests.voice.room import WAKE, Room
from tests.voice.wyoming_server import wyoming_server

pytestmark = pytest.mark.voice

BELL = """
from pathlib import Path

from spoke import Skill, skill_method


class BellSkill(Skill):
    \"\"\"A bell.\"\"\"

    @skill_method(sentences={"en": ["ring the bell"]})
    def ring(self) -> str:
        \"\"\"Ring the bell.\"\"\"
        with Path(__file__).with_name("journal.txt").open("a") as file:
            file.write("rung\\n")
        return "It rings."
"""


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    (tmp_path / "room").mkdir()
    with Room(tmp_path / "room") as room:
        yield room


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "house") as house:
        house.start_broker()
        house.start_hub()
        yield house


def shown(spoke: Spoke, path: str = "/api/voice") -> dict[str, Any]:
    answer: dict[str, Any] = find_spoke(Home(spoke.home)).request("GET", path)
    return answer


def is_missing(spoke: Spoke, what: str) -> bool:
    return what in shown(spoke)["reason"]


def knows_the_bell(house: House, spoke: Spoke) -> bool:
    file = spoke.home / "spoke" / "vocabulary.json"
    texts = [each["text"] for each in json.loads(file.read_bytes())["sentences"]] if file.exists() else []
    return "ring the bell" in texts and f"the grammar has {len(texts)} sentences" in house.log(spoke.id)


def test_it_goes_on_without_its_sound_card_its_hub_and_its_speech_server(house: House, room: Room) -> None:
    def ring(times: int) -> None:
        wait_for(lambda: shown(spoke)["state"] == "listening", what="the wake word to be waited for")
        asyncio.run(room.say("okay nabu", "ring the bell"))
        wait_for(lambda: spoke.journal() == ["rung"] * times, what=f"the bell to ring {times} times")

    with wyoming_server(free_port()) as server:
        settings = f"""
            [voice]
            enabled = true
            wake_words = ["{WAKE}"]
            tones = false
            microphone = "file:{room.microphone}"
            loudspeaker = "file:{room.loudspeaker}"
            speech_to_text = ["pocketsphinx", "wyoming://127.0.0.1:{server.port}"]
        """
        spoke = house.add_spoke("Hall", {"bell.py": BELL}, settings=settings)
        wait_for(lambda: knows_the_bell(house, spoke), what="the grammar")
        ring(1)
        room.unplug()
        wait_for(lambda: shown(spoke)["state"] == "broken", what="the loss of the sound card")
        assert is_missing(spoke, "microphone")
        room.plug_in()
        ring(2)
        assert shown(spoke)["reason"] == ""
        house.kill("hub")
        wait_for(lambda: not shown(spoke, "/api/spoke")["hub_online"], what="the loss of the hub")
        ring(3)
        server.kill()
        wait_for(lambda: shown(spoke)["state"] == "listening", what="the wake word to be waited for")
        asyncio.run(room.say("okay nabu", "tell me a story about dragons"))
        wait_for(lambda: is_missing(spoke, f"127.0.0.1:{server.port}"), what="the loss of the server")
        ring(4)
