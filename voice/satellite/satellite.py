"""The microphone and the loudspeaker of this device, for a server that understands and answers.

The wake word is heard here. Before it no sound leaves this device, and without a server
nothing is listened to.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from contracts.errors import InvalidMessage, SoundError
from voice import limits
from voice.engines import WakeWord
from voice.pipeline import MayAnswer
from voice.sound.audio import FRAME_S, LOUDNESS_FRAMES, Loudspeaker, Microphone, Sound, level

_log = logging.getLogger(__name__)

_LONGEST: Final = round(30 / FRAME_S)
"""Frames after a wake word: a server that never finds the end of the speech does not listen on."""


class Names(NamedTuple):
    """What a satellite is called.

    Attributes:
        id: Of the device.
        area: Name of its area; empty for none.
        wake_words: Names of the wake words that it waits for.
    """

    id: str
    name: str
    area: str
    wake_words: tuple[str, ...]
    version: str


def phrase_of(word: str) -> str:
    # As it is spoken: Home Assistant uses one of the satellites that hear the same.
    return word.replace("_", " ")


class Server(Protocol):
    """A server that runs the satellite, over its connection; its methods raise `OSError` where it is gone."""

    async def wake(self, word: str) -> None:
        """Report a wake word: what follows is for the server."""

    async def sound(self, frame: bytes) -> None:
        """Send a frame of speech."""

    async def cut(self) -> None:
        """Report the end of the speech before the server has found it."""

    async def played(self) -> None:
        """Report that the answer was heard."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(eq=False, kw_only=True)
class Satellite:
    """What is the same whatever the server speaks; `hear` gets each frame of the microphone.

    Attributes:
        loudspeaker: Open for as long as the satellite serves.
        may_answer: Asked after each wake word.
        changed: Called with whether a server runs it, when that changes.

    Attributes:
        wanted: Set while a server runs it: only then the microphone need be open.
    """

    wake: WakeWord
    loudspeaker: Loudspeaker
    may_answer: MayAnswer | None = None
    changed: Callable[[bool], None] = lambda is_run: None

    def __post_init__(self) -> None:
        self.wanted = asyncio.Event()
        self._server: Server | None = None
        self._left = 0  # frames that may still go out for the present request
        self._levels: deque[float] = deque(maxlen=LOUDNESS_FRAMES)
        self._pieces: asyncio.Queue[Sound | None] | None = None  # of the answer that is coming
        self._unplayed = 0
        self._playing: asyncio.Task[None] | None = None

    async def hear(self, frame: bytes) -> None:
        """Process the next frame of the microphone."""
        server = self._server
        if server is None:
            return
        self._levels.append(level(frame))
        try:
            if self._left:
                self._left -= 1
                await server.sound(frame)
                if not self._left:
                    await server.cut()
            elif (word := self.wake.heard(frame)) is not None:
                self.wake.reset()
                if self.may_answer is None or await self.may_answer(word, max(self._levels)):
                    await self._begin(word, server)
        except OSError as error:
            _log.warning("the server of the satellite is gone: %s", error or type(error).__name__)
            server.close()

    def is_run_by(self, server: Server) -> bool:
        return self._server is server

    def run_for(self, server: Server) -> None:
        """Serve one server, in place of the one before."""
        if self._server is not server:
            self.pause()
        self._server = server
        self.wanted.set()
        self.changed(True)

    def pause(self) -> None:
        """Listen to nothing, and fall silent."""
        if self._server is not None:
            self.changed(False)
        self._server, self._left = None, 0
        self._levels.clear()
        self.wanted.clear()
        self.wake.reset()
        self.silence()

    def understood(self) -> bool:
        """Stop sending speech; return whether anything was being sent."""
        was, self._left = self._left > 0, 0
        return was

    def silence(self) -> None:
        """Cut short what is being played."""
        self._pieces = None
        if self._playing is not None:
            self._playing.cancel()

    def answer(self, server: Server, tasks: asyncio.TaskGroup) -> None:
        """Play what is given to `add` from now on."""
        self.silence()
        self._pieces, self._unplayed = asyncio.Queue(), 0
        self._playing = tasks.create_task(self._play(self._pieces), name="satellite sound")
        tasks.create_task(_report(self._playing, server), name="satellite played")

    def add(self, sound: Sound) -> None:
        """Add to what is played; nothing where no answer was begun.

        Raises:
            InvalidMessage: If it is too much.
        """
        if self._pieces is None:
            return
        self._unplayed += len(sound.samples) + limits.PIECE_BYTES
        if self._unplayed > limits.MAX_UNPLAYED_BYTES:
            raise InvalidMessage("more sound than anybody listens to")
        self._pieces.put_nowait(sound)

    def end(self) -> None:
        """End what is played with what was added."""
        if self._pieces is not None:
            self._pieces.put_nowait(None)
        self._pieces = None

    async def _begin(self, word: str, server: Server) -> None:
        self.silence()  # a person who speaks is not talked over
        self._left = _LONGEST
        await server.wake(word)

    async def _play(self, pieces: asyncio.Queue[Sound | None]) -> None:
        async def sounds() -> AsyncIterator[Sound]:
            while (sound := await pieces.get()) is not None:
                self._unplayed -= len(sound.samples) + limits.PIECE_BYTES
                yield sound

        try:
            await self.loudspeaker.play(sounds())
        except SoundError as error:
            _log.warning("an answer cannot be heard: %s", error)


async def _report(playing: asyncio.Task[None], server: Server) -> None:
    """Tell the server that its answer was heard, or cut short: it waits for that before it listens again."""
    await asyncio.wait((playing,))
    try:
        await server.played()
    except OSError:
        server.close()


async def listen(device: Satellite, microphone: Callable[[], Microphone]) -> None:
    """Yield what the microphone hears, which is open only while a server runs it.

    Raises:
        SoundError: If the microphone cannot be opened, or goes.
    """
    while True:
        await device.wanted.wait()
        async with microphone() as opened:
            async for frame in opened:
                await device.hear(frame)
                if not device.wanted.is_set():
                    break
            else:
                return  # a file has an end
