"""A spoke with a voice, beside a real hub: sound goes in and comes out, and parts go away and come back."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from spoke.app import open_spoke
from spoke.settings import ChatSettings
from tests.hub_agent.home import Home, open_home
from tests.hub_registry.spokes import eventually
from tests.model_server import Says, ScriptedModel
from tests.spoke.home import JOURNAL, Place
from tests.spoke.talk import Line, Talker, small_model
from tests.voice.room import SETTINGS, Room
from voice.settings import VoiceSettings

SKILL = JOURNAL.replace("destructive=True)", 'destructive=True, sentences={"en": ["burn the journal"]})')


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(lambda seen: Says(text="The hub answers.")) as server:
        yield server


@pytest.fixture
async def home(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Home]:
    async with open_home(tmp_path / "home", models=small_model(model.base_url)) as opened:
        yield opened


@asynccontextmanager
async def speaking(
    home: Home, place: Place, room: Room, *, name: str = "Garage PC", marked: bool = True, **voice: Any
) -> AsyncIterator[Talker]:
    """A spoke of this home that listens in a room."""
    place.add_skill("journal.py", SKILL)
    pipes = {"microphone": f"file:{room.microphone}", "loudspeaker": f"file:{room.loudspeaker}"}
    settings = VoiceSettings(**{"enabled": True, "confirm": True} | SETTINGS | pipes | voice)
    async with Line(home.hub.url) as line:
        async with home.client() as client:
            device = {"name": name, "confirm": marked, "trusted": True, "area": "Garage"}
            added = (await client.post("/api/devices", json=device)).json()
        chat = ChatSettings(hub_s=60, check_s=60, retry_s=0.05)
        set_up = place.settings_at(line.url, chat=chat, voice=settings)
        async with open_spoke(set_up, token=SecretStr(added["token"])) as spoke:
            entry = home.hub.registry.directory.get(spoke.device)
            assert entry is not None
            await eventually(lambda: entry.connected and "JournalSkill" in entry.skills)
            yield Talker(spoke, place, line)


async def voice_of(talker: Talker) -> dict[str, Any]:
    async with talker.client() as client:
        shown: dict[str, Any] = (await client.get("/api/voice")).json()
    return shown


async def is_in(talker: Talker, state: str) -> bool:
    return bool((await voice_of(talker))["state"] == state)


async def knows_the_home(talker: Talker) -> bool:
    """Whether the grammar was made of what the hub says, with this spoke's own sentence in it."""
    pipeline = talker.spoke._server.speech._service._pipeline
    engines: Any = pipeline.engines.speech_to_text.values() if pipeline is not None else [None]
    return all("burn the journal" in str(getattr(each, "_vocabulary", "")) for each in engines)


async def test_a_name_is_in_the_grammar_once_the_home_has_it(home, room, tmp_path):
    async with speaking(home, Place(tmp_path / "spoke"), room) as talker:
        await eventually(lambda: knows_the_home(talker))
        engines: Any = talker.spoke._server.speech._service._pipeline.engines
        (grammar,) = engines.speech_to_text.values()
        async with home.client() as client:
            named = await client.patch(
                f"/api/devices/{talker.spoke.device}", json={"aliases": ["Big Wizard"]}
            )
        assert named.status_code == 200
        await eventually(lambda: "Big Wizard" in grammar._vocabulary.names)


async def test_a_spoken_sentence_runs_a_skill_and_a_spoken_yes_confirms_it(home, room, tmp_path):
    place = Place(tmp_path / "spoke")
    async with speaking(home, place, room) as talker:
        await eventually(lambda: is_in(talker, "listening"))
        await eventually(lambda: knows_the_home(talker))
        await room.say("okay nabu", "burn the journal")
        await eventually(lambda: len(room.heard) > 32_000)
        await eventually(lambda: is_in(talker, "hearing"))
        await room.say("yes do it")
        await eventually(lambda: place.journal == ["burnt"])
        async with home.client() as client:
            turns = (await client.get("/api/turns")).json()
        assert turns


@pytest.mark.parametrize(("marked", "confirm"), [(False, True), (True, False)])
async def test_nothing_is_confirmed_by_voice_without_mark_and_setting(home, room, tmp_path, marked, confirm):
    place = Place(tmp_path / "spoke")
    async with speaking(home, place, room, marked=marked, confirm=confirm) as talker:
        await eventually(lambda: knows_the_home(talker))
        await room.say("okay nabu", "burn the journal")
        await eventually(lambda: len(room.heard) > 32_000)
        await eventually(lambda: is_in(talker, "listening"))
        await room.say("yes do it")
        await room.say("okay nabu")
        # All before it was heard.
        await eventually(lambda: is_in(talker, "hearing"))
        assert place.journal == []


async def test_mute_closes_the_microphone(home, room, tmp_path):
    place = Place(tmp_path / "spoke")
    async with speaking(home, place, room) as talker:
        await eventually(lambda: is_in(talker, "listening"))
        service = talker.spoke._server.speech._service
        microphone: Any = service._pipeline.microphone
        async with talker.client() as client:
            assert (await client.post("/api/voice/mute", json={"muted": True})).json()["muted"]
        await eventually(lambda: is_in(talker, "muted"))
        assert microphone._pipe is None
        assert service._pipeline is None
        async with talker.client() as client:
            assert (await client.post("/api/voice/listen")).status_code == 409
            assert (await client.post("/api/voice/mute", json={"muted": False})).status_code == 200
        await eventually(lambda: is_in(talker, "listening"))


async def test_what_it_does_is_in_its_heartbeat(home, room, tmp_path):
    async with speaking(home, Place(tmp_path / "spoke"), room) as talker:
        await eventually(lambda: is_in(talker, "listening"))
        assert talker.spoke._presence._heartbeat(psutil.Process()).voice == "listening"
