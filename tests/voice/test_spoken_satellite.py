"""A spoke beside a real hub: as a satellite of Home Assistant, and where several devices hear a wake word."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.pipeline import RunPipeline
from wyoming.satellite import RunSatellite
from wyoming.snd import Played
from wyoming.wake import Detection

from bus.link import Message
from contracts import topics
from tests.hub_agent.home import Home, open_home
from tests.hub_registry.spokes import eventually
from tests.spoke.home import Place
from tests.voice.room import Room
from tests.voice.test_satellite import Server
from tests.voice.test_spoken_turns import is_in, speaking, voice_of
from voice.settings import SatelliteSettings

pytestmark = pytest.mark.voice


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    (tmp_path / "room").mkdir()
    with Room(tmp_path / "room") as room:
        yield room


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with open_home(tmp_path / "home") as opened:
        yield opened


async def test_home_assistant_uses_its_microphone_and_loudspeaker(home, room, tmp_path):
    satellite = SatelliteSettings(port=0)
    async with speaking(home, Place(tmp_path / "spoke"), room, satellite=satellite) as talker:
        await eventually(lambda: is_in(talker, "broken"))
        assert (await voice_of(talker))["reason"] == "no Home Assistant runs this satellite"
        port = talker.spoke._server.speech._service.satellite_port
        async with AsyncTcpClient("127.0.0.1", port) as client:
            server = Server(client)
            await server.send(Describe().event())
            about = Info.from_event((await server.until(Info))[-1]).satellite
            assert (about.name, about.area, about.active_wake_words) == ("Garage PC", "Garage", ["okay_nabu"])
            await server.send(RunSatellite().event())
            await eventually(lambda: is_in(talker, "listening"))
            await room.say("okay nabu", "play some jazz")
            seen = await server.until(AudioChunk)
            assert [Detection.is_type(seen[0].type), RunPipeline.is_type(seen[1].type)] == [True, True]
            for event in sound():
                await server.send(event)
            await server.until(Played)
            await eventually(lambda: len(room.heard) >= 32_000)
            async with talker.client() as local:
                await local.post("/api/voice/mute", json={"muted": True})
            await server.until_closed()
        await eventually(lambda: is_in(talker, "muted"))


async def test_a_wake_word_is_compared_with_what_other_devices_heard(home, room, tmp_path):
    heard: list[Message] = []
    await home.hub.link.subscribe(topics.WAKE_HEARD.filter(), heard.append, qos=0)
    async with speaking(home, Place(tmp_path / "spoke"), room) as talker:
        await eventually(lambda: is_in(talker, "listening"))
        await room.say("okay nabu")
        await eventually(lambda: heard)
        assert heard[0].topic == topics.WAKE_HEARD.build(device=talker.spoke.device)
        await eventually(lambda: is_in(talker, "hearing"))


def sound() -> list[Event]:
    form = {"rate": 16_000, "width": 2, "channels": 1}
    chunk = AudioChunk(audio=bytes(range(250)) * 128, **form)
    return [AudioStart(**form).event(), chunk.event(), AudioStop().event()]
