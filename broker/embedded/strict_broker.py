"""amqtt's broker, made strict: what it leaves open is closed here.

amqtt 0.12.1 brings the packet codecs, the sessions, the plugins and the life cycle. Its routing, its
session table and its loops are replaced, because the faults lie there: retained messages past the ACL, no
keepalive, a session table that anybody can touch before logging in, no limits.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerConfig
from amqtt.mqtt.connect import ConnectPacket
from amqtt.session import Session

from broker.embedded.authentication import Revocations, TokenLogin, VerifiedLogin
from broker.embedded.connection import Connection
from broker.embedded.frames import (
    FrameBuffer,
    MalformedPacket,
    Publication,
    UnsupportedProtocol,
    is_filter,
    read_connect,
)
from broker.embedded.limits import Admission, BrokerLimits, Refusals, Strangers
from broker.embedded.peer import CHUNK, HandshakeFailed, Peer
from broker.embedded.retained import Retained, RetainedStore
from broker.embedded.topic_tree import TopicTree
from broker.limits import MAX_LEVELS, SAME_FAILURE_S, WATCH_S
from broker.logins import LoginCheck
from contracts import topics
from contracts.errors import InvalidMessage, Unauthorized

_log = logging.getLogger(__name__)

_ACCEPTED: Final = 0
_WRONG_VERSION: Final = 1
_UNAVAILABLE: Final = 3
_NOT_AUTHORISED: Final = 5

_CONTROL: Final = topics.BROKER_CONTROL.template
_LOGIN_PLUGIN: Final = f"{TokenLogin.__module__}.{TokenLogin.__qualname__}"


@dataclass(frozen=True, slots=True)
class Subscription:
    """What was granted: the QoS, and whether each message must be checked before it is delivered."""

    qos: int
    filtered: bool


class StrictBroker(Broker):
    """The embedded broker without its sockets: log in, route, retain, revoke."""

    def __init__(
        self,
        check: LoginCheck,
        revocations: Revocations,
        *,
        limits: BrokerLimits,
        retained: RetainedStore,
        tasks: asyncio.TaskGroup,
    ) -> None:
        nowhere = {"default": ListenerConfig(bind=None)}
        super().__init__(BrokerConfig(listeners=nowhere, plugins={_LOGIN_PLUGIN: {"check": check}}))
        self.refusals = Refusals()
        self._limits = limits
        self._revocations = revocations
        self._revocations_lock = asyncio.Lock()
        self._store = retained
        self._tasks = tasks
        self._filters: TopicTree[dict[Connection, Subscription]] = TopicTree()
        self._admission = Admission(limits)
        self._peers: set[Peer] = set()
        self._strangers = Strangers(limits.strangers)
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False

    # ---- connections

    async def serve(self, peer: Peer) -> None:
        """Serve one connection from its first byte to its last."""
        if self._stopping:
            peer.abort()
            return
        if (oldest := self._strangers.add(peer)) is not None:
            self.refusals.report("a connection", "too many others have not logged in yet", oldest.address)
            oldest.abort()
        self._peers.add(peer)
        self._idle.clear()
        connection: Connection | None = None
        try:
            connection = await self._welcome(peer)
            if connection is not None:
                await connection.run()
        except MalformedPacket as error:
            self.refusals.report(connection.name if connection else peer.host, error.message)
        except Exception:  # noqa: BLE001 - a fault in serving one client must not end the broker for all
            _log.exception("serving %s failed", connection.name if connection else peer.address)
        finally:
            if connection is not None:
                self.leave(connection)
            self._peers.discard(peer)
            if not self._peers:
                self._idle.set()
            await peer.close()

    async def _welcome(self, peer: Peer) -> Connection | None:
        """Log a client in; None if it is refused or sends nothing."""
        frames = FrameBuffer(self._limits.connect_bytes)
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                if not await peer.open(most=self._limits.connect_bytes + CHUNK):
                    return None
                while (frame := frames.take()) is None:
                    data = await peer.read()
                    if not data:
                        return None
                    frames.feed(data)
            session = await self._log_in(await read_connect(frame))
        except TimeoutError:
            self.refusals.report("a connection", "it sent no CONNECT in time", peer.address)
        except HandshakeFailed as error:
            # A client that trusts another authority retries for ever, with the same failure each time.
            self.refusals.report(peer.host, error.message, every_s=SAME_FAILURE_S)
        except UnsupportedProtocol:
            # Not worth a log line: a client of MQTT 5 tries it first and falls back at once.
            peer.write(_connack(_WRONG_VERSION))
        except Unauthorized as error:
            self.refusals.report(peer.host, error.message)
            peer.write(_connack(_NOT_AUTHORISED))
        else:
            return self._enter(session, peer, frames)
        finally:
            self._strangers.discard(peer)
        return None

    async def _log_in(self, connect: ConnectPacket) -> Session:
        """Check a CONNECT before anything of the broker's is touched.

        Raises:
            Unauthorized: If the login, or the will that comes with it, is refused.
        """
        session = Session()
        session.client_id = connect.client_id
        if connect.client_id_is_random and connect.username:
            session.client_id = f"{connect.username}-{secrets.token_hex(8)}"
        session.username = connect.username
        session.password = connect.password
        # Sessions are not kept, whatever the client asks for; see RetainedStore.
        session.clean_session = True
        session.keep_alive = connect.keep_alive
        session.will_flag = connect.will_flag
        session.will_topic = connect.will_topic
        session.will_message = connect.will_message
        session.will_qos = connect.will_qos
        session.will_retain = connect.will_retain_flag
        await self.plugins_manager.map_plugin_auth(session=session)
        login = VerifiedLogin.of(session)
        if session.will_flag and not (session.will_topic and login.rights.may_publish(session.will_topic)):
            raise Unauthorized(f"the will of {login.name} is on a topic that it may not publish on")
        return session

    def _enter(self, session: Session, peer: Peer, frames: FrameBuffer) -> Connection | None:
        """Put a client that has logged in into the table; an older connection of the same one leaves it."""
        login = VerifiedLogin.of(session)
        # Names of different kinds of principals may be the same; their sessions never are.
        key = f"{login.principal.kind}/{login.principal.id}/{session.client_id}"
        session.client_id = key
        older = self._sessions.get(key)
        if older is not None:
            assert isinstance(older[1], Connection)
            self.drop(older[1], "a new connection takes its place")
        elif (refusal := self._admission.refusal(login, peer.host)) is not None:
            self.refusals.report(login.name, refusal, peer.address)
            peer.write(_connack(_UNAVAILABLE))
            return None
        frames.limit = self._limits.packet_bytes
        peer.trust()
        connection = Connection(
            self.plugins_manager,
            session,
            broker=self,
            peer=peer,
            frames=frames,
            allowance=self._admission.allowance(login),
        )
        session.transitions.connect()
        self._sessions[key] = (session, connection)
        self._admission.count(login, peer.host, 1)
        peer.write(_connack(_ACCEPTED))
        return connection

    def drop(self, connection: Connection, reason: str) -> None:
        """Disconnect a client at once; its will is published."""
        if not connection.gone:
            _log.info("disconnected %s: %s", connection.name, reason)
            self.leave(connection)
            connection.peer.abort()

    def leave(self, connection: Connection) -> None:
        """Remove a client and publish its will, if it has one; once."""
        if connection.gone:
            return
        connection.gone = True
        session = connection.client
        assert session.client_id is not None
        del self._sessions[session.client_id]
        self._admission.count(connection.login, connection.peer.host, -1)
        for filter_ in list(connection.filters):
            self.unsubscribe(connection, filter_)
        session.transitions.disconnect()
        if connection.will is not None:
            # A client that talked too much is no less gone: its will is not metered.
            self._take(connection, connection.will, self._overstep(connection, connection.will), _nothing)

    def _connections(self) -> list[Connection]:
        return [each for _, each in self._sessions.values() if isinstance(each, Connection)]

    # ---- messages

    def receive(
        self, connection: Connection, publication: Publication, acknowledge: Callable[[], None]
    ) -> None:
        """Handle a message: refuse it, obey it, or route it.

        A refused message is acknowledged too: MQTT 3.1.1 knows no other answer, and without one the client
        would send it again.
        """
        refusal = self._excess(connection, publication) or self._overstep(connection, publication)
        self._take(connection, publication, refusal, acknowledge)

    def _take(
        self,
        connection: Connection,
        publication: Publication,
        refusal: str | None,
        acknowledge: Callable[[], None],
    ) -> None:
        if refusal is not None:
            self.refusals.report(connection.name, refusal, publication.topic)
            acknowledge()
        elif publication.topic == _CONTROL:
            self._obey(connection, publication.payload, acknowledge)
        else:
            self._route(publication)
            if publication.retain:
                self._store.put(_retained(connection, publication), acknowledge)
            else:
                acknowledge()

    def _excess(self, connection: Connection, publication: Publication) -> str | None:
        """Return the reason why a message is too much at once, if it is; the hub has no such bound."""
        if connection.login.principal.kind == "hub":
            return None
        allowance = connection.allowance
        if not allowance.messages.take(1):
            return "it sends too many messages"
        if not allowance.volume.take(len(publication.topic) + len(publication.payload)):
            return "it sends too many bytes"
        return None

    def _overstep(self, connection: Connection, publication: Publication) -> str | None:
        """Return the reason why a message is refused by rights or room, if it is."""
        if not connection.login.rights.may_publish(publication.topic):
            return "it may not publish on this topic"
        if publication.topic.count("/") >= MAX_LEVELS:
            return "the topic has too many levels"
        # The hub is the one to clean up after others, and holds what concerns all of them.
        if publication.retain and publication.payload and connection.login.principal.kind != "hub":
            share = self._store.share_with(_retained(connection, publication))
            if share.topics > self._limits.retained_topics:
                return "it has too many retained topics"
            if share.size > self._limits.retained_bytes:
                return "its retained messages are too large together"
        return None

    def _route(self, publication: Publication) -> None:
        topic, payload = publication.topic, publication.payload
        receivers: dict[Connection, int] = {}
        for subscribers in self._filters.of_topic(topic):
            for connection, subscription in subscribers.items():
                if subscription.filtered and not connection.login.rights.may_receive(topic):
                    continue
                # Overlapping subscriptions make one message, with the highest QoS of them.
                receivers[connection] = max(receivers.get(connection, 0), subscription.qos)
        if not receivers:
            return
        encoded = topic.encode()
        for connection, qos in receivers.items():
            connection.deliver(encoded, payload, qos=min(qos, publication.qos))

    # ---- subscriptions

    def subscribe(self, connection: Connection, filter_: str, qos: int) -> bool:
        """Enter a subscription; False where it is refused."""
        refusal = None
        if not is_filter(filter_):
            refusal = "the filter is malformed"
        elif not connection.login.rights.may_subscribe(filter_):
            refusal = "it may not subscribe to this"
        elif (
            filter_ not in connection.filters
            # The hub has one for each topic that is watched or captured.
            and connection.login.principal.kind != "hub"
            and self._limits.exceeded_by([*connection.filters, filter_])
        ):
            refusal = "it has too many subscriptions"
        if refusal is not None:
            self.refusals.report(connection.name, refusal, filter_)
            return False
        connection.filters[filter_] = qos
        subscribers = self._filters.get(filter_)
        if subscribers is None:
            self._filters.set(filter_, subscribers := {})
        filtered = not connection.login.rights.may_receive_all(filter_)
        subscribers[connection] = Subscription(qos, filtered)
        return True

    def unsubscribe(self, connection: Connection, filter_: str) -> None:
        """Drop a subscription."""
        connection.filters.pop(filter_, None)
        subscribers = self._filters.get(filter_)
        if subscribers is not None:
            subscribers.pop(connection, None)
            if not subscribers:
                self._filters.remove(filter_)

    def retained(self, connection: Connection, filter_: str) -> list[str]:
        """Return the topics of the retained messages that a new subscription is to get."""
        may_receive = connection.login.rights.may_receive
        return [message.topic for message in self._store.matching(filter_) if may_receive(message.topic)]

    def retained_on(self, topic: str) -> Retained | None:
        return self._store.get(topic)

    # ---- revoking

    def _obey(self, connection: Connection, payload: bytes, acknowledge: Callable[[], None]) -> None:
        """Apply a revocation of the hub; acknowledged when it is stored."""
        try:
            revocation = topics.BROKER_CONTROL.parse(payload)
        except InvalidMessage as error:
            self.refusals.report(connection.name, error.message)
            acknowledge()
            return
        self._revocations.add(revocation)
        for each in self._connections():
            if self._revocations.covers(each.login.claims):
                self.drop(each, "its token has been revoked")
        self._tasks.create_task(self._store_revocations(acknowledge), name="store revocations")

    async def _store_revocations(self, acknowledge: Callable[[], None]) -> None:
        async with self._revocations_lock:
            try:
                await asyncio.to_thread(self._revocations.save)
            except OSError as error:
                _log.error("revocations hold until this broker stops; they could not be stored: %s", error)
                return
        acknowledge()

    # ---- life cycle

    async def watch(self) -> None:
        """Disconnect clients that exceed their keepalive or whose token expires, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            now, moment = self._loop.time(), time.time()
            for connection in self._connections():
                limit = connection.silence_s
                if limit is not None and now - connection.heard > limit:
                    self.drop(connection, "it was silent for longer than its keepalive")
                elif moment >= connection.login.claims.exp:
                    self.drop(connection, "its token has expired")

    async def dismiss(self) -> None:
        """Disconnect all clients, publish their wills, and accept no more."""
        self._stopping = True
        for connection in self._connections():
            self.leave(connection)
        for peer in list(self._peers):
            peer.abort()
        await self._idle.wait()

    async def _start_listeners(self) -> None:
        """Do nothing: ``open_embedded`` opens the listeners."""

    async def _session_monitor(self) -> None:
        """Do nothing: a session ends with its connection."""

    async def _broadcast_loop(self) -> None:
        """Do nothing: messages are routed as they come, and not queued in between."""


def _nothing() -> None:
    pass


def _connack(code: int) -> bytes:
    return bytes((0x20, 2, 0, code))


def _retained(connection: Connection, publication: Publication) -> Retained:
    login = connection.login
    return Retained(
        publication.topic,
        publication.payload,
        publication.qos,
        login.name,
    )
