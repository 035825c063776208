"""paho's client, with another way of reading packets and of beginning TLS.

Four things of paho 2.2 are replaced, in its private parts, which is why its version is bounded:

- `loop_read` reads one packet a turn, whatever number it is given.
- Some malformed packets raise out of it, which ends paho's thread without a word. Here they end the
  connection.
- Each MQTT 5 message gets an object with all its properties, 20 to 40 µs a message. Nobody reads them: what
  a message means stands in its payload. Here they are skipped.
- A TLS handshake that fails leaves its socket open, until somebody collects it.
"""

import logging
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

from paho.mqtt import MQTTException
from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion

from broker.message import Message

_logger = logging.getLogger(__name__)

_MALFORMED = (MQTTException, ValueError, struct.error, IndexError, KeyError)

_PACKETS_A_TURN = 64
"""Packets read before the other tasks of the loop get their turn."""


class LeanClient(Client):
    """A paho client that reads in batches, and gives messages as ours.

    Args:
        deliver: Called for each message that arrives, with QoS 0 or 1: we never subscribe with more.
        options: Those of paho's client.
    """

    def __init__(self, deliver: Callable[[Message], None], *options: Any, **named: Any) -> None:
        super().__init__(*options, **named)
        self._deliver = deliver

    def loop_read(self, max_packets: int = _PACKETS_A_TURN) -> MQTTErrorCode:
        """Read what is there, at most so many packets; what is not MQTT ends the connection."""
        for _ in range(max_packets):
            if self._sock is None:
                return MQTTErrorCode.MQTT_ERR_NO_CONN
            try:
                result = self._packet_read()
            except _MALFORMED as error:
                _logger.debug("the broker sent what is not MQTT: %r", error)
                result = MQTTErrorCode.MQTT_ERR_PROTOCOL
            if result == MQTTErrorCode.MQTT_ERR_AGAIN:
                break
            if result != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return self._loop_rc_handle(result)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    @property
    def holds_bytes(self) -> bool:
        """Whether TLS has bytes that were read already, which no loop is told of."""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        assert self._ssl_context is not None
        tcp_sock.settimeout(self._connect_timeout)
        try:
            return self._ssl_context.wrap_socket(tcp_sock, server_hostname=self._host)
        except BaseException:
            tcp_sock.close()
            raise

    def _handle_publish(self) -> MQTTErrorCode:
        header, packet = self._in_packet["command"], self._in_packet["packet"]
        qos = header >> 1 & 3
        topic_end = 2 + int.from_bytes(packet[:2], "big")
        start = topic_end + (2 if qos else 0)
        if qos > 1 or start > len(packet):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        identifier = packet[topic_end:start]
        if self._protocol == MQTTProtocolVersion.MQTTv5:
            start = _properties_end(packet, start)
        try:
            topic = packet[2:topic_end].decode()
        except UnicodeDecodeError:
            _logger.warning("dropped a message: its topic is not UTF-8")
        else:
            self._deliver(Message(topic, bytes(packet[start:]), qos, bool(header & 1)))
        if not qos:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        return self._send_puback(int.from_bytes(identifier, "big"))


def _properties_end(packet: bytearray, start: int) -> int:
    """Give the position behind the properties; their length is a variable byte integer.

    Raises:
        IndexError: If the packet ends before they do.
    """
    length, at = 0, start
    for shift in (0, 7, 14, 21):
        digit = packet[at]
        at += 1
        length |= (digit & 0x7F) << shift
        if digit < 0x80:
            break
    if at + length > len(packet):
        raise IndexError("the properties are longer than the packet")
    return at + length
