"""paho's client, with other ways of reading packets, of publishing and of beginning TLS.

Seven things of paho 2.2 are replaced, in its private parts, which no other module uses. So its version is
bounded, and ``tests/bus/test_paho.py`` fails where they change:

- `loop_read` reads one packet a turn, whatever number it is given, and each packet in three or more system
  calls, the first ones for a byte. Here packets are cut out of whole reads.
- Some malformed packets raise out of it, which ends paho's thread without a word. Here they end the
  connection.
- Each MQTT 5 message gets an object with all its properties, 20 to 40 µs a message. What a message means
  is in its payload. Here they are skipped, except for the identifiers of the subscriptions.
- Each message with QoS 1 is kept until it is acknowledged, with a lock to wait at, and the acknowledgement
  is decoded into tables that say no more than that all went well: 30 µs a message. Nothing is sent twice
  here, so its packet id is enough.
- Each packet leaves in a system call, and a segment, of its own, and each wakes the receiver: 30 to 200 µs.
  Here all that waits leaves as one piece. An acknowledgement waits if it can leave with the
  next message.
- A TLS handshake that fails leaves its socket open, until it is garbage collected.
- So does a connection that is given up while another thread still opens it; its Last Will would come then.
"""

import logging
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Literal

from paho.mqtt import MQTTException
from paho.mqtt.client import Client, time_func
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from bus.link.message import Message, variable

_log = logging.getLogger(__name__)

_MALFORMED = (MQTTException, ValueError, struct.error, IndexError, KeyError)

_CHUNK = 64 * 1024

_HEADER = struct.Struct("!H")

_TAKEN = ReasonCode(PacketTypes.PUBACK)
_NO_PROPERTIES = Properties(PacketTypes.PUBACK)  # type: ignore[no-untyped-call]


class LeanClient(Client):
    """A paho client that reads in batches, and gives messages as ours.

    Args:
        deliver: Called for each message that arrives, with QoS 0 or 1: we never subscribe with more.
        options: Those of paho's client.

    Attributes:
        on_held: Called for each acknowledgement that is queued and not sent yet; None sends it at once.
        receive_maximum: Messages that the broker takes before it acknowledges one. Mosquitto and others have
            one setting for these and for those that they send.
    """

    def __init__(self, deliver: Callable[[Message], None], *options: Any, **named: Any) -> None:
        super().__init__(*options, **named)
        self._deliver = deliver
        self._buffer = bytearray()
        self._has_whole_packet = False
        self._unacknowledged: set[int] = set()
        self.on_held: Callable[[], None] | None = None
        self.receive_maximum = 65_535
        self._opening = threading.Lock()
        self._is_given_up = False

    def give_up(self) -> None:
        """Close the socket for good, also one that another thread is just opening."""
        with self._opening:
            self._is_given_up = True
            self._reset_sockets()

    def publish_acknowledged(
        self, topic: str, payload: bytes, *, retain: bool, properties: bytes
    ) -> int | None:
        """Publish with QoS 1; ``on_publish`` is called when the broker has it, or refuses it.

        Args:
            properties: As they stand in the packet, with their length; none in MQTT 3.1.1.

        Returns:
            The packet id; None where there is no connection.
        """
        if not topic or "+" in topic or "#" in topic:
            raise ValueError(f"{topic!r} is not a topic to publish on")
        if self._sock is None:
            return None
        encoded = topic.encode()
        mid = self._mid_generate()
        while mid in self._unacknowledged:
            mid = self._mid_generate()
        head = _HEADER.pack(len(encoded)) + encoded + _HEADER.pack(mid) + properties
        first = bytes((0x33 if retain else 0x32,))
        packet = b"".join((first, variable(len(head) + len(payload)), head, payload))
        self._unacknowledged.add(mid)
        self._packet_queue(0x30, packet, mid, 1)
        return mid

    def loop_read(self, max_packets: int = sys.maxsize) -> MQTTErrorCode:
        """Read what is there, at most so many packets; what is not MQTT ends the connection."""
        left, was_all = max_packets, False
        while self._sock is not None:
            try:
                left -= self._handle_packets(left)
            except _MALFORMED as error:
                _log.debug("the broker sent what is not MQTT: %r", error)
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
            except _Ended as ended:
                return self._loop_rc_handle(ended.code)
            # The loop reports what the socket got since, in place of one more system call for each read.
            if self._has_whole_packet or was_all:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            try:
                data = self._sock_recv(_CHUNK)
            except BlockingIOError:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            except OSError:
                data = b""
            if not data:
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
            self._buffer += data
            with self._msgtime_mutex:
                self._last_bytes_received = time_func()
            # TLS gives one record a read.
            was_all = len(data) < _CHUNK and not isinstance(self._sock, ssl.SSLSocket)
        return MQTTErrorCode.MQTT_ERR_NO_CONN

    @property
    def is_first_under_way(self) -> bool:
        """Return whether the packet queued last is the only message that the broker has not acknowledged."""
        return len(self._unacknowledged) == 1 and self._out_packet[-1]["mid"] in self._unacknowledged

    @property
    def holds_bytes(self) -> bool:
        """Return whether bytes wait that no loop can watch: read and not handled yet, or held in TLS."""
        return self._has_whole_packet or (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0)

    def _handle_packets(self, most: int) -> int:
        """Handle the packets that are in the buffer, at most so many; give their number.

        Raises:
            _Ended: If one of them ends the connection.
            MQTTException: Or another of ``_MALFORMED``, if one is no packet.
        """
        buffer, at, handled = self._buffer, 0, 0
        self._has_whole_packet = False
        while (bounds := _bounds(buffer, at)) and handled < most and self._sock is not None:
            start, end = bounds
            self._in_packet["command"] = buffer[at]
            self._in_packet["packet"] = buffer[start:end]
            self._in_packet["remaining_length"] = end - start
            at, handled = end, handled + 1
            code = self._packet_handle()
            if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise _Ended(code)
        self._has_whole_packet = bounds is not None
        if handled:
            del buffer[:at]
        return handled

    def _create_socket(self) -> Any:
        sock = super()._create_socket()
        with self._opening:
            if self._is_given_up:
                sock.close()
                raise ConnectionAbortedError("the connection was given up")
            # From here on `give_up` closes it.
            self._sock = sock
        return sock

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        assert self._ssl_context is not None
        tcp_sock.settimeout(self._connect_timeout)
        try:
            return self._ssl_context.wrap_socket(tcp_sock, server_hostname=self._host)
        except BaseException:
            tcp_sock.close()
            raise

    def _handle_pubackcomp(self, cmd: Literal["PUBACK", "PUBCOMP"]) -> MQTTErrorCode:
        packet = self._in_packet["packet"]
        mid = _HEADER.unpack_from(packet)[0]
        if cmd == "PUBACK" and mid in self._unacknowledged:
            self._unacknowledged.discard(mid)
            reason = ReasonCode(PacketTypes.PUBACK, identifier=packet[2]) if len(packet) > 2 else _TAKEN
            if self.on_publish is not None:
                self.on_publish(self, self._userdata, mid, reason, _NO_PROPERTIES)  # type: ignore[call-arg]
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_publish(self) -> MQTTErrorCode:
        header, packet = self._in_packet["command"], self._in_packet["packet"]
        qos = header >> 1 & 3
        topic_end = 2 + int.from_bytes(packet[:2], "big")
        start = topic_end + (2 if qos else 0)
        if qos > 1 or start > len(packet):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        subscriptions: tuple[int, ...] = ()
        body = start
        if self._protocol == MQTTProtocolVersion.MQTTv5:
            subscriptions, body = read_subscriptions(packet, start)
        if qos and self.on_held is not None:
            # Before it is handled, so that it leaves with what the handler publishes.
            self._out_packet.append(_packet(b"\x40\x02" + packet[topic_end:start]))
            self.on_held()
        try:
            topic = packet[2:topic_end].decode()
        except UnicodeDecodeError:
            _log.warning("dropped a message: its topic is not UTF-8")
        else:
            self._deliver(
                Message(topic, bytes(packet[body:]), qos, bool(header & 1), subscriptions=subscriptions)
            )
        if qos and self.on_held is None:
            return self._send_puback(int.from_bytes(packet[topic_end:start], "big"))
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _packet_write(self) -> MQTTErrorCode:
        """Send what waits as one piece, up to the first packet that paho has a callback for."""
        waiting = self._out_packet
        pieces: list[bytes] = []
        while (
            waiting
            and waiting[0]["info"] is None
            and waiting[0]["command"] & 0xF0 != PacketTypes.DISCONNECT << 4
        ):
            packet = waiting.popleft()
            pieces.append(bytes(packet["packet"][packet["pos"] :]))
        if pieces:
            waiting.appendleft(_packet(b"".join(pieces)))
        return super()._packet_write()


