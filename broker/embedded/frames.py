"""MQTT 3.1.1 packets on a byte stream: cut out, checked, decoded and encoded.

A packet is cut out of whole reads, and refused by its header when it is too long.
"""

import enum
import math
import struct
from dataclasses import dataclass, field
from typing import Final

from broker.limits import MAX_LEVELS
from bus.link.message import variable
from contracts import topics
from contracts.errors import InvalidMessage

_PROTOCOL_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")
_MQTT_3_1_1: Final = b"\x00\x04MQTT\x04"


class PacketType(enum.IntEnum):
    """Types of packets (MQTT 3.1.1, section 2.2.1)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


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
        """Append received bytes."""
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
    topic = _topic(body[2:topic_end])
    packet_id = _packet_id(body, topic_end) if qos else 0
    return Publication(topic, body[payload_at:], qos, bool(frame.flags & 1), packet_id)


def write_publish(topic: bytes, payload: bytes, *, qos: int, retain: bool, packet_id: int) -> bytes:
    """Encode a PUBLISH for one receiver."""
    length = 2 + len(topic) + (2 if qos else 0) + len(payload)
    header = _write_header(PacketType.PUBLISH, length, flags=qos << 1 | retain)
    identifier = struct.pack("!H", packet_id) if qos else b""
    return b"".join((header, struct.pack("!H", len(topic)), topic, identifier, payload))


def write_acknowledgement(kind: PacketType, packet_id: int, codes: bytes = b"") -> bytes:
    """Encode an acknowledgement; that of a SUBSCRIBE has a code for each filter."""
    return b"".join((_write_header(kind, 2 + len(codes)), struct.pack("!H", packet_id), codes))


def _write_header(kind: PacketType, length: int, *, flags: int = 0) -> bytes:
    return bytes((kind << 4 | flags,)) + variable(length)


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


@dataclass(frozen=True, slots=True)
class Connect:
    """What a CONNECT packet says.

    Attributes:
        client_id: May be empty.
        keep_alive: Seconds; 0 for none.
        will: What is published when the client is gone without a word.
    """

    client_id: str
    keep_alive: int
    username: str | None
    password: str | None = field(repr=False)
    will: Publication | None


def read_connect(frame: Frame) -> Connect:
    """Decode a CONNECT.

    Raises:
        UnsupportedProtocol: If it is of MQTT 3.1 or 5.
        MalformedPacket: If it is no CONNECT, or a malformed one.
    """
    body = frame.body
    if frame.type != PacketType.CONNECT or frame.flags or not body.startswith(_PROTOCOL_NAMES):
        raise MalformedPacket("the first packet is not a CONNECT")
    if not body.startswith(_MQTT_3_1_1):
        raise UnsupportedProtocol("the client speaks another version than MQTT 3.1.1")
    keep_alive, flags = _u16(body, 8), body[7]
    has_will, will_qos, will_retain = bool(flags & 4), flags >> 3 & 3, bool(flags & 0x20)
    if flags & 1 or will_qos == 3 or (not has_will and (will_qos or will_retain)):
        raise MalformedPacket("the flags of a CONNECT contradict each other")
    client_id, at = _field(body, 10)
    will = username = password = None
    if has_will:
        topic, at = _field(body, at)
        payload, at = _field(body, at)
        will = Publication(_topic(topic), payload, will_qos, will_retain)
    if flags & 0x80:
        username, at = _field(body, at)
    if flags & 0x40:
        password, at = _field(body, at)
    return Connect(
        _text(client_id),
        keep_alive,
        None if username is None else _text(username),
        None if password is None else _text(password),
        will,
    )


def _field(body: bytes, at: int) -> tuple[bytes, int]:
    """Return bytes that follow their length, and where they end."""
    end = at + 2 + _u16(body, at)
    if len(body) < end:
        raise MalformedPacket("a packet is cut short")
    return body[at + 2 : end], end


def is_filter(text: str) -> bool:
    """Return whether the text is a well-formed topic filter that is not too deep."""
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


def _topic(data: bytes) -> str:
    topic = _text(data)
    if not topic or "+" in topic or "#" in topic:
        raise MalformedPacket("the topic of a message is empty or has a wildcard")
    return topic
