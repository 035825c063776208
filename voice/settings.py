"""Settings of speech: ``[voice]`` in ``strawberry.toml``."""

from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from contracts.addresses import LOOPBACK
from contracts.validation import Language, matching

_SERVER = r"wyoming|wyoming://[A-Za-z0-9.:\[\]-]+:\d{1,5}"
_SERVERS = "wyoming or an address such as wyoming://host:10300"
Listener = Annotated[str, matching(rf"^(pocketsphinx|{_SERVER})$", f"pocketsphinx, {_SERVERS}")]
Speaker = Annotated[str, matching(rf"^(espeak|{_SERVER})$", f"espeak, {_SERVERS}")]


def _address(text: str) -> str:
    return str(ip_address(text))


class SatelliteSettings(BaseModel):
    """``[voice.satellite]``: a server in place of this home's assistant answers on this device.

    Attributes:
        protocol: Of Home Assistant's integration.
        host: An address of this machine; others than loopback need ``allow``.
        port: None for the usual one of the protocol; 0 takes any free one.
        allow: IP addresses or networks that may connect, besides this machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    protocol: Literal["wyoming", "esphome"] = "wyoming"
    host: Annotated[str, AfterValidator(_address)] = LOOPBACK
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    allow: Annotated[tuple[str, ...], Field(max_length=64)] = ()


class VoiceSettings(BaseModel):
    """How a device listens and speaks.

    Attributes:
        enabled: Whether it does.
        wake_words: Names of models of the engine, or paths of such.
        wake_engine: ``micro_wakeword`` takes next to nothing; ``open_wakeword`` knows more wake words.
        speech_to_text: Engines in the order in which they are asked; the next one gets what the one before
            rejects. ``wyoming`` takes a server that announces itself in this network.
        text_to_speech: Engines in the order in which they are asked; the next one speaks where one cannot.
        microphone: Part of the name of a device; empty for the default one. ``file:PATH`` for a WAV file or
            a pipe of raw samples.
        loudspeaker: See ``microphone``.
        language: That is spoken; None for that of the household.
        voice: Of espeak-ng; None for that of the language.
        barge_in: What interrupts an answer: the wake word, or any speech, which wants a headset or a
            microphone that does not hear the loudspeaker.
        tones: Whether tones tell that it listens.
        silence_s: Silence that ends an utterance.
        satellite: A server that answers in place of this home's assistant.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    enabled: bool = False
    wake_words: Annotated[tuple[str, ...], Field(max_length=8)] = ("okay_nabu",)
    wake_engine: Literal["micro_wakeword", "open_wakeword"] = "micro_wakeword"
    speech_to_text: tuple[Listener, ...] = ("pocketsphinx",)
    text_to_speech: tuple[Speaker, ...] = ("espeak",)
    microphone: str = ""
    loudspeaker: str = ""
    language: Language | None = None
    voice: Annotated[str, matching(r"^[A-Za-z0-9+-]+$", "a name such as en-gb")] | None = None
    barge_in: Literal["wake_word", "speech", "off"] = "wake_word"
    tones: bool = True
    silence_s: Annotated[float, Field(ge=0.2, le=3)] = 0.6
    satellite: SatelliteSettings | None = None
