"""This device as a Wyoming satellite of Home Assistant; see `voice.satellite.satellite`."""

import asyncio
import logging

from wyoming.asr import Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, Satellite, WakeModel, WakeProgram
from wyoming.ping import Ping, Pong
from wyoming.pipeline import PipelineStage, RunPipeline
from wyoming.satellite import PauseSatellite, RunSatellite, StreamingStarted, StreamingStopped
from wyoming.snd import Played
from wyoming.wake import Detection

from chat.tasks import open_tasks
from voice.satellite.satellite import Names, phrase_of
from voice.satellite.satellite import Satellite as Device
from voice.serving import Serve
from voice.sound.audio import RATE, Sound
from voice.wyoming.connection import WyomingConnection, chunk_of, read_as, sound_of

_log = logging.getLogger(__name__)


def wyoming_satellite(device: Device, names: Names) -> Serve:
    """Return what serves the connections of a satellite, for `open_server`."""
    info = _info(names)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Server(device, WyomingConnection(reader, writer), info).run()

    return serve


class _Server:
    """One connection of a server; see `voice.satellite.satellite.Server`."""

    def __init__(self, device: Device, connection: WyomingConnection, info: Info) -> None:
        self._device = device
        self._connection = connection
        self._info = info

    async def run(self) -> None:
        """Serve until it ends."""
        try:
            async with open_tasks() as tasks:
                while (event := await self._connection.read()) is not None:
                    await self._take(event, tasks)
        finally:
            if self._device.is_run_by(self):
                self._device.pause()

    async def wake(self, word: str) -> None:
        run = RunPipeline(start_stage=PipelineStage.ASR, end_stage=PipelineStage.TTS, wake_word_name=word)
        await self._connection.send(Detection(name=word), run, StreamingStarted())

    async def sound(self, frame: bytes) -> None:
        await self._connection.send(chunk_of(Sound(frame, RATE)))

    async def cut(self) -> None:
        await self._connection.send(AudioStop(), StreamingStopped())

    async def played(self) -> None:
        await self._connection.send(Played())

    def close(self) -> None:
        self._connection.close()

    async def _take(self, event: Event, tasks: asyncio.TaskGroup) -> None:
        if Describe.is_type(event.type):
            await self._connection.send(self._info)
        elif Ping.is_type(event.type):
            await self._connection.send(Pong(text=read_as(Ping, event).text))
        elif RunSatellite.is_type(event.type):
            self._device.run_for(self)
            _log.info("%s runs the satellite", self._connection.peer)
        elif not self._device.is_run_by(self):
            return
        elif PauseSatellite.is_type(event.type):
            self._device.pause()
        elif Transcript.is_type(event.type) or Error.is_type(event.type):
            if self._device.understood():
                await self._connection.send(StreamingStopped())
        elif AudioStart.is_type(event.type):
            self._device.answer(self, tasks)
        elif AudioChunk.is_type(event.type):
            self._device.add(sound_of(event))
        elif AudioStop.is_type(event.type):
            self._device.end()


def _info(names: Names) -> Info:
    about = Attribution("Strawberry", "")
    satellite = Satellite(
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
        WakeModel(
            each, about, installed=True, description=None, version=None, languages=[], phrase=phrase_of(each)
        )
        for each in names.wake_words
    ]
    wake = WakeProgram("strawberry", about, installed=True, description=None, version=None, models=models)
    return Info(satellite=satellite, wake=[wake])
