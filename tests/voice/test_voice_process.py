"""A spoke with a voice, as a process: its sound card, its hub and its speech server go in turn."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deploy.cli.client import find_spoke
from deploy.directory import Home
from tests.e2e.house import House, Spoke, wait_for
from tests.ports import free_port
from tests.voice.card import Card, sound_card
from tests.voice.room import WAKE
from tests.voice.wyoming_server import wyoming_server

_TRIES = 10
_HEARD_S = 30.0
"""Patience for one try; many times what it takes."""

NO_HUB = "I cannot reach the hub, and that is no sentence that works without it.\n"
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
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    with sound_card(tmp_path) as card:
        for name, value in card.environment.items():
            monkeypatch.setenv(name, value)
        yield card


@pytest.fixture
def house(tmp_path: Path, card: Card) -> Iterator[House]:
    with House(tmp_path / "house") as house:
        house.start_broker()
        house.start_hub()
        yield house


def shown(spoke: Spoke) -> dict[str, Any]:
    answer: dict[str, Any] = find_spoke(Home(spoke.home)).request("GET", "/api/voice")
    return answer


def wait_for_reason(spoke: Spoke, reason: str) -> None:
    """Wait until it says that this is missing, and nothing else."""
    wait_for(
        # Reasons have semicolons in them, so that these do not tell how many there are.
        lambda: (
            reason in (said := shown(spoke)["reason"])
            and ("hub" in said) == ("hub" in reason)
            and (reason or not said)
        ),
        what=f"{reason!r}",
    )


def knows_the_fire(spoke: Spoke) -> bool:
    """Whether the hub has told it the sentence. No log tells more: sounddevice swallows what a process writes
    to stderr while it looks for cards."""
    file = spoke.home / "spoke" / "vocabulary.json"
    return file.exists() and "burn the journal" in file.read_text()


def say_until(spoke: Spoke, card: Card, text: str, done: Callable[[], bool]) -> None:
    """Say a sentence, and again where it was misheard, as people do."""
    for _ in range(_TRIES):
        wait_for(lambda: shown(spoke)["state"] == "listening", what="the wake word to be waited for")
        card.say("okay nabu", text)
        with suppress(AssertionError):
            wait_for(done, what=text, patience=_HEARD_S)
            return
    raise AssertionError(f"{text!r} was said {_TRIES} times: {shown(spoke)}")


def test_it_goes_on_without_its_sound_card_its_hub_and_its_speech_server(house: House, card: Card) -> None:
    def burn() -> None:
        before = len(spoke.journal())
        say_until(spoke, card, "burn the journal", lambda: len(spoke.journal()) > before)

    with wyoming_server(free_port()) as server:
        where = f"127.0.0.1:{server.port}"
        settings = f"""
            [voice]
            enabled = true
            wake_words = ["{WAKE}"]
            tones = false
            speech_to_text = ["pocketsphinx", "wyoming://{where}"]
            text_to_speech = ["wyoming://{where}", "espeak"]
        """
        spoke = house.add_spoke("Hall", {"fire.py": FIRE}, settings=settings)
        wait_for(lambda: knows_the_fire(spoke), what="the sentence")
        burn()
        wait_for(lambda: "Burnt.\n" in server.spoken, what="the answer to be spoken")

        card.unplug()
        wait_for(lambda: shown(spoke)["state"] == "broken", what="the loss of the sound card")
        wait_for_reason(spoke, "microphone")
        card.plug_in()
        burn()
        wait_for_reason(spoke, "")

        house.kill("hub")
        wait_for_reason(spoke, "the hub cannot be reached")
        burn()
        say_until(spoke, card, "play some jazz", lambda: NO_HUB in server.spoken)
        house.start_hub()
        wait_for_reason(spoke, "")

        server.kill()
        say_until(spoke, card, "play some jazz", lambda: where in shown(spoke)["reason"])
        burn()
