"""A sound card: a PulseAudio of its own with pipes in place of hardware, which can be taken away."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.requirements import require
from tests.voice.room import hiss, said_in_room
from voice.sound.audio import RATE

PLUGIN = list(Path("/usr/lib").rglob("libasound_module_pcm_pulse.so"))
_FORM = "format=s16le rate=16000 channels=1"
_HISS = hiss(1)


class Card:
    """A microphone that hears what is said, and a faint hiss otherwise, and a loudspeaker.

    Attributes:
        environment: By which a program finds the card.
        played: What the loudspeaker was given.
    """

    def __init__(self, directory: Path) -> None:
        self.environment = {"HOME": str(directory), "PULSE_SERVER": f"unix:{directory}/native"}
        self.played = bytearray()
        self._directory = directory
        self._waiting = bytearray()
        self._over = threading.Event()

    def plug_in(self) -> None:
        """Start the server, and wait until it has both devices."""
        for name in ("native", "ears", "mouth"):
            (self._directory / name).unlink(missing_ok=True)
        modules = (
            f"module-native-protocol-unix socket={self._directory}/native auth-anonymous=1",
            f"module-pipe-source source_name=ears file={self._directory}/ears {_FORM}",
            f"module-pipe-sink sink_name=mouth file={self._directory}/mouth {_FORM}",
        )
        options = ["-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disable-shm=yes"]
        self._server = subprocess.Popen(
            ["pulseaudio", *options, *(word for module in modules for word in ("-L", module))],
            env=os.environ | self.environment | {"XDG_RUNTIME_DIR": str(self._directory)},
            stderr=subprocess.DEVNULL,
        )
        while not (self._directory / "native").exists() or not (self._directory / "mouth").exists():
            assert self._server.poll() is None
            self._over.wait(0.02)
        self._threads = [threading.Thread(target=work) for work in (self._speak, self._hear)]
        for thread in self._threads:
            thread.start()

    def unplug(self) -> None:
        """Take the card away, as a cable that is pulled out does."""
        self._over.set()
        self._server.kill()
        self._server.wait()
        for thread in self._threads:
            thread.join()
        self._over.clear()

    def say(self, *texts: str) -> None:
        """Say texts one after the other once what was said before is over, with a pause behind them."""
        self._waiting += b"".join(map(said_in_room, texts)) + hiss(2)

    def _speak(self) -> None:
        pipe = os.open(self._directory / "ears", os.O_RDWR | os.O_NONBLOCK)
        began, written = time.monotonic(), 0
        while not self._over.wait(0.01):
            # As fast as time goes by: what is late is made up for.
            due = 2 * int((time.monotonic() - began) * RATE) - written
            said = bytes(self._waiting[:due])
            with suppress(BlockingIOError):
                sent = os.write(pipe, said or _HISS[:due])
                written += sent
                if said:  # hiss takes nothing of what was added since
                    del self._waiting[:sent]
        os.close(pipe)

    def _hear(self) -> None:
        pipe = os.open(self._directory / "mouth", os.O_RDWR | os.O_NONBLOCK)
        while not self._over.wait(0.01):
            with suppress(BlockingIOError):
                self.played += os.read(pipe, 65_536)
        os.close(pipe)


@contextmanager
def sound_card(directory: Path) -> Iterator[Card]:
    """Plug a card in for the length of a block."""
    require(
        shutil.which("pulseaudio") is not None and PLUGIN != [], "apt install pulseaudio libasound2-plugins"
    )
    (directory / ".asoundrc").write_text("pcm.!default { type pulse }\nctl.!default { type pulse }\n")
    card = Card(directory)
    card.plug_in()
    try:
        yield card
    finally:
        card.unplug()
