"""The commands on a sound card, which is a PulseAudio of their own with pipes in place of hardware."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.forkserver import COMMAND
from tests.requirements import require
from tests.voice.room import said_in_room

pytestmark = pytest.mark.voice

PLUGIN = list(Path("/usr/lib").rglob("libasound_module_pcm_pulse.so"))


@dataclass
class Card:
    """A microphone in which the wake word is said again and again, and a loudspeaker that is listened to."""

    directory: Path
    server: "subprocess.Popen[bytes]"
    played: bytearray = field(default_factory=bytearray)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STRAWBERRY")}
        return kept | {
            "HOME": str(self.directory),
            "PULSE_SERVER": f"unix:{self.directory}/native",
            "STRAWBERRY_HOME": str(self.directory / "home"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command, pipe = [*COMMAND, "voice", *words], subprocess.PIPE
        return subprocess.Popen(command, env=self.environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [*COMMAND, "voice", *words]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Card]:
    require(
        shutil.which("pulseaudio") is not None and PLUGIN != [], "apt install pulseaudio libasound2-plugins"
    )
    (tmp_path / ".asoundrc").write_text("pcm.!default { type pulse }\nctl.!default { type pulse }\n")
    form = "format=s16le rate=16000 channels=1"
    modules = (
        f"module-native-protocol-unix socket={tmp_path}/native auth-anonymous=1",
        f"module-pipe-source source_name=ears file={tmp_path}/ears {form}",
        f"module-pipe-sink sink_name=mouth file={tmp_path}/mouth {form}",
    )
    loaded = [word for module in modules for word in ("-L", module)]
    options = ["-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disable-shm=yes"]
    kept = os.environ | {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(["pulseaudio", *options, *loaded], env=kept, stderr=subprocess.PIPE) as server:
        over = threading.Event()
        while not (tmp_path / "native").exists() or not (tmp_path / "mouth").exists():
            assert server.poll() is None, server.stderr.read()
            over.wait(0.02)
        card = Card(tmp_path, server)
        threads = [threading.Thread(target=work, args=(card, over)) for work in (_speak, _hear)]
        for thread in threads:
            thread.start()
        try:
            yield card
        finally:
            over.set()
            server.kill()
            for thread in threads:
                thread.join()


def _speak(card: Card, over: threading.Event) -> None:
    sound = said_in_room("okay nabu") + bytes(16_000)
    pipe = os.open(card.directory / "ears", os.O_RDWR | os.O_NONBLOCK)
    at = 0
    while not over.is_set():
        with suppress(BlockingIOError):
            at += os.write(pipe, sound[at : at + 1_024])
            at %= len(sound)
        over.wait(0.01)
    os.close(pipe)


def _hear(card: Card, over: threading.Event) -> None:
    pipe = os.open(card.directory / "mouth", os.O_RDWR | os.O_NONBLOCK)
    while not over.is_set():
        with suppress(BlockingIOError):
            card.played += os.read(pipe, 65_536)
        over.wait(0.01)
    os.close(pipe)


def test_the_meter_shows_what_the_microphone_hears(card):
    done = card.run("level", "--seconds", "6", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["loudest_db"] > -40
    assert "okay_nabu" in shown["wake_words"]


def test_a_text_is_spoken_by_the_loudspeaker(card):
    done = card.run("say", "the kitchen light is on")
    assert done.returncode == 0, done.stderr
    assert any(card.played)


def test_both_are_in_the_list_of_devices(card):
    done = card.run("devices", "--json")
    rows = json.loads(done.stdout)
    assert any(row["default"] and row["microphone"] and row["loudspeaker"] for row in rows)


def test_a_card_that_goes_is_an_error_in_one_line(card):
    with card.start("level", "--seconds", "600") as meter:
        assert meter.stdout is not None
        assert meter.stdout.read(1)  # the first line, once it hears
        card.server.kill()
        _, problem = meter.communicate(timeout=60)
    assert meter.returncode == 1
    assert "microphone" in problem
