"""Engines, microphone and loudspeaker, as the settings name them."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from voice.engines import SpeechToText, TextToSpeech, WakeWord
from voice.settings import VoiceSettings
from voice.sound.audio import Loudspeaker, Microphone

if TYPE_CHECKING:
    from voice.engines.wyoming import Finder
    from voice.wyoming.connection import Address
    from voice.wyoming.discovery import Domain

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
        _wake(settings),
        {name: _speech_to_text(name) for name in settings.speech_to_text},
        {name: _text_to_speech(name, settings) for name in settings.text_to_speech},
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


def server_of(name: str, domain: "Domain") -> "Address | Finder":
    """Return the Wyoming server of a setting, or what finds one."""
    from voice.wyoming.connection import Address
    from voice.wyoming.discovery import discover

    _, _, address = name.partition("://")
    return Address.parse(address) if address else partial(discover, domain)


def _wake(settings: VoiceSettings) -> WakeWord | None:
    if not settings.wake_words:
        return None
    if settings.wake_engine == "micro_wakeword":
        from voice.engines.micro_wakeword import MicroWakeWords

        return MicroWakeWords(settings.wake_words)
    from voice.engines.open_wakeword import OpenWakeWords

    return OpenWakeWords(settings.wake_words)


def _speech_to_text(name: str) -> SpeechToText:
    if name == "pocketsphinx":
        from voice.engines.pocketsphinx import PocketSphinx

        return PocketSphinx()
    from voice.engines.wyoming import WyomingSpeechToText

    return WyomingSpeechToText(server_of(name, "asr"))


def _text_to_speech(name: str, settings: VoiceSettings) -> TextToSpeech:
    if name == "espeak":
        from voice.engines.espeak import Espeak

        return Espeak(voice=settings.voice)
    from voice.engines.wyoming import WyomingTextToSpeech

    return WyomingTextToSpeech(server_of(name, "tts"))
