"""A spoke with a voice, as a process: its sound card, its hub and its speech server go in turn."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
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

_TRIES = 10
_HEARD_S = 30.0
"""Patience for one try; many times what it takes."""

FIRE = """
from pathlib import Path

from spoke import Skill, skill_method


class FireSkill(Skill):
    \"\"\"A fire.\"\"\"

    @skill_method(sentences={"en": ["burn the journal"]})
    def burn(self) -> str:
        \"\"\"Burn the journal.\"\"\"
        with Path(__file__).with_name("journal.txt").open("a") as file:
            file.write("burnt\\n")
        return "Burnt."
"""


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


def knows_the_fire(house: House, spoke: Spoke) -> bool:
    file = spoke.home / "spoke" / "vocabulary.json"
    texts = [each["text"] for each in json.loads(file.read_bytes())["sentences"]] if file.exists() else []
    return "burn the journal" in texts and f"the grammar has {len(texts)} sentences" in house.log(spoke.id)


def say_until(spoke: Spoke, room: Room, text: str, done: Callable[[], bool]) -> None:
    """Say a sentence, and again where it was misheard, as people do."""
    for _ in range(_TRIES):
        wait_for(lambda: shown(spoke)["state"] == "listening", what="the wake word to be waited for")
        asyncio.run(room.say("okay nabu", text))
        with suppress(AssertionError):
            wait_for(done, what=text, patience=_HEARD_S)
            return
    raise AssertionError(f"{text!r} was said {_TRIES} times: {shown(spoke)}")


def test_it_goes_on_without_its_sound_card_its_hub_and_its_speech_server(house: House, room: Room) -> None:
    def burn() -> None:
        before = len(spoke.journal())
        say_until(spoke, room, "burn the journal", lambda: len(spoke.journal()) > before)

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
        spoke = house.add_spoke("Hall", {"fire.py": FIRE}, settings=settings)
        wait_for(lambda: knows_the_fire(house, spoke), what="the grammar")
        burn()
        room.unplug()
        wait_for(lambda: shown(spoke)["state"] == "broken", what="the loss of the sound card")
        assert is_missing(spoke, "microphone")
        room.plug_in()
        burn()
        assert shown(spoke)["reason"] == ""
        house.kill("hub")
        wait_for(lambda: not shown(spoke, "/api/spoke")["hub_online"], what="the loss of the hub")
        burn()
        server.kill()
        where = f"127.0.0.1:{server.port}"
        say_until(spoke, room, "tell me a story about dragons", lambda: is_missing(spoke, where))
        burn()
