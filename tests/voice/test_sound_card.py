"""The commands on a sound card, which is a PulseAudio of their own with pipes in place of hardware."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path

import pytest

from tests.forkserver import COMMAND
from tests.requirements import require
from tests.voice.card import Card, sound_card

LOOKS_FOR_CARDS = """
import logging

import sounddevice

from deploy.logs.logs import set_up_logging
from voice.sound.card import devices

check = sounddevice._check


def checked(code, message=""):
    if "initializing" in message:
        logging.getLogger("voice").info("said meanwhile")
    return check(code, message)


set_up_logging(debug=False)
sounddevice._check = checked
devices()
"""


class Machine:
    """A machine with a sound card, whose commands are run."""

    def __init__(self, home: Path, card: Card) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STRAWBERRY")}
        own = {"STRAWBERRY_HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
        self.home = home
        self.card = card
        self._environment = kept | own | card.environment

    def start(self, *words: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        command = [*COMMAND, "voice", *words]
        return subprocess.Popen(command, env=self._environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command; return what it printed, or why it failed where it has to."""
        with self.start(*words) as process:
            out, problem = process.communicate(timeout=120)
        assert process.returncode == code, out + problem
        return problem if code else out


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with sound_card(tmp_path) as card:
        yield Machine(tmp_path / "home", card)


def test_the_meter_shows_what_the_microphone_hears(machine: Machine) -> None:
    # For as long as the command may need to start.
    machine.card.say(*["okay nabu"] * 99)
    shown = json.loads(machine.run("level", "--seconds", "6", "--json"))
    assert shown["loudest_db"] > -40
    assert "okay_nabu" in shown["wake_words"]


def test_the_meter_opens_no_microphone_that_is_muted(machine: Machine) -> None:
    (machine.home / "spoke").mkdir(parents=True)
    (machine.home / "spoke" / "voice.muted").touch()
    assert "is muted" in machine.run("level", code=1)


def test_a_text_is_spoken_by_the_loudspeaker(machine: Machine) -> None:
    machine.run("say", "the kitchen light is on")
    assert any(machine.card.played)


def test_both_are_in_the_list_of_devices(machine: Machine) -> None:
    rows = json.loads(machine.run("devices", "--json"))
    assert any(row["default"] and row["microphone"] and row["loudspeaker"] for row in rows)


def test_a_card_that_goes_is_an_error_in_one_line(machine: Machine) -> None:
    with machine.start("level", "--seconds", "600") as meter:
        assert meter.stdout is not None
        assert meter.stdout.read(1)  # the first line, once it hears
        machine.card.unplug()
        _, problem = meter.communicate(timeout=120)
        machine.card.plug_in()
    assert meter.returncode == 1
    assert "microphone" in problem


def test_what_is_logged_while_cards_are_looked_for_arrives() -> None:
    require(find_library("portaudio") is not None, "apt install libportaudio2")
    done = subprocess.run(
        [sys.executable, "-c", LOOKS_FOR_CARDS], stderr=subprocess.PIPE, text=True, check=True, timeout=120
    )
    assert "said meanwhile" in done.stderr
