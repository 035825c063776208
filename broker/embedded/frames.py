"""MQTT 3.1.1 packets on a byte stream: cut out, checked, and built.

amqtt reads a packet byte by byte through coroutines and takes any length. Here a packet is cut out of
whole reads and refused by its header when it is too long; what is not on the hot path is still
decoded and built by amqtt's packet classes.
"""

import math
import struct
from dataclasses import dataclass
from typing import Final

from amqtt.adapters import BufferReader
from amqtt.errors import AMQTTError, MQTTError, NoDataError
from amqtt.mqtt.connect import ConnectPacket
from amqtt.mqtt.packet import CONNECT, MQTTFixedHeader

from broker.limits import MAX_LEVELS
from contracts import topics
from contracts.errors import InvalidMessage

_PROTOCOL_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")
_MQTT_3_1_1: Final = b"\x00\x04MQTT\x04"


class MalformedPacket(InvalidMessage):
    """A packet that breaks MQTT 3.1.1; its connection is closed."""


class UnsupportedProtocol(InvalidMessage):
    """A CONNECT of another version of MQTT."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One packet: its type, the four flag bits of its header, and all that follows the header."""

    type: int
    flags: int
    body: bytes


class FrameBuffer:
    """Cuts a byte stream into packets.

    Attributes:
        limit: Bytes that may follow the header of a packet; may be changed at any time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> Frame | None:
        """Return the next packet once it is complete.

        Raises:
            MalformedPacket: If its header is malformed or announces more than the limit.
        """
        header = self._header()
        if header is None or len(self._buffer) < header[1]:
            return None
        body, end = header
        first = self._buffer[0]
        frame = Frame(first >> 4, first & 0x0F, bytes(self._buffer[body:end]))
        del self._buffer[:end]
        return frame

    def _header(self) -> tuple[int, int] | None:
        """Return where the body of the next packet begins and ends; None if not known yet."""
        length = 0
        for position in range(1, 5):
            if position >= len(self._buffer):
                return None
            byte = self._buffer[position]
            length |= (byte & 0x7F) << (7 * (position - 1))
            if byte < 0x80:
                if length > self.limit:
                    raise MalformedPacket(f"a packet is over the limit of {self.limit} bytes")
                return position + 1, position + 1 + length
        raise MalformedPacket("the length of a packet has more than four bytes")


@dataclass(frozen=True, slots=True)
class Publication:
    """What a PUBLISH packet says."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    packet_id: int = 0


def read_publish(frame: Frame) -> Publication:
    """Decode a PUBLISH.

    Raises:
        MalformedPacket: If it is none.
    """
    body, qos = frame.body, (frame.flags >> 1) & 3
    topic_end = 2 + _u16(body, 0)
    payload_at = topic_end + (2 if qos else 0)
    if qos == 3 or len(body) < payload_at:
        raise MalformedPacket("a PUBLISH is malformed")
    topic = _text(body[2:topic_end])
    if not topic or "+" in topic or "#" in topic:
        raise MalformedPacket("the topic of a PUBLISH is empty or has a wildcard")
    packet_id = _packet_id(body, topic_end) if qos else 0
    return Publication(topic, body[payload_at:], qos, bool(frame.flags & 1), packet_id)


def write_publish(topic: bytes, payload: bytes, *, qos: int, retain: bool, packet_id: int) -> bytes:
    """Encode a PUBLISH for one receiver."""
    length = 2 + len(topic) + (2 if qos else 0) + len(payload)
    header = bytearray((0x30 | qos << 1 | retain,))
    while length >= 0x80:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    header += struct.pack("!H", len(topic))
    identifier = struct.pack("!H", packet_id) if qos else b""
    return b"".join((header, topic, identifier, payload))


def read_packet_id(frame: Frame) -> int:
    """Decode the packet id that an acknowledgement consists of.

    Raises:
        MalformedPacket: If there is none.
    """
    if len(frame.body) != 2:
        raise MalformedPacket("an acknowledgement is malformed")
    return _packet_id(frame.body, 0)


def read_filters(
    frame: Frame, *, with_qos: bool, most: float = math.inf
) -> tuple[int, list[tuple[str, int]]]:
    """Decode a SUBSCRIBE (``with_qos``) or UNSUBSCRIBE: packet id, and filters with their QoS.

    Args:
        most: How many filters it may name.

    Raises:
        MalformedPacket: If it is malformed, or names no filter or too many.
    """
    body, at = frame.body, 2
    packet_id = _packet_id(body, 0)
    filters: list[tuple[str, int]] = []
    while at < len(body):
        end = at + 2 + _u16(body, at)
        after = end + with_qos
        if after > len(body):
            raise MalformedPacket("a list of filters is cut short")
        qos = body[end] if with_qos else 0
        if qos > 2:
            raise MalformedPacket("a subscription asks for a QoS that does not exist")
        if len(filters) >= most:
            raise MalformedPacket(f"a list has more than {most} filters")
        filters.append((_text(body[at + 2 : end]), qos))
        at = after
    if frame.flags != 2 or not filters:
        raise MalformedPacket("a list of filters is empty or has wrong flags")
    return packet_id, filters


async def read_connect(frame: Frame) -> ConnectPacket:
    """Decode a CONNECT.

    Raises:
        UnsupportedProtocol: If it is of MQTT 3.1 or 5.
        MalformedPacket: If it is no CONNECT, or a malformed one.
    """
    if frame.type != CONNECT or frame.flags or not frame.body.startswith(_PROTOCOL_NAMES):
        raise MalformedPacket("the first packet is not a CONNECT")
    if not frame.body.startswith(_MQTT_3_1_1):
        raise UnsupportedProtocol("the client speaks another version than MQTT 3.1.1")
    header = MQTTFixedHeader(CONNECT, 0, len(frame.body))
    try:
        packet = await ConnectPacket.from_stream(BufferReader(frame.body), fixed_header=header)
    except (AMQTTError, MQTTError, NoDataError, struct.error, ValueError, IndexError) as error:
        raise MalformedPacket(f"a CONNECT is malformed ({type(error).__name__})") from None
    if packet.reserved_flag or packet.will_qos > 2 or (packet.will_flag and not packet.will_topic):
        raise MalformedPacket("a CONNECT is malformed")
    if not packet.will_flag and (packet.will_qos or packet.will_retain_flag):
        raise MalformedPacket("a CONNECT describes a will and has none")
    return packet


def is_filter(text: str) -> bool:
    return text.count("/") < MAX_LEVELS and topics.is_filter(text)


def _u16(body: bytes, at: int) -> int:
    if len(body) < at + 2:
        raise MalformedPacket("a packet is cut short")
    return body[at] << 8 | body[at + 1]


def _packet_id(body: bytes, at: int) -> int:
    packet_id = _u16(body, at)
    if not packet_id:
        raise MalformedPacket("a packet id is zero")
    return packet_id


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("a text is not UTF-8") from None
    if "\0" in text:
        raise MalformedPacket("a text contains NUL")
    return text
