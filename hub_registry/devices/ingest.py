"""Messages of devices, checked and taken into the directory; whatever is wrong is refused."""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from agent_core.search.directory import RegisteredSkill
from bus.link import Message
from contracts import topics
from contracts.errors import InvalidMessage, StrawberryError
from contracts.phrases import Phrase
from contracts.rates import TokenBucket, complaint_limit
from hub_registry import limits
from hub_registry.devices.directory import Directory, Entry
from hub_registry.devices.journal import Journal
from hub_registry.devices.presence import PresenceChange, PresenceState
from hub_registry.devices.registrations import parse_registration
from hub_registry.storage.tables import now
from identity.envelope import unseal
from identity.keys import PublicKey

_log = logging.getLogger(__name__)


OnPresence = Callable[[PresenceChange], None]

OnManifest = Callable[[str, Collection[str]], None]
"""Called with a device and the skills that it says live that it has."""


@dataclass(frozen=True)
class _Payload:
    """A registration whose signature was checked, and nothing else."""

    skill: str
    digest: str
    content: bytes
    document: bytes


@dataclass(eq=False)
class _Sender:
    """What is kept of one device between its messages, beyond the directory.

    Attributes:
        waiting: Registrations that no manifest lists yet, by digest.
        unread: Registrations that are listed and not read yet.
    """

    key: PublicKey
    statuses: TokenBucket
    registrations: TokenBucket
    bytes: TokenBucket
    heartbeats: TokenBucket
    waiting: OrderedDict[str, _Payload] = field(default_factory=OrderedDict)
    unread: deque[_Payload] = field(default_factory=deque)


_Handle = Callable[[Entry, _Sender, Message, dict[str, str]], None]


