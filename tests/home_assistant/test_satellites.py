"""A spoke as satellite of a real Home Assistant: its pipeline hears, asks an assistant and answers aloud."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from tests.home_assistant.server import HomeAssistant, install_later
from tests.home_assistant.test_brain import use_as_brain
from tests.home_assistant.test_inward import CONFIGURATION, connected, hub_beside
from tests.hub_registry.spokes import eventually
from tests.requirements import require
from tests.spoke.home import Place
from tests.voice.room import Room
from tests.voice.spoken import HINT, can_speak
from tests.voice.test_spoken_turns import is_in, speaking
from tests.voice.wyoming_server import wyoming_server
from voice.settings import SatelliteSettings


async def use_pipeline(assistant: HomeAssistant, agent: str) -> None:
    """Have it hear and speak by the Wyoming server, and answer by this agent."""
    made = await assistant.command(
        "assist_pipeline/pipeline/create",
        name=agent,
        language="en",
        conversation_engine=agent,
        conversation_language="en",
        stt_engine="stt.sphinx",
        stt_language="en",
        tts_engine="tts.espeak",
        tts_language="en",
        tts_voice=None,
        wake_word_entity=None,
        wake_word_id=None,
    )
    await assistant.command("assist_pipeline/pipeline/set_preferred", pipeline_id=made["id"])


async def test_it_hears_and_answers_through_a_spoke_over_wyoming_and_over_esphome(
    home_assistant_directory: Path, tmp_path: Path
) -> None:
    require(can_speak(), HINT)
    require(shutil.which("ffmpeg") is not None, "apt install ffmpeg")
    opened = HomeAssistant(
        home_assistant_directory, configuration=f"{CONFIGURATION}\nassist_pipeline:\nmedia_source:\n"
    )
    install_later(home_assistant_directory, "ollama")
    install_later(home_assistant_directory, "esphome")
    with Room(tmp_path) as room, wyoming_server() as speech:
        async with opened as assistant, hub_beside(assistant, tmp_path / "home") as home:

            async def switch_by_voice(protocol: Any, wake_word: str, said: str) -> None:
                """Set a spoke up in Home Assistant, say a sentence there, and hear the answer."""
                satellite = SatelliteSettings(protocol=protocol, port=0)
                speaker = partial(speaking, home, Place(tmp_path / protocol), room, name=protocol)
                async with speaker(satellite=satellite, wake_words=(wake_word,)) as talker:
                    await eventually(lambda: is_in(talker, "broken"))
                    port: Any = talker.spoke._server.speech._service.satellite_port
                    await assistant.set_up(protocol, {"host": "127.0.0.1", "port": port})
                    await eventually(lambda: is_in(talker, "listening"))
                    room.heard.clear()
                    await room.say(said, "turn on the kitchen light")
                    await assistant.until("light.kitchen", "on")
                    await eventually(lambda: len(room.heard) > 32_000)
                await assistant.call("light.turn_off", entity_id="light.kitchen")
                assert await assistant.state(f"binary_sensor.{protocol}_assist_in_progress") is not None

            await connected(home)
            await assistant.set_up("wyoming", {"host": "127.0.0.1", "port": speech.port})
            await use_pipeline(assistant, await use_as_brain(assistant, home))
            await switch_by_voice("wyoming", "okay_nabu", "okay nabu")
            await use_pipeline(assistant, "homeassistant")
            # For two seconds it takes the same wake word for another satellite's.
            await switch_by_voice("esphome", "alexa", "alexa")
        assert speech.spoken == ["Turned on Kitchen Light.\n", "Turned on the light\n"]
