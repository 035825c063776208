"""The microphone and the loudspeaker of this device as a Wyoming satellite of Home Assistant.

The wake word is heard here; what is said after it goes to Home Assistant, which understands, acts and answers
with sound. Before the wake word no sound leaves this device, and without a server nothing is listened to.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

from wyoming.asr import Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, WakeModel, WakeProgram
from wyoming.info import Satellite as About
from wyoming.ping import Ping, Pong
from wyoming.pipeline import PipelineStage, RunPipeline
from wyoming.satellite import PauseSatellite, RunSatellite, StreamingStarted, StreamingStopped
from wyoming.snd import Played
from wyoming.wake import Detection

from chat.tasks import open_tasks
from contracts.errors import InvalidMessage, SoundError
from voice.audio import FRAME_S, RATE, Loudspeaker, Sound, level
from voice.engines import WakeWord
from voice.wyoming.connection import Connection, chunk_of, read_as, sound_of, stop

_log = logging.getLogger(__name__)

_LONGEST: Final = round(30 / FRAME_S)
"""Frames after a wake word: a server that never finds the end of the speech does not listen on."""
_MOST_UNPLAYED: Final = 64 * 1024 * 1024
"""Bytes of an answer that wait for the loudspeaker: ten minutes, sent at once."""

MayAnswer = Callable[[str, float], Awaitable[bool]]
"""Says whether this device answers to a wake word, which it heard this loud; see `voice.audio.level`."""


class Names(NamedTuple):
    """What the satellite is called.

    Attributes:
        area: Name of its area; empty for none.
        wake_words: Names of the wake words that it waits for.
    """

    name: str
    area: str
    wake_words: tuple[str, ...]
    version: str


class Satellite:
    """A satellite; `serve` is for `open_server`, `hear` gets each frame of the microphone.

    Args:
        loudspeaker: Open for as long as the satellite serves.
        may_answer: Asked after each wake word.

    Attributes:
        wanted: Set while a server runs it: only then the microphone need be open.
    """

    def __init__(
        self, names: Names, *, wake: WakeWord, loudspeaker: Loudspeaker, may_answer: MayAnswer | None = None
    ) -> None:
        self.wanted = asyncio.Event()
        self._info = _info(names)
        self._wake = wake
        self._loudspeaker = loudspeaker
        self._may_answer = may_answer
        self._server: Connection | None = None
        self._left = 0  # frames that may still go out for the present pipeline
        self._playing: _Playing | None = None

    async def serve(self, connection: Connection) -> None:
        """Serve a connection until it ends; the last one that runs the satellite has it."""
        try:
            async with open_tasks() as tasks:
                while (event := await connection.read()) is not None:
                    await self._take(event, connection, tasks)
        finally:
            if self._server is connection:
                self._pause()

    async def hear(self, frame: bytes) -> None:
        """Take the next frame of the microphone."""
        server = self._server
        if server is None:
            return
        try:
            if self._left:
                await self._stream(frame, server)
            elif (name := self._wake.heard(frame)) is not None:
                self._wake.reset()
                if self._may_answer is None or await self._may_answer(name, level(frame)):
                    await self._begin(name, server)
        except OSError as error:
            _log.warning("the server of the satellite is gone: %s", error or type(error).__name__)
            server.close()

    async def _begin(self, name: str, server: Connection) -> None:
        if self._playing is not None:
            self._playing.cut()  # a person who speaks is not talked over
        self._left = _LONGEST
        run = RunPipeline(start_stage=PipelineStage.ASR, end_stage=PipelineStage.TTS, wake_word_name=name)
        await server.send(Detection(name=name), run, StreamingStarted())

    async def _stream(self, frame: bytes, server: Connection) -> None:
        self._left -= 1
        await server.send(chunk_of(Sound(frame, RATE)))
        if not self._left:
            await server.send(stop(), StreamingStopped())

    async def _take(self, event: Event, connection: Connection, tasks: asyncio.TaskGroup) -> None:
        if Describe.is_type(event.type):
            await connection.send(self._info)
        elif Ping.is_type(event.type):
            await connection.send(Pong(text=read_as(Ping, event).text))
        elif RunSatellite.is_type(event.type):
            if self._server not in (None, connection):
                self._pause()
            self._server = connection
            self.wanted.set()
            _log.info("%s runs the satellite", connection.peer)
        elif self._server is not connection:
            return
        elif PauseSatellite.is_type(event.type):
            self._pause()
        elif Transcript.is_type(event.type) or Error.is_type(event.type):
            if self._left:
                self._left = 0
                await connection.send(StreamingStopped())
        elif AudioStart.is_type(event.type):
            if self._playing is not None:
                self._playing.cut()
            self._playing = _Playing()
            tasks.create_task(self._play(self._playing, connection), name="satellite sound")
        elif AudioChunk.is_type(event.type) and self._playing is not None:
            self._playing.add(sound_of(event))
        elif AudioStop.is_type(event.type) and self._playing is not None:
            self._playing.end()

    async def _play(self, playing: "_Playing", connection: Connection) -> None:
        try:
            await playing.to(self._loudspeaker)
        except SoundError as error:
            _log.warning("an answer cannot be heard: %s", error)
        # A server waits for it before it listens again; where it is gone, the connection ends by itself.
        try:
            await connection.send(Played())
        except OSError:
            connection.close()

    def _pause(self) -> None:
        self._server, self._left = None, 0
        self.wanted.clear()
        self._wake.reset()
        if self._playing is not None:
            self._playing.cut()


class _Playing:
    """Sound that comes in pieces and is played, or cut short."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[Sound | None] = asyncio.Queue()
        self._unplayed = 0
        self._cut = asyncio.Event()

    def add(self, sound: Sound) -> None:
        self._unplayed += len(sound.samples)
        if self._unplayed > _MOST_UNPLAYED:
            raise InvalidMessage("more sound than anybody listens to")
        self._pieces.put_nowait(sound)

    def end(self) -> None:
        self._pieces.put_nowait(None)

    def cut(self) -> None:
        self._cut.set()

    async def to(self, loudspeaker: Loudspeaker) -> None:
        async with open_tasks() as tasks:
            played = tasks.create_task(loudspeaker.play(self._sounds()), name="satellite loudspeaker")
            cut = tasks.create_task(self._cut.wait(), name="satellite cut")
            await asyncio.wait((played, cut), return_when=asyncio.FIRST_COMPLETED)

    async def _sounds(self) -> AsyncIterator[Sound]:
        while (sound := await self._pieces.get()) is not None:
            self._unplayed -= len(sound.samples)
            yield sound


def _info(names: Names) -> Info:
    about = Attribution("Strawberry", "")
    satellite = About(
        names.name,
        about,
        installed=True,
        description=None,
        version=names.version,
        area=names.area or None,
        has_vad=False,
        active_wake_words=list(names.wake_words),
        max_active_wake_words=len(names.wake_words),
    )
    models = [
        WakeModel(word, about, installed=True, description=None, version=None, languages=[], phrase=word)
        for word in names.wake_words
    ]
    wake = WakeProgram("strawberry", about, installed=True, description=None, version=None, models=models)
    return Info(satellite=satellite, wake=[wake])
