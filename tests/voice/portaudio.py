"""A stand-in for PortAudio that says which of its streams are open, and whether one of them was freed."""

import threading
from typing import Any

import pytest

from voice.sound import card as sound_card


class PortAudio:
    """See `sounddevice`.

    Attributes:
        opening: Set when a stream is about to be opened.
        go: Waited for before one is.
        open: Streams that are open.
        freed: How many were when the library was initialized anew.
    """

    PortAudioError = RuntimeError

    def __init__(self) -> None:
        self.opening = threading.Event()
        self.go = threading.Event()
        self.go.set()
        self.open: list[Any] = []
        self.freed = 0
        self.looked = 0
        self.RawInputStream = self.RawOutputStream = self._stream

    def _terminate(self) -> None:
        self.freed += len(self.open)

    def _initialize(self) -> None:
        self.looked += 1

    def query_devices(self, name: str | None, direction: str) -> dict[str, Any]:
        return {"index": 0, "default_samplerate": 48_000.0}

    def _stream(self, **options: Any) -> "_Stream":
        self.opening.set()
        self.go.wait()
        return _Stream(self)


class _Stream:
    def __init__(self, library: PortAudio) -> None:
        self._library = library
        self.start = self.stop = self.abort = lambda: None
        library.open.append(self)

    def close(self) -> None:
        self._library.open.remove(self)

    def write(self, block: bytes) -> None:
        pass


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> PortAudio:
    library = PortAudio()
    monkeypatch.setattr(sound_card, "installed", lambda name: library)
    return library
