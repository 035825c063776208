"""This device as a voice assistant of Home Assistant's ESPHome integration; see `voice.satellite.satellite`.

The messages are those of `aioesphomeapi`, which itself is a client only. They travel unencrypted, and without
a login: Home Assistant is allowed by its address.
"""

import asyncio
import hashlib
import importlib
import logging
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from chat.tasks import open_tasks
from contracts.errors import InvalidMessage, SpeechError
from voice import limits
from voice.satellite.satellite import Names, Satellite, phrase_of
from voice.serving import Serve, peer_of
from voice.sound.audio import RATE, Sound

_log = logging.getLogger(__name__)

_API: Final = (1, 10)
"""Version of the protocol with sound in its messages and wake words that are configured."""

_VOICE_ASSISTANT, _SPEAKER, _API_AUDIO = 1, 2, 4
"""Features: it listens; it plays sound that is sent; both over this connection."""
_ENDS: Final = frozenset({0, 2, 4, 12})
"""Events after which nothing more is listened to: error, end of the run, of the text, of the speech."""
_STREAM_START, _STREAM_END = 98, 99
_USE_VAD: Final = 1
"""Home Assistant up to 2024.9 finds the end of the speech only where a request asks for that."""


class Messages:
    """The messages of the protocol, by name and by number.

    Raises:
        SpeechError: If the package is not installed.
    """

    def __init__(self) -> None:
        try:
            self.by_name: Any = importlib.import_module("aioesphomeapi.api_pb2")
            types = importlib.import_module("aioesphomeapi.core").MESSAGE_TYPE_TO_PROTO
        except ModuleNotFoundError:
            raise SpeechError(
                "the package aioesphomeapi is not installed",
                hint="Install it: pip install 'strawberry-home[esphome]'",
            ) from None
        self.by_number: dict[int, Any] = types
        self.numbers = {kind.__name__: number for number, kind in types.items()}


def esphome_satellite(device: Satellite, names: Names) -> Serve:
    """Return what serves the connections of Home Assistant, for `open_server`.

    Raises:
        SpeechError: If the package is not installed.
    """
    messages = Messages()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Server(device, names, messages, reader, writer).run()

    return serve


@dataclass(eq=False)
class _Server:
    """One connection of Home Assistant; see `voice.satellite.satellite.Server`."""

    device: Satellite
    names: Names
    messages: Messages
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def run(self) -> None:
        """Serve until it ends."""
        try:
            async with open_tasks() as tasks:
                while (message := await self._read()) is not None:
                    if not await self._take(type(message).__name__, message, tasks):
                        return
        finally:
            if self.device.is_run_by(self):
                self.device.pause()

    async def wake(self, word: str) -> None:
        await self._send(
            "VoiceAssistantRequest", start=True, flags=_USE_VAD, wake_word_phrase=phrase_of(word)
        )

    async def sound(self, frame: bytes) -> None:
        await self._send("VoiceAssistantAudio", data=frame)

    async def cut(self) -> None:
        await self._send("VoiceAssistantAudio", end=True)

    async def played(self) -> None:
        await self._send("VoiceAssistantAnnounceFinished", success=True)

    def close(self) -> None:
        self.writer.close()

    async def _take(self, kind: str, message: Any, tasks: asyncio.TaskGroup) -> bool:
        """Answer a message; return whether the connection goes on."""
        names = self.names
        match kind:
            case "HelloRequest":
                major, minor = _API
                await self._send(
                    "HelloResponse",
                    api_version_major=major,
                    api_version_minor=minor,
                    server_info=f"Strawberry {names.version}",
                    name=_host_name(names.id),
                )
            case "AuthenticationRequest":
                await self._send("AuthenticationResponse")
            case "PingRequest":
                await self._send("PingResponse")
            case "DisconnectRequest":
                await self._send("DisconnectResponse")
                return False
            case "DeviceInfoRequest":
                await self._send(
                    "DeviceInfoResponse",
                    name=_host_name(names.id),
                    friendly_name=names.name,
                    suggested_area=names.area,
                    mac_address=_mac_address(names.id),
                    manufacturer="Strawberry",
                    model="Spoke",
                    project_name="strawberry.spoke",
                    project_version=names.version,
                    voice_assistant_feature_flags=_VOICE_ASSISTANT | _SPEAKER | _API_AUDIO,
                )
            case "ListEntitiesRequest":
                await self._send("ListEntitiesDoneResponse")
            case "VoiceAssistantConfigurationRequest":
                word = self.messages.by_name.VoiceAssistantWakeWord
                await self._send(
                    "VoiceAssistantConfigurationResponse",
                    available_wake_words=[
                        word(id=each, wake_word=phrase_of(each)) for each in names.wake_words
                    ],
                    active_wake_words=names.wake_words,
                    max_active_wake_words=len(names.wake_words),
                )
            case "SubscribeVoiceAssistantRequest" if message.subscribe:
                self.device.run_for(self)
                _log.info("%s runs the voice assistant", peer_of(self.writer))
            case _ if self.device.is_run_by(self):
                self._take_sound(kind, message, tasks)
        return True

    def _take_sound(self, kind: str, message: Any, tasks: asyncio.TaskGroup) -> None:
        match kind:
            case "SubscribeVoiceAssistantRequest":
                self.device.pause()
            case "VoiceAssistantResponse" if message.error:
                self.device.understood()
            case "VoiceAssistantAudio":
                self.device.add(Sound(message.data, RATE))
            case "VoiceAssistantEventResponse":
                if message.event_type in _ENDS:
                    self.device.understood()
                elif message.event_type == _STREAM_START:
                    self.device.answer(self, tasks)
                elif message.event_type == _STREAM_END:
                    self.device.end()

    async def _read(self) -> Any:
        """Return the next message that is known; None where the other side has closed.

        Raises:
            InvalidMessage: If it is none.
        """
        try:
            while True:
                if (first := await self.reader.readexactly(1)) != b"\0":
                    encrypted = first == b"\1"
                    raise InvalidMessage(
                        "an encrypted ESPHome connection" if encrypted else "not an ESPHome connection",
                        hint="Leave the encryption key of the integration empty." if encrypted else "",
                    )
                size, number = await self._varint(), await self._varint()
                if size > limits.MAX_ESPHOME_BYTES:
                    raise InvalidMessage(f"an ESPHome message of {size:,} bytes")
                data = await self.reader.readexactly(size)
                if (kind := self.messages.by_number.get(number)) is not None:
                    return kind.FromString(data)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except DecodeError:
            raise InvalidMessage("an ESPHome message that cannot be read") from None

    async def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = await self.reader.readexactly(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise InvalidMessage("an ESPHome message with a number that is too long")

    async def _send(self, kind: str, **fields: Any) -> None:
        message = getattr(self.messages.by_name, kind)(**fields)
        data = message.SerializeToString()
        head = b"\0" + _varint(len(data)) + _varint(self.messages.numbers[kind])
        async with asyncio.timeout(limits.STALL_S):
            self.writer.write(head + data)
            await self.writer.drain()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _host_name(device: str) -> str:
    return device.replace("_", "-")


def _mac_address(device: str) -> str:
    """Return a locally administered address by which Home Assistant knows the device."""
    digest = bytearray(hashlib.sha256(device.encode()).digest()[:6])
    digest[0] = digest[0] & 0xFC | 0x02
    return ":".join(f"{byte:02X}" for byte in digest)
