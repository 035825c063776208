"""A room with a microphone and a loudspeaker that are pipes: what is said in it, and what is heard."""

import asyncio
import os
import random
import threading
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, Self

from contracts.chat.messages import ConfirmationWanted, TurnEvent
from tests.voice.spoken import spoken
from voice.engines import Transcript
from voice.pipeline import Activity
from voice.sound.audio import RATE

VOICE = "espeak:en-us"
WAKE = "okay_nabu"
_HISS = cycle(random.Random(1).choices(range(-98, 99), k=50_000))
SETTINGS: dict[str, Any] = {"wake_words": (WAKE,), "tones": False}

said_in_room = cache(lambda text: spoken(text, voice=VOICE, after_s=0.3))


class Room:
    """Both pipes; the loudspeaker is listened to unless it is `blocked`, and then a speech never ends."""

    def __init__(self, directory: Path) -> None:
        self.microphone = directory / "microphone"
        self.loudspeaker = directory / "loudspeaker"
        self.heard = bytearray()
        self._open = threading.Event()
        self._open.set()
        self._ended = False

    def __enter__(self) -> Self:
        for pipe in (self.microphone, self.loudspeaker):
            os.mkfifo(pipe)
        self._out = os.open(self.loudspeaker, os.O_RDWR | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()
        os.close(self._out)

    def block(self) -> None:
        self._open.clear()

    def unblock(self) -> None:
        self._open.set()

    def unplug(self) -> None:
        """Take the microphone away."""
        self.microphone.unlink()

    def plug_in(self) -> None:
        os.mkfifo(self.microphone)

    def _listen(self) -> None:
        pause = threading.Event()
        while not self._ended:
            if self._open.is_set():
                with suppress(BlockingIOError):
                    self.heard += os.read(self._out, 65_536)
                    continue
            pause.wait(0.01)

    async def say(self, *texts: str, loudness: float = 1.0) -> None:
        """Say texts one after the other, with silence around them that ends an utterance."""
        pause, said = hiss(1), array("h", b"".join(map(said_in_room, texts)))
        await self.sound(pause + array("h", (int(each * loudness) for each in said)).tobytes() + pause)

    async def silence(self, seconds: int) -> None:
        await self.sound(hiss(seconds))

    async def sound(self, samples: bytes) -> None:
        def write() -> None:
            with self.microphone.open("wb") as pipe:
                pipe.write(samples)

        await asyncio.to_thread(write)


def hiss(seconds: int) -> bytes:
    return array("h", [next(_HISS) for _ in range(seconds * RATE)]).tobytes()


Answers = Callable[[str], Sequence[TurnEvent]]


@dataclass
class ScriptedChat:
    """A chat that gives the same events each time; between them it may wait.

    Attributes:
        asked: What it was asked.
        approved: The answers to its questions.
        cancelled: How many turns were closed before their end.
        go: Waited for before the last event.
    """

    events: Sequence[TurnEvent]
    asked: list[str] = field(default_factory=list)
    approved: list[bool] = field(default_factory=list)
    cancelled: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.go.set()

    async def ask(self, message: str) -> AsyncGenerator[TurnEvent, None]:
        self.asked.append(message)
        complete = False
        try:
            for number, event in enumerate(self.events):
                if number == len(self.events) - 1:
                    await self.go.wait()
                yield event
            complete = True
        finally:
            self.cancelled += not complete

    async def answer(self, wanted: ConfirmationWanted, *, approve: bool) -> None:
        self.approved.append(approve)


@dataclass
class Notes:
    """Follows a pipeline; see `voice.pipeline.Observer`."""

    activities: list[Activity] = field(default_factory=list)
    transcripts: list[Transcript] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def now(self) -> str:
        return self.activities[-1] if self.activities else ""

    def activity(self, activity: Activity) -> None:
        self.activities.append(activity)

    def understood(self, transcript: Transcript, engine: str) -> None:
        self.transcripts.append(transcript)

    def problem(self, engine: str, problem: str) -> None:
        self.problems[engine] = problem