@dataclass(eq=False)
class Ingest:
    """Takes in statuses, heartbeats and registrations, one message at a time.

    Registrations are read by `run`, apart from the messages: the devices take turns, so that one with very
    large ones does not keep the others waiting.

    Attributes:
        on_skill: Called when the skills of a device have changed since its last message.
    """

    directory: Directory
    journal: Journal
    _: KW_ONLY
    hub_id: str
    on_manifest: OnManifest
    on_skill: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._senders: dict[str, _Sender] = {}
        self._unread: dict[str, None] = {}
        self._arrived = asyncio.Event()
        self._complaints = complaint_limit()
        self._changes = complaint_limit()
        self._listeners: list[OnPresence] = []

    def on_presence(self, listener: OnPresence) -> Callable[[], None]:
        """Call a plain function whenever a device comes, goes or reconnects; return how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def status(self, message: Message) -> None:
        self._take(message, topics.STATUS, limits.STATUS_BYTES, self._status)

    def heartbeat(self, message: Message) -> None:
        self._take(message, topics.HEARTBEAT, limits.HEARTBEAT_BYTES, self._heartbeat)

    def registration(self, message: Message) -> None:
        self._take(message, topics.SKILL, limits.REGISTRATION_BYTES, self._registration)

    async def run(self) -> None:
        """Read registrations as they arrive, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self.settle()

    async def settle(self) -> None:
        """Read the registrations that have arrived."""
        until = time.monotonic() + limits.READ_SLICE_S
        while self._unread:
            if time.monotonic() >= until:
                await asyncio.sleep(0)
                until = time.monotonic() + limits.READ_SLICE_S
            device = next(iter(self._unread))
            del self._unread[device]
            sender = self._senders.get(device)
            if sender is not None and sender.unread:
                payload = sender.unread.popleft()
                if sender.unread:
                    self._unread[device] = None
                await self._read(device, sender, payload)

    def require_confirmation(self) -> None:
        # The hub has just connected.
        for entry in self.directory.entries():
            entry.presence.require_confirmation(at=time.monotonic())

    def expire(self) -> None:
        """Count devices as offline that were only retained as online and did not confirm it."""
        for entry in self.directory.entries():
            if entry.presence.expire(at=time.monotonic()):
                self._announce(entry)

    def cut(self, entry: Entry) -> None:
        """Count a device as offline that the broker has disconnected: Mosquitto then publishes no will."""
        key = entry.device.public_key
        if entry.presence.end() and key is not None:
            self.journal.high_water(entry.id, key.kid, entry.presence.high)
            self._announce(entry)

    def revoke(self, entry: Entry) -> None:
        """Call the listeners for a device that is offline because it was revoked or removed."""
        high = entry.presence.high
        self._senders.pop(entry.id, None)
        change = PresenceChange(entry.id, PresenceState.OFFLINE, high.epoch, high.connection)
        for listener in tuple(self._listeners):
            listener(change)

    def _take(self, message: Message, row: topics.Topic[Any], most_bytes: int, handle: _Handle) -> None:
        named = message.topic.split("/")[1]
        if not message.payload:
            # An empty payload clears what the broker retains, and never the database.
            return
        try:
            self._check_and_handle(message, row, most_bytes, handle)
        except StrawberryError as error:
            self.complain(named, message.topic, error.message)
        except Exception as error:  # noqa: BLE001
            # Whatever a device sends, it must not end the task that serves all of them.
            self._complain_of_bug(named, message.topic, error)

    def _check_and_handle(
        self, message: Message, row: topics.Topic[Any], most_bytes: int, handle: _Handle
    ) -> None:
        values = row.match(message.topic)
        entry = self.directory.get(values["device"]) if values else None
        if values is None:
            raise InvalidMessage("the bus has no such topic")
        if entry is None and message.retain:
            # Another hub's on a shared broker: nothing to warn of.
            _log.debug("%.200r is retained of a device that is not there", message.topic)
            return
        if entry is None or (key := self.directory.public_key(entry.id)) is None:
            raise InvalidMessage("it is from a device that has not joined or was revoked")
        sender = self._sender(entry, key)
        if len(message.payload) > most_bytes:
            raise InvalidMessage(
                "{size} bytes are more than the {most} allowed", size=len(message.payload), most=most_bytes
            )
        handle(entry, sender, message, values)

    def _sender(self, entry: Entry, key: PublicKey) -> _Sender:
        sender = self._senders.get(entry.id)
        if sender is None or sender.key != key:
            sender = self._senders[entry.id] = _Sender(
                key,
                statuses=TokenBucket(burst=limits.STATUSES, per_second=1),
                registrations=TokenBucket(burst=limits.REGISTRATIONS, per_second=10),
                bytes=TokenBucket(burst=2 * limits.REGISTERED_BYTES, per_second=limits.REGISTERED_BYTES / 60),
                heartbeats=TokenBucket(burst=limits.HEARTBEATS, per_second=2),
            )
        return sender

    def _heartbeat(self, entry: Entry, sender: _Sender, message: Message, _: dict[str, str]) -> None:
        _spend(sender.heartbeats, "heartbeats")
        heartbeat = topics.HEARTBEAT.parse(message.payload)
        if not message.retain and entry.presence.connected:
            self._alive(entry)
            entry.hear(heartbeat, now())

    def _alive(self, entry: Entry) -> None:
        entry.last_heartbeat = now()
        self.journal.alive(entry.id, entry.last_heartbeat)

    def _status(self, entry: Entry, sender: _Sender, message: Message, _: dict[str, str]) -> None:
        _spend(sender.statuses, "statuses")
        document = unseal(self.hub_id, message.topic, message.payload, sender.key)
        status = topics.STATUS.parse(document)
        if len(status.skills) > limits.SKILLS:
            raise InvalidMessage(
                "{skills} skills are more than the {most} allowed",
                skills=len(status.skills),
                most=limits.SKILLS,
            )
        presence, before = entry.presence, (entry.presence.state, entry.presence.high)
        ignored = presence.hear(status, retained=message.retain, at=time.monotonic())
        if ignored:
            _log.debug("ignored a status of %s: %s", entry.id, ignored)
        else:
            self.journal.high_water(entry.id, sender.key.kid, presence.high)
            if status.state == "online":
                entry.version = status.version[: limits.MAX_VERSION]
                self._manifest(entry, sender, dict(status.skills))
                if not message.retain:
                    self.on_manifest(entry.id, status.skills)
            if not message.retain:
                self._alive(entry)
        if (presence.state, presence.high.epoch, presence.high.connection) != (
            before[0],
            before[1].epoch,
            before[1].connection,
        ):
            self._announce(entry)

    def _manifest(self, entry: Entry, sender: _Sender, listed: dict[str, str]) -> None:
        entry.listed = listed
        for name, skill in list(entry.skills.items()):
            if listed.get(name) != skill.digest:
                self.directory.drop_skill(entry.id, name)
                self.journal.skill_gone(entry.id, name)
        for name, digest in listed.items():
            arrived = sender.waiting.get(digest)
            if arrived is not None and arrived.skill == name and name not in entry.skills:
                del sender.waiting[digest]
                self._queue(entry, sender, arrived)

    def _registration(self, entry: Entry, sender: _Sender, message: Message, values: dict[str, str]) -> None:
        if not message.retain:
            # What the broker kept comes as often as the hub asks for it.
            _spend(sender.registrations, "registrations")
            _spend(sender.bytes, "bytes of registrations", len(message.payload))
        name, digest = values["skill"], hashlib.sha256(message.payload).hexdigest()
        known = entry.skills.get(name)
        if known is not None and known.digest == digest:
            return
        document = unseal(self.hub_id, message.topic, message.payload, sender.key)
        payload = _Payload(name, digest, message.payload, document)
        if entry.listed is not None and entry.listed.get(name) == digest:
            self._queue(entry, sender, payload)
            return
        # It may have overtaken its manifest; if none ever lists it, it was an old one.
        sender.waiting[digest] = payload
        while self._is_too_much(sender.waiting.values()):
            sender.waiting.popitem(last=False)

    def _is_too_much(self, payloads: Collection[_Payload]) -> bool:
        size = sum(len(payload.content) for payload in payloads)
        return len(payloads) > 2 * limits.SKILLS or size > 2 * limits.REGISTERED_BYTES

    def _queue(self, entry: Entry, sender: _Sender, payload: _Payload) -> None:
        if self._is_too_much([*sender.unread, payload]):
            raise InvalidMessage("more registrations of it wait to be read than are allowed")
        sender.unread.append(payload)
        self._unread[entry.id] = None
        self._arrived.set()

    async def _read(self, device: str, sender: _Sender, payload: _Payload) -> None:
        topic = topics.SKILL.build(device=device, skill=payload.skill)
        try:
            read = partial(parse_registration, payload.document, payload.content, skill=payload.skill)
            if len(payload.content) > limits.LARGE_REGISTRATION_BYTES:
                skill = await asyncio.to_thread(read)
            else:
                # A thread would take longer to begin than this takes to read.
                skill = read()
            entry = self.directory.get(device)
            if entry is None or self._senders.get(device) is not sender:
                return  # it was removed or has another key
            if entry.listed is not None and entry.listed.get(payload.skill) == payload.digest:
                self._admit(entry, sender, skill)
        except StrawberryError as error:
            self.complain(device, topic, error.message)
        except Exception as error:  # noqa: BLE001
            self._complain_of_bug(device, topic, error)

    def _admit(self, entry: Entry, sender: _Sender, skill: RegisteredSkill) -> None:
        others = [other for other in entry.skills.values() if other.name != skill.name]
        if sum(len(other.methods) for other in (*others, skill)) > limits.METHODS:
            raise InvalidMessage(
                "with {skill} it would have more than the {most} methods allowed",
                skill=skill.name,
                most=limits.METHODS,
            )
        if sum(len(other.payload) for other in (*others, skill)) > limits.REGISTERED_BYTES:
            raise InvalidMessage(
                "with {skill} its registrations would have more than the {most} bytes allowed",
                skill=skill.name,
                most=limits.REGISTERED_BYTES,
            )
        self.directory.put_skill(entry.id, skill)
        self.journal.skill(entry.id, sender.key.kid, skill)
        self.on_skill()

    def _announce(self, entry: Entry) -> None:
        high = entry.presence.high
        change = PresenceChange(entry.id, entry.presence.state, high.epoch, high.connection)
        if self._changes.take(entry.id):
            _log.info("%s is %s", entry.id, change.state)
        self.directory.changed(entry.id)
        for listener in tuple(self._listeners):
            listener(change)

    def _complain_of_bug(self, device: str, topic: str, bug: Exception) -> None:
        self.complain(
            device, topic, Phrase("the hub cannot process it ({error})", error=type(bug).__name__), bug=bug
        )

    def complain(self, device: str, topic: str, reason: str, *, bug: Exception | None = None) -> None:
        """Log that something of a device was refused, and show it to its owner.

        Args:
            bug: What failed in the hub, for its traceback.
        """
        entry = self.directory.get(device)
        # All strangers share one place, or they could fill the memory with names.
        if not self._complaints.take(device if entry else ""):
            return
        _log.warning("refused a message on %.200r: %.500s", topic, reason, exc_info=bug)
        self.directory.note_problem(device, reason)


def _spend(bucket: TokenBucket, what: str, amount: int = 1) -> None:
    if not bucket.take(amount):
        raise InvalidMessage("too many {what} in a short time", what=what)
