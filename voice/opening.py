"""Engines, microphone and loudspeaker, as the settings name them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice.engines import SpeechToText, TextToSpeech, WakeWord
from voice.installed import installed
from voice.settings import VoiceSettings
from voice.sound.audio import Loudspeaker, Microphone

_FILE = "file:"


@dataclass(frozen=True)
class Engines:
    """What listens and speaks.

    Attributes:
        wake: None where nothing is waited for: only a button begins.
        speech_to_text: By name, in the order in which they are asked.
        text_to_speech: By name, in the order in which they are asked.
    """

    wake: WakeWord | None
    speech_to_text: dict[str, SpeechToText]
    text_to_speech: dict[str, TextToSpeech]


def open_engines(settings: VoiceSettings) -> Engines:
    """Make the engines; models are loaded, which takes a moment.

    Raises:
        ConfigError: If the settings name something that there is not.
        SpeechError: If something is not installed.
    """
    return Engines(
        _engine("wake_word", settings.wake_engine, settings) if settings.wake_words else None,
        {name: _engine("speech_to_text", name, settings) for name in settings.speech_to_text},
        {name: _engine("text_to_speech", name, settings) for name in settings.text_to_speech},
    )


def open_microphone(name: str) -> Microphone:
    """Return the microphone with this name; it is opened where it is entered."""
    if name.startswith(_FILE):
        from voice.sound.files import FileMicrophone

        return FileMicrophone(Path(name.removeprefix(_FILE)))
    from voice.sound.card import CardMicrophone

    return CardMicrophone(name)


def open_loudspeaker(name: str) -> Loudspeaker:
    """Return the loudspeaker with this name; it is opened where it is entered."""
    if name.startswith(_FILE):
        from voice.sound.files import FileLoudspeaker

        return FileLoudspeaker(Path(name.removeprefix(_FILE)))
    from voice.sound.card import CardLoudspeaker

    return CardLoudspeaker(name)


def _engine(kind: str, name: str, settings: VoiceSettings) -> Any:
    module, _, address = name.partition("://")
    open_engine = installed(f"voice.engines.{kind}.{module}").open_engine
    return open_engine(settings, address) if address else open_engine(settings)
