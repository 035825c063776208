"""Speech that is kept running: mute while it starts, on a full disk, and beside faults."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from chat.tasks import open_tasks
from contracts.chat.vocabulary import SpokenSentence, SpokenSlot, Vocabulary
from contracts.errors import ConfigError
from spoke.chat.speech import Speech
from tests.hub_registry.spokes import eventually
from tests.voice.portaudio import PortAudio, library
from tests.voice.room import SETTINGS, ScriptedChat
from voice.opening import open_engines
from voice.service import VoiceService
from voice.settings import VoiceSettings
from voice.sound.card import CardLoudspeaker, CardMicrophone

__all__ = ["library"]


def service_in(directory: Path, **changed: Any) -> VoiceService:
    async def vocabularies() -> AsyncGenerator[Vocabulary, None]:
        yield Vocabulary(language="en", sentences=(), names=())

    return VoiceService(
        VoiceSettings(**{"enabled": True} | SETTINGS | {"speech_to_text": ()} | changed),
        chat=ScriptedChat(()),
        vocabularies=vocabularies,
        language="en",
        muted_file=directory / "muted",
        changed=lambda: None,
    )


async def test_mute_while_the_microphone_is_opened_closes_it_before_it_is_said(
    tmp_path: Path, library: PortAudio
) -> None:
    library.go.clear()
    service = service_in(tmp_path)
    async with open_tasks() as tasks:
        tasks.create_task(service.run())
        await eventually(library.opening.is_set)
        service.mute(muted=True)
        library.go.set()
        await eventually(lambda: service.state == "muted")
        assert library.open == []


async def test_mute_while_engines_are_loaded_opens_nothing(
    tmp_path: Path, library: PortAudio, monkeypatch: pytest.MonkeyPatch
) -> None:

    def loaded(settings: VoiceSettings) -> Any:
        service.mute(muted=True)
        return open_engines(settings)

    monkeypatch.setattr("voice.service.open_engines", loaded)
    service = service_in(tmp_path)
    async with open_tasks() as tasks:
        tasks.create_task(service.run())
        await eventually(lambda: service.state == "muted")
    assert not library.opening.is_set()


async def test_mute_holds_where_nothing_can_be_written(
    tmp_path: Path, library: PortAudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("voice.service.write_private", full)
    service = service_in(tmp_path)
    async with open_tasks() as tasks:
        tasks.create_task(service.run())
        await eventually(lambda: library.open)
        service.mute(muted=True)
        await eventually(lambda: service.state == "muted")
        assert library.open == []
        assert service.muted


async def test_a_microphone_beside_an_open_loudspeaker_does_not_free_it(library: PortAudio) -> None:
    async with CardLoudspeaker(), CardMicrophone():
        assert len(library.open) == 2
        assert library.freed == 0
    async with CardMicrophone():
        assert library.looked == 2


async def test_a_cancelled_microphone_is_closed_once_it_is_open(library: PortAudio) -> None:
    async def listen() -> None:
        async with CardMicrophone():
            await asyncio.Event().wait()

    library.go.clear()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listen())
        await eventually(library.opening.is_set)
        task.cancel()
        library.go.set()
    assert library.open == []


async def test_a_fault_is_said_and_tried_again(
    tmp_path: Path, library: PortAudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: VoiceSettings) -> Any:
        monkeypatch.setattr("voice.service.open_engines", open_engines)
        raise RuntimeError("a bug")

    monkeypatch.setattr("voice.service.open_engines", fails)
    service = service_in(tmp_path)
    async with open_tasks() as tasks:
        tasks.create_task(service.run())
        await eventually(lambda: service.state == "broken")
        assert "Speech failed" in service.reason
        await eventually(lambda: service.state == "listening")
        assert service.reason == ""


async def test_what_can_be_said_is_asked_again_and_holds_the_devices_own_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spoke.limits.WORDS_RETRY_S", (0.0, 0.0))
    text = "turn on the {thing}"
    lamp = SpokenSentence(text=text, slots={"thing": SpokenSlot(values=("hall lamp",))})
    # What is not approved at the hub: its docs and the values of its arguments.
    home = Vocabulary(language="en", sentences=(SpokenSentence(text=text),), names=("desk",))

    class OwnAgent:
        async def vocabulary(self, language: str) -> Vocabulary:
            return home

        async def own_vocabulary(self, language: str) -> Vocabulary:
            return Vocabulary(language="en", sentences=(lamp,), names=("pi",))

    faults = [ConfigError("the disk is full")]

    async def agent() -> Any:
        if faults:
            raise faults.pop()
        return OwnAgent()

    speech = Speech(
        VoiceSettings(),
        agent=agent,
        may_confirm=lambda: False,
        reaches_hub=AsyncMock(return_value=True),
        language="en",
        directory=tmp_path,
        changed=lambda: None,
    )
    said = await anext(speech.vocabularies())
    assert (said.sentences, said.names) == ((lamp,), ("pi", "desk"))
