"""Engines by name: a new one is one file."""

import sys
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from deploy.directory import Home
from deploy.settings.settings import read_voice
from voice.engines import text_to_speech
from voice.opening import open_engines

PARROT = """
from voice.sound.audio import Sound


class Parrot:
    def __init__(self, address):
        self.address = address

    async def say(self, text, *, language):
        yield Sound(f"{text} by {self.address}".encode(), 16_000)


def open_engine(settings, address):
    return Parrot(address)
"""


@pytest.fixture
def parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "parrot.py").write_text(PARROT)
    monkeypatch.setattr(text_to_speech, "__path__", [*text_to_speech.__path__, f"{tmp_path}/engines"])
    monkeypatch.delitem(sys.modules, "voice.engines.text_to_speech.parrot", raising=False)


def home_with(directory: Path, text_to_speech: str) -> Home:
    (directory / "strawberry.toml").write_text(f"""
        [voice]
        wake_words = []
        speech_to_text = []
        text_to_speech = ["{text_to_speech}"]
    """)
    return Home(directory)


async def test_a_file_that_is_dropped_in_is_an_engine_by_its_name(tmp_path: Path, parrot: None) -> None:
    name = "parrot://cage.local:1"
    engines = open_engines(read_voice(home_with(tmp_path, name)))
    (sound,) = [sound async for sound in engines.text_to_speech[name].say("hello", language="en")]
    assert sound.samples == b"hello by cage.local:1"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("parot", "there is no engine 'parot'; there are espeak, parrot, wyoming"),
        ("pocketsphinx", "there is no engine 'pocketsphinx'; there are espeak, parrot, wyoming"),
        ("wyoming://pi.local", "'pi.local' is not an address such as host:10300"),
        ("espeak://pi.local:1", "the engine 'espeak' takes no address"),
    ],
)
def test_a_name_that_is_none_is_told_with_those_that_are(
    tmp_path: Path, parrot: None, name: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_voice(home_with(tmp_path, name))
