"""The Wyoming satellite, driven by a client that does what Home Assistant does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

import pytest
from wyoming.asr import Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.pipeline import PipelineStage, RunPipeline
from wyoming.satellite import PauseSatellite, RunSatellite
from wyoming.snd import Played
from wyoming.wake import Detection

from chat.tasks import open_tasks
from contracts.errors import ConfigError, SoundError
from tests.hub_agent.home import wait_for
from tests.hub_registry.spokes import eventually
from voice.satellite.satellite import Names, Satellite, listen
from voice.service import open_satellite
from voice.settings import SatelliteSettings
from voice.sound.audio import Loudspeaker, Sound

QUIET, WORD, SPEECH = bytes(640), b"\1" * 640, b"\2" * 640
NAMES = Names("kitchen_pi", "Kitchen", "Ground floor", ("hey_jarvis",), "1")


class OneWord:
    """A wake word that is a certain frame."""

    def heard(self, frame: bytes) -> str | None:
        return "hey_jarvis" if frame == WORD else None

    def reset(self) -> None:
        pass


@dataclass
class Recorder(Loudspeaker):
    """A loudspeaker that keeps what it played."""

    heard: list[bytes] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    silenced: asyncio.Event = field(default_factory=asyncio.Event)
    broken: bool = False

    async def play(self, sound: AsyncIterator[Sound]) -> None:
        if self.broken:
            raise SoundError("the loudspeaker is gone")
        try:
            async for piece in sound:
                self.heard.append(piece.samples)
                self.began.set()
        except asyncio.CancelledError:
            self.silenced.set()
            raise


@dataclass
class World:
    satellite: Satellite
    loudspeaker: Recorder
    port: int

    @asynccontextmanager
    async def server(self) -> AsyncIterator["Server"]:
        """Home Assistant, once it runs the satellite."""
        async with AsyncTcpClient("127.0.0.1", self.port) as client:
            await client.write_event(RunSatellite().event())
            await wait_for(self.satellite.wanted)
            yield Server(client)

    async def say(self, *frames: bytes) -> None:
        for frame in frames:
            await self.satellite.hear(frame)


@dataclass
class Server:
    client: AsyncTcpClient

    async def send(self, event: Event) -> None:
        await self.client.write_event(event)

    async def until(self, kind: type) -> list[Event]:
        """The events up to one of a kind."""
        seen: list[Event] = []
        async with asyncio.timeout(60):
            while not seen or not kind.is_type(seen[-1].type):  # type: ignore[attr-defined]
                event = await self.client.read_event()
                assert event is not None
                seen.append(event)
        return seen

    async def until_closed(self) -> None:
        """Wait until the satellite hangs up."""
        async with asyncio.timeout(60):
            while await self.client.read_event() is not None:
                pass

    async def handled(self) -> None:
        """Wait until the satellite has read all that was sent."""
        await self.send(Ping("read").event())
        await self.until(Pong)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


@asynccontextmanager
async def opened(**more: object) -> AsyncIterator[World]:
    loudspeaker = Recorder()
    satellite = Satellite(wake=OneWord(), loudspeaker=loudspeaker, **more)  # type: ignore[arg-type]
    async with open_satellite(SatelliteSettings(port=0), satellite, NAMES) as port:
        yield World(satellite, loudspeaker, port)


def answer(*pieces: bytes) -> list[Event]:
    form = {"rate": 22_050, "width": 2, "channels": 1}
    chunks = [AudioChunk(audio=piece, **form).event() for piece in pieces]
    return [AudioStart(**form).event(), *chunks, AudioStop().event()]


async def test_it_describes_itself(world: World) -> None:
    async with AsyncTcpClient("127.0.0.1", world.port) as client:
        await client.write_event(Describe().event())
        event = await client.read_event()
    assert event is not None
    info = Info.from_event(event)
    assert info.satellite is not None
    assert (info.satellite.name, info.satellite.area, info.satellite.installed) == (
        "Kitchen",
        "Ground floor",
        True,
    )
    assert info.satellite.active_wake_words == ["hey_jarvis"]
    assert not world.satellite.wanted.is_set()


async def test_only_what_is_said_after_the_wake_word_leaves_the_device(world: World) -> None:
    await world.say(SPEECH, WORD)  # nobody runs it yet
    async with world.server() as server:
        await world.say(SPEECH, QUIET, WORD, SPEECH, SPEECH)
        seen = await server.until(AudioChunk)
        assert Detection.from_event(seen[0]).name == "hey_jarvis"
        run = RunPipeline.from_event(seen[1])
        assert (run.start_stage, run.end_stage) == (PipelineStage.ASR, PipelineStage.TTS)
        assert seen[-1].payload == SPEECH
        await server.send(Transcript("lights on").event())
        await server.handled()
        await world.say(SPEECH)
        for event in answer(b"ab", b"cd"):
            await server.send(event)
        after = await server.until(Played)
    assert not any(AudioChunk.is_type(event.type) for event in after)
    assert world.loudspeaker.heard == [b"ab", b"cd"]


async def test_a_wake_word_silences_the_answer(world: World) -> None:
    async with world.server() as server:
        for event in answer(b"ab")[:-1]:  # the rest of a long answer never comes
            await server.send(event)
        await wait_for(world.loudspeaker.began)
        await world.say(WORD)
        await wait_for(world.loudspeaker.silenced)
        await server.until(RunPipeline)


async def test_another_device_that_is_louder_answers() -> None:
    asked: list[tuple[str, float]] = []

    async def never(name: str, loudness: float) -> bool:
        asked.append((name, loudness))
        return False

    async with opened(may_answer=never) as world, world.server() as server:
        await world.say(WORD, SPEECH)
        await server.handled()
    assert [(name, -96 < loudness < 0) for name, loudness in asked] == [("hey_jarvis", True)]


async def test_speech_without_an_end_is_cut_off(world: World) -> None:
    async with world.server() as server:
        await world.say(WORD, *[SPEECH] * 1_600)
        seen = await server.until(AudioStop)
    assert sum(AudioChunk.is_type(event.type) for event in seen) == 1_500


async def test_a_server_that_pauses_or_goes_hears_nothing_more(world: World) -> None:
    async with world.server() as server:
        await server.send(PauseSatellite().event())
        await server.handled()
        assert not world.satellite.wanted.is_set()
        await server.send(RunSatellite().event())
        await wait_for(world.satellite.wanted)
        await world.say(WORD)
    await eventually(lambda: not world.satellite.wanted.is_set())
    await world.say(SPEECH, WORD)


async def test_another_server_takes_over_and_a_stranger_plays_nothing(world: World) -> None:
    async with world.server() as first, AsyncTcpClient("127.0.0.1", world.port) as stranger:
        for event in answer(b"ab"):
            await stranger.write_event(event)
        await stranger.write_event(Ping().event())
        assert await stranger.read_event() is not None
        assert world.loudspeaker.heard == []
        async with world.server() as second:
            await second.handled()
            await world.say(WORD)
            await second.until(RunPipeline)
        await first.handled()


async def test_without_a_loudspeaker_the_server_goes_on(world: World) -> None:
    world.loudspeaker.broken = True
    async with world.server() as server:
        for event in answer(b"ab"):
            await server.send(event)
        await server.until(Played)
        await world.say(WORD)
        await server.until(RunPipeline)


@dataclass
class Queued:
    """A microphone that hears what it is given, and knows whether it is open."""

    frames: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self.opened.set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.opened.clear()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.frames.get()


async def test_the_microphone_is_open_only_while_a_server_runs_the_satellite(world: World) -> None:
    microphone = Queued()
    async with open_tasks() as tasks:
        tasks.create_task(listen(world.satellite, lambda: microphone), name="microphone")
        async with world.server() as server:
            await wait_for(microphone.opened)
            microphone.frames.put_nowait(WORD)
            await server.until(RunPipeline)
        await eventually(lambda: not world.satellite.wanted.is_set())
        microphone.frames.put_nowait(QUIET)
        await eventually(lambda: not microphone.opened.is_set())


async def test_other_machines_are_let_in_by_their_address_alone(world: World) -> None:
    settings = SatelliteSettings(host="0.0.0.0")
    with pytest.raises(ConfigError, match="no login"):
        async with open_satellite(settings, world.satellite, NAMES):
            pass
    taken = SatelliteSettings(port=world.port)
    with pytest.raises(ConfigError, match=f"cannot listen for Wyoming on 127.0.0.1 port {world.port}: it is"):
        async with open_satellite(taken, world.satellite, NAMES):
            pass
    elsewhere = SatelliteSettings(host="192.0.2.1", allow=("192.0.2.2",))
    with pytest.raises(ConfigError, match=r"Wyoming on 192\.0\.2\.1 port") as error:
        async with open_satellite(elsewhere, world.satellite, NAMES):
            pass
    assert "address of this machine" in error.value.hint
