"""A message, and the three properties of an MQTT 5 PUBLISH that we set (MQTT 5.0, section 3.3.2.3)."""

import struct
from typing import NamedTuple

_EXPIRY = 0x02
_RESPONSE_TOPIC = 0x08
_CORRELATION = 0x09


class Message(NamedTuple):
    """A message as it is published or arrives; above the link the topic never carries the prefix.

    Attributes:
        retain: On arrival: whether the broker had kept it from before.
        expiry_s: With the two that follow, sent where the broker speaks MQTT 5, for people who watch the
            bus; never read on arrival.
        subscriptions: On arrival: the identifiers of the subscriptions that this copy of the message is for;
            empty where the broker gives none.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    expiry_s: int | None = None
    response_topic: str | None = None
    correlation: bytes | None = None
    subscriptions: tuple[int, ...] = ()


class PublishProperties:
    """Response topic, correlation data and message expiry of one message.

    paho takes any object with a ``pack`` method. Its own costs 28 µs a message, most of it for tables that
    it builds each time; this one costs two.
    """

    __slots__ = ("_correlation", "_expiry_s", "_response_topic")

    def __init__(self, response_topic: str | None, correlation: bytes | None, expiry_s: int | None) -> None:
        self._response_topic = response_topic
        self._correlation = correlation
        self._expiry_s = expiry_s

    def pack(self) -> bytes:
        """Encode: the length as a variable byte integer, then each property."""
        parts = []
        if self._expiry_s is not None:
            parts.append(struct.pack("!BI", _EXPIRY, self._expiry_s))
        if self._response_topic is not None:
            encoded = self._response_topic.encode()
            parts.append(struct.pack("!BH", _RESPONSE_TOPIC, len(encoded)) + encoded)
        if self._correlation is not None:
            parts.append(struct.pack("!BH", _CORRELATION, len(self._correlation)) + self._correlation)
        body = b"".join(parts)
        return variable(len(body)) + body


def variable(length: int) -> bytes:
    """Encode a length as a variable byte integer (MQTT 5.0, section 1.5.5)."""
    encoded = bytearray()
    while True:
        length, digit = divmod(length, 128)
        encoded.append(digit | (0x80 if length else 0))
        if not length:
            return bytes(encoded)
