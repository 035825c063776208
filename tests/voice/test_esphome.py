"""The voice assistant for Home Assistant's ESPHome integration, driven by that integration's own client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from tests.hub_agent.home import wait_for
from tests.hub_registry.spokes import eventually
from tests.requirements import require
from tests.voice.test_satellite import NAMES, QUIET, SPEECH, WORD, OneWord, Recorder
from voice.satellite.satellite import Satellite
from voice.service import open_satellite
from voice.settings import SatelliteSettings

require(find_spec("aioesphomeapi") is not None, "pip install -e '.[esphome]'")
aioesphomeapi: Any = import_module("aioesphomeapi")
Event: Any = aioesphomeapi.VoiceAssistantEventType


@dataclass
class HomeAssistant:
    """What the integration does with the device."""

    client: Any
    starts: list[str | None] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    stops: list[bool] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, _conversation: str, _flags: int, _settings: Any, phrase: str | None) -> int:
        self.starts.append(phrase)
        return 0

    async def stop(self, abort: bool) -> None:
        self.stops.append(abort)

    async def audio(self, data: bytes, _second: bytes | None) -> None:
        self.heard.append(data)

    async def played(self, _: Any) -> None:
        self.finished.set()

    def subscribe(self) -> None:
        self.client.subscribe_voice_assistant(
            handle_start=self.start,
            handle_stop=self.stop,
            handle_audio=self.audio,
            handle_announcement_finished=self.played,
        )


@dataclass
class World:
    satellite: Satellite
    loudspeaker: Recorder
    port: int

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[HomeAssistant]:
        client = aioesphomeapi.APIClient("127.0.0.1", self.port, None)
        await client.connect(login=True)
        try:
            yield HomeAssistant(client)
        finally:
            await client.disconnect()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    loudspeaker = Recorder()
    satellite = Satellite(wake=OneWord(), loudspeaker=loudspeaker)
    settings = SatelliteSettings(protocol="esphome", port=0)
    async with open_satellite(settings, satellite, NAMES) as port:
        yield World(satellite, loudspeaker, port)


async def test_it_is_a_voice_assistant_of_its_area(world: World) -> None:
    async with world.connected() as home:
        info = await home.client.device_info()
        entities, services = await home.client.list_entities_services()
        configuration = await home.client.get_voice_assistant_configuration(60)
    assert (info.name, info.friendly_name, info.suggested_area) == ("kitchen-pi", "Kitchen", "Ground floor")
    assert info.voice_assistant_feature_flags == 7
    assert int(info.mac_address[:2], 16) & 3 == 2
    assert (entities, services) == ([], [])
    assert configuration.active_wake_words == ["hey_jarvis"]
    assert not world.satellite.wanted.is_set()


async def test_what_is_said_after_the_wake_word_is_sent_and_the_answer_played(world: World) -> None:
    async with world.connected() as home:
        home.subscribe()
        await wait_for(world.satellite.wanted)
        for frame in (SPEECH, QUIET, WORD, SPEECH, SPEECH):
            await world.satellite.hear(frame)
        await eventually(lambda: len(home.heard) == 2)
        assert (home.starts, home.heard) == (["hey jarvis"], [SPEECH, SPEECH])
        home.client.send_voice_assistant_event(Event.VOICE_ASSISTANT_STT_END, {"text": "lights on"})
        home.client.send_voice_assistant_event(Event.VOICE_ASSISTANT_TTS_STREAM_START, {})
        for piece in (b"ab", b"cd"):
            home.client.send_voice_assistant_audio(piece)
        home.client.send_voice_assistant_event(Event.VOICE_ASSISTANT_TTS_STREAM_END, {})
        await wait_for(home.finished)
        await world.satellite.hear(SPEECH)
        await home.client.device_info()
    assert world.loudspeaker.heard == [b"ab", b"cd"]
    assert len(home.heard) == 2


async def test_a_home_assistant_that_goes_hears_nothing_more(world: World) -> None:
    async with world.connected() as home:
        home.subscribe()
        await wait_for(world.satellite.wanted)
        await world.satellite.hear(WORD)
    await eventually(lambda: not world.satellite.wanted.is_set())
    await world.satellite.hear(SPEECH)


@pytest.mark.parametrize(
    "hostile",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\1\0\0",
        b"\0\xff\xff\xff\xff\x7f\1",
        b"\0\xff\xff\xff\xff\xff\xff\1\1",
        b"\0\x03\x01\xff\xff\xff",
        b"\0\0\x7f" * 100,
    ],
)
async def test_hostile_connections_end(world: World, hostile: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(hostile)
    writer.write_eof()
    assert await reader.read(-1) == b""
    writer.close()
    async with world.connected() as home:
        assert (await home.client.device_info()).friendly_name == "Kitchen"


async def test_a_client_that_wants_encryption_is_refused(world: World) -> None:
    client = aioesphomeapi.APIClient(
        "127.0.0.1", world.port, None, noise_psk="QRTIErOb/fcE9Ukd/5qA3RGYMn0Y+p06U58SCtOXvPc="
    )
    with pytest.raises(aioesphomeapi.APIConnectionError):
        await client.connect(login=True)
