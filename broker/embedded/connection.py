"""One client that has logged in: its packets in, its messages out."""

import asyncio
import math
from typing import TYPE_CHECKING, Final

from amqtt.mqtt import packet
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.mqtt.suback import SubackPacket
from amqtt.plugins.manager import PluginManager
from amqtt.session import Session

from broker.embedded.authentication import VerifiedLogin
from broker.embedded.frames import (
    Frame,
    FrameBuffer,
    MalformedPacket,
    Publication,
    read_filters,
    read_packet_id,
    read_publish,
    write_publish,
)
from broker.embedded.limits import Allowance
from broker.embedded.peer import Peer
from broker.limits import MOST_FILTERS, MOST_UNACKNOWLEDGED

if TYPE_CHECKING:
    from amqtt.broker import BrokerContext

    from broker.embedded.strict_broker import StrictBroker

_PINGRESP: Final = b"\xd0\x00"
_REFUSED: Final = 0x80
_MAX_QOS: Final = 1
"""Granted to subscribers: nothing on the bus is sent with more (MQTT 3.1.1, 3.9.3 permits less)."""

_IDS: Final = 65_535


class Connection(BrokerProtocolHandler):
    """The broker's side of one client that has logged in.

    amqtt's handler starts a task for every packet and waits for each acknowledgement in another one. Here
    packets are handled in the order in which they come, and what goes out waits in one bounded place.

    Attributes:
        client: amqtt's record of it.
        login: Who it is and what it may do.
        allowance: What its principal may use.
        will: What is published when it is gone without a word.
        filters: Its subscriptions: filter and granted QoS.
        gone: Whether the broker has parted with it.
        heard: When bytes last came, in the event loop's time.
    """

    def __init__(
        self,
        plugins: "PluginManager[BrokerContext]",
        session: Session,
        *,
        broker: "StrictBroker",
        peer: Peer,
        frames: FrameBuffer,
        allowance: Allowance,
    ) -> None:
        super().__init__(plugins, session)
        self.client = session
        self.login = VerifiedLogin.of(session)
        self.will = _will_of(session)
        self.peer = peer
        self.filters: dict[str, int] = {}
        self._most_filters = math.inf if self.login.principal.kind == "hub" else MOST_FILTERS
        self.gone = False
        self.heard = self._loop.time()
        self.allowance = allowance
        self._broker = broker
        self._frames = frames
        self._last_id = 0
        self._unacknowledged: set[int] = set()
        self._received: set[int] = set()
        self._fresh_filters: dict[str, int] = {}
        self._wake = asyncio.Event()

    @property
    def name(self) -> str:
        return self.login.name

    @property
    def silence_s(self) -> float | None:
        """Return the seconds without a byte after which it counts as gone; None without a keepalive."""
        return self.client.keep_alive * 1.5 if self.client.keep_alive else None

    async def run(self) -> None:
        """Handle the client's packets until it leaves or is dropped.

        Raises:
            MalformedPacket: If it breaks the protocol.
        """
        broken: MalformedPacket | None = None
        async with asyncio.TaskGroup() as tasks:
            retained = tasks.create_task(self._send_retained(), name=f"retained for {self.name}")
            try:
                await self._read()
            except MalformedPacket as error:
                broken = error
            finally:
                retained.cancel()
        if broken is not None:
            raise broken

    def deliver(self, topic: bytes, payload: bytes, *, qos: int, retain: bool = False) -> None:
        """Send a message; a client that lets too much pile up is dropped instead."""
        if self.gone:
            return
        packet_id = self._next_id() if qos else 0
        if packet_id is None:
            self._give_up("it acknowledges nothing")
            return
        self.peer.write(write_publish(topic, payload, qos=qos, retain=retain, packet_id=packet_id))
        if self.peer.waiting > self.allowance.outgoing_bytes:
            self._give_up(_does_not_read(self.allowance.outgoing_bytes))

    async def _read(self) -> None:
        while True:
            handled = 0
            while (frame := self._frames.take()) is not None:
                self._handle(frame)
                if self.gone:
                    return
                handled += 1
                if handled == self.allowance.turn:
                    await self._pace(handled)
                    handled = 0
            if self.peer.waiting > self.allowance.outgoing_bytes:
                # Answers to its own packets, of which there may be more than messages to it.
                self._broker.drop(self, _does_not_read(self.allowance.outgoing_bytes))
                return
            await self._pace(handled)
            data = await self.peer.read()
            if not data or self.gone:
                return
            self.heard = self._loop.time()
            self._frames.feed(data)
            if wait_s := self.allowance.bytes.reserve(len(data)):
                await asyncio.sleep(wait_s)

    async def _pace(self, packets: int) -> None:
        # Other clients have their turn, and one that sent too much is not read for a while.
        await asyncio.sleep(self.allowance.packets.reserve(packets))

    def _handle(self, frame: Frame) -> None:
        match frame.type:
            case packet.PUBLISH:
                self._published(frame)
            case packet.PUBACK:
                self._acknowledged(read_packet_id(frame))
            case packet.PINGREQ:
                self.peer.write(_PINGRESP)
            case packet.SUBSCRIBE:
                self._subscribe(frame)
            case packet.UNSUBSCRIBE:
                self._unsubscribe(frame)
            case packet.PUBREL:
                self._received.discard(packet_id := read_packet_id(frame))
                self.peer.write(_acknowledgement(packet.PUBCOMP, packet_id))
            case packet.DISCONNECT:
                self.will = None
                self._broker.leave(self)
            case _:
                raise MalformedPacket(f"a packet of type {frame.type} was not expected")

    def _published(self, frame: Frame) -> None:
        publication = read_publish(frame)
        packet_id = publication.packet_id
        if publication.qos == 0:
            self._broker.receive(self, publication, _nothing)
        elif publication.qos == 1:
            self._broker.receive(
                self, publication, lambda: self._answer(_acknowledgement(packet.PUBACK, packet_id))
            )
        else:
            if packet_id not in self._received:
                self._received.add(packet_id)
                self._broker.receive(self, publication, _nothing)
            self.peer.write(_acknowledgement(packet.PUBREC, packet_id))

    def _answer(self, data: bytes) -> None:
        if not self.gone:
            self.peer.write(data)

    def _acknowledged(self, packet_id: int) -> None:
        self._unacknowledged.discard(packet_id)
        if self._fresh_filters and len(self._unacknowledged) < MOST_UNACKNOWLEDGED:
            self._wake.set()

    def _subscribe(self, frame: Frame) -> None:
        packet_id, filters = read_filters(frame, with_qos=True, most=self._most_filters)
        codes = []
        for filter_, asked in filters:
            qos = min(asked, _MAX_QOS)
            granted = self._broker.subscribe(self, filter_, qos)
            codes.append(qos if granted else _REFUSED)
            if granted:
                self._fresh_filters[filter_] = qos
        self.peer.write(bytes(SubackPacket.build(packet_id, codes).to_bytes()))
        self._wake.set()

    def _unsubscribe(self, frame: Frame) -> None:
        packet_id, filters = read_filters(frame, with_qos=False, most=self._most_filters)
        for filter_, _ in filters:
            self._broker.unsubscribe(self, filter_)
            self._fresh_filters.pop(filter_, None)
        self.peer.write(_acknowledgement(packet.UNSUBACK, packet_id))

    async def _send_retained(self) -> None:
        """Send what is retained to each new subscription, no faster than the client takes it."""
        while True:
            self._wake.clear()
            for filter_, qos in list(self._fresh_filters.items()):
                for number, topic in enumerate(self._broker.retained(self, filter_)):
                    if number % self.allowance.turn == 0:
                        await self._pace(self.allowance.turn)
                    await self._make_room()
                    # What was published meanwhile went out already: what is sent now is never older.
                    message = self._broker.retained_on(topic)
                    if message is not None and filter_ in self._fresh_filters:
                        self.deliver(topic.encode(), message.payload, qos=min(qos, message.qos), retain=True)
                self._fresh_filters.pop(filter_, None)
            if not self._fresh_filters:
                await self._wake.wait()

    async def _make_room(self) -> None:
        if self.peer.waiting > self.allowance.outgoing_bytes // 4:
            await self.peer.drain()
        while len(self._unacknowledged) >= MOST_UNACKNOWLEDGED:
            self._wake.clear()
            await self._wake.wait()

    def _next_id(self) -> int | None:
        """Return a packet id that is not in use; None where none of the last ones was acknowledged."""
        if len(self._unacknowledged) >= _IDS - 1:
            return None
        while True:
            self._last_id = self._last_id % _IDS + 1
            if self._last_id not in self._unacknowledged:
                self._unacknowledged.add(self._last_id)
                return self._last_id

    def _give_up(self, reason: str) -> None:
        # Later, and not in the middle of sending a message to everybody.
        self._loop.call_soon(self._broker.drop, self, reason)


def _nothing() -> None:
    pass


def _does_not_read(most: int) -> str:
    return f"it does not read: over {most} bytes wait for it"


def _acknowledgement(packet_type: int, packet_id: int) -> bytes:
    return bytes((packet_type << 4, 2, packet_id >> 8, packet_id & 0xFF))


def _will_of(session: Session) -> Publication | None:
    if not session.will_flag or session.will_topic is None:
        return None
    payload = bytes(session.will_message or b"")
    return Publication(session.will_topic, payload, session.will_qos or 0, bool(session.will_retain))
