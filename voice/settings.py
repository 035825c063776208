"""Settings of speech: ``[voice]`` in ``strawberry.toml``."""

import re
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from contracts.addresses import LOOPBACK
from contracts.validation import IpAddress, Language, matching
from contracts.wire import Strict

_ADDRESS: Final = re.compile(r"[A-Za-z0-9.:\[\]-]+:\d{1,5}")


def _of(kind: str) -> AfterValidator:
    """Return the check of the name of an engine, which is a module of this folder of `voice.engines`."""

    def check(name: str) -> str:
        # Looked at only where a name is given; an engine is imported only where an address is.
        names = [each.name for each in iter_modules(import_module(f"voice.engines.{kind}").__path__)]
        module, separator, address = name.partition("://")
        if module not in names:
            raise ValueError(f"there is no engine {module!r}; there are {', '.join(sorted(names))}")
        if separator and not _ADDRESS.fullmatch(address):
            raise ValueError(f"{address!r} is not an address such as host:10300")
        if separator and not _takes_address(f"voice.engines.{kind}.{module}"):
            raise ValueError(f"the engine {module!r} takes no address")
        return name

    return AfterValidator(check)


def _takes_address(module: str) -> bool:
    try:
        return "address" in signature(import_module(module).open_engine).parameters
    except ImportError:
        return True  # `open_engines` says what is not installed


WakeEngine = Annotated[str, _of("wake_word")]
Listener = Annotated[str, _of("speech_to_text")]
Speaker = Annotated[str, _of("text_to_speech")]


class SatelliteSettings(Strict):
    """``[voice.satellite]``: a server in place of this home's assistant answers on this device.

    Attributes:
        protocol: Of Home Assistant's integration.
        host: An address of this machine; others than loopback need ``allow``.
        port: None for the usual one of the protocol; 0 takes any free one.
        allow: IP addresses or networks that may connect, besides this machine.
    """

    protocol: Literal["wyoming", "esphome"] = "wyoming"
    host: IpAddress = LOOPBACK
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    allow: Annotated[tuple[str, ...], Field(max_length=64)] = ()


class VoiceSettings(Strict):
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
        confirm: Whether a spoken yes confirms, where the device may confirm at all: a voice is anybody's.
        barge_in: What interrupts an answer: the wake word, or any speech, which wants a headset or a
            microphone that does not hear the loudspeaker.
        tones: Whether tones tell that it listens.
        silence_s: Silence that ends an utterance.
        satellite: A server that answers in place of this home's assistant.
    """

    enabled: bool = False
    wake_words: Annotated[tuple[str, ...], Field(max_length=8)] = ("okay_nabu",)
    wake_engine: WakeEngine = "micro_wakeword"
    speech_to_text: tuple[Listener, ...] = ("pocketsphinx",)
    text_to_speech: tuple[Speaker, ...] = ("espeak",)
    microphone: str = ""
    loudspeaker: str = ""
    language: Language | None = None
    voice: Annotated[str, matching(r"^[A-Za-z0-9+-]+$", "a name such as en-gb")] | None = None
    confirm: bool = False
    barge_in: Literal["wake_word", "speech", "off"] = "wake_word"
    tones: bool = True
    silence_s: Annotated[float, Field(ge=0.2, le=3)] = 0.6
    satellite: SatelliteSettings | None = None