def stop_loop(client: Client) -> None:
    """Stop the thread of a client, and close the sockets that wake it, which paho leaves to its finalizer."""
    client.loop_stop()
    client._reset_sockets(sockpair_only=True)


class _Ended(Exception):
    """A packet that ends the connection."""

    def __init__(self, code: MQTTErrorCode) -> None:
        super().__init__(code)
        self.code = code


def _packet(data: bytes) -> Any:
    """Make an entry of paho's queue of outgoing packets, without a callback when it is sent."""
    return {
        "command": 0x40,
        "mid": 0,
        "qos": 1,
        "pos": 0,
        "to_process": len(data),
        "packet": data,
        "info": None,
    }


def _bounds(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """Return where the body of a packet begins and ends; None where it is not there as a whole.

    Raises:
        MQTTException: If its length has more than four bytes.
    """
    length = 0
    for position in range(at + 1, at + 5):
        if position >= len(buffer):
            return None
        digit = buffer[position]
        length |= (digit & 0x7F) << 7 * (position - at - 1)
        if digit < 0x80:
            end = position + 1 + length
            return (position + 1, end) if end <= len(buffer) else None
    raise MQTTException("the length of a packet has more than four bytes")


_FIXED: Final = {0x01: 1, 0x02: 4, 0x23: 2}
_STRINGS: Final = {0x03: 1, 0x08: 1, 0x09: 1, 0x26: 2}
"""Properties of a PUBLISH by their length, and by the number of strings that they are (MQTT 5.0, 3.3.2.3)."""
_SUBSCRIPTION: Final = 0x0B


def read_subscriptions(packet: bytearray, at: int) -> tuple[tuple[int, ...], int]:
    """Return the subscription identifiers among the properties, and the position behind the properties.

    Raises:
        IndexError: If the packet ends before they do.
        KeyError: If there is a property that no PUBLISH has.
    """
    length, at = _number(packet, at)
    end = at + length
    if end > len(packet):
        raise IndexError("the properties are longer than the packet")
    found: tuple[int, ...] = ()
    while at < end:
        kind = packet[at]
        at += 1
        if kind == _SUBSCRIPTION:
            number, at = _number(packet, at)
            found += (number,)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            for _ in range(_STRINGS[kind]):
                at += 2 + (packet[at] << 8 | packet[at + 1])
    return found, end


def _number(packet: bytearray, at: int) -> tuple[int, int]:
    """Return a variable byte integer, and the position behind it."""
    number = 0
    for shift in (0, 7, 14, 21):
        digit = packet[at]
        at += 1
        number |= (digit & 0x7F) << shift
        if digit < 0x80:
            break
    return number, at
