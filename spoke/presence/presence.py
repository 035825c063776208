"""Presence of a spoke on the bus: status, registrations, heartbeats."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

import psutil

from bus.link import Link, Message
from chat.tasks import happens
from contracts import topics
from contracts.devices.presence import Heartbeat, VoiceState
from contracts.errors import Disconnected, Forbidden
from spoke import limits
from spoke.presence.hub_status import HubPresence
from spoke.presence.status import OwnStatus, manifest_of
from spoke.settings import SpokeSettings

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Presence:
    """Publishes status, registrations and heartbeats, and republishes them for each session of the hub.

    What a lost connection keeps from being sent is sent with the next one.

    Attributes:
        registrations: Signed payload of each registration, by topic.
        is_enrolled: Asks whether the hub still accepts this device. Called before an emptied status is
            published again, because it may be the hub that emptied it.
        voice: Returns what the voice of this device does.

    Attributes:
        announced: Set once status and registrations have been published for the first time.
    """

    link: Link
    _: KW_ONLY
    device: str
    status: OwnStatus
    registrations: Mapping[str, bytes]
    hubs: HubPresence
    is_enrolled: Callable[[], Awaitable[bool]]
    settings: SpokeSettings
    voice: Callable[[], VoiceState | None] = lambda: None

    def __post_init__(self) -> None:
        self.announced = asyncio.Event()
        self._began = time.monotonic()
        self._heartbeats = 0
        self._publishing = asyncio.Lock()
        self._hub_seen = asyncio.Event()
        self._hub_is_new = asyncio.Event()
        self._status_is_false = asyncio.Event()
        self._was_emptied = False
        self._registered = asyncio.Event()
        self._sent: Mapping[str, bytes] = {}
        self._stale: set[str] = set()
        self._has_stale = asyncio.Event()
        self._is_leaving = False
        self._beat = asyncio.Event()

    async def listen(self) -> None:
        """Subscribe. Call it before the link connects for the first time."""
        await self.link.subscribe(topics.HUB_STATUS.filter(), self._on_hub)
        await self.link.subscribe(self.status.topic, self._on_own_status)
        await self.link.subscribe(topics.SKILL.filter(device=self.device), self._on_own_skill)
        self.link.on_connected(self._on_connected)

    async def run(self) -> None:
        """Keep the spoke present until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_heartbeats(), name="heartbeat")
            tasks.create_task(self._answer_hubs(), name="answer new sessions of the hub")
            tasks.create_task(self._announce_changes(), name="publish changed registrations")
            tasks.create_task(self._correct_status(), name="correct a false status")
            tasks.create_task(self._clear_stale(), name="clear registrations of removed skills")

    def register(self, registrations: Mapping[str, bytes]) -> None:
        """Publish these registrations soon in place of those before; the connection stays."""
        self._stale |= self.registrations.keys() - registrations.keys()
        self.registrations = dict(registrations)
        self.status.offer(manifest_of(registrations))
        self._registered.set()

    async def leave(self) -> None:
        """Publish that the spoke goes offline, ahead of its Last Will."""
        self._is_leaving = True
        try:
            async with asyncio.timeout(limits.LEAVE_S), self._publishing:
                await self.link.send(self.status.offline(), confirmed=True)
        except (Disconnected, Forbidden, TimeoutError) as error:
            _log.info("could not publish that this spoke goes offline; its last will does: %s", error)

    def _on_hub(self, message: Message) -> None:
        is_new = self.hubs.hear(message)
        self._hub_seen.set()
        if is_new:
            self._hub_is_new.set()

    def _on_own_status(self, message: Message) -> None:
        # A retained status is from before this connection, which overwrites it.
        if message.retain or self.status.is_echo(message.payload):
            return
        if self.status.is_later(message.payload):
            _log.error(
                "another spoke publishes as %s with its key: stop one of them, and join again with the other",
                self.device,
            )
            return
        self._was_emptied |= not message.payload
        if not self._status_is_false.is_set():
            _log.warning("the bus carried a false status of %s; publishing the true one again", self.device)
        self._status_is_false.set()

    def _on_own_skill(self, message: Message) -> None:
        if message.retain and message.payload and message.topic not in self.registrations:
            self._stale.add(message.topic)
            self._has_stale.set()

    async def _on_connected(self) -> None:
        # The hub's retained status arrives within milliseconds of the subscription if there is one; the
        # first status then answers the hub's session and need not be published twice.
        is_known = self.hubs.session is not None
        if not is_known and not await happens(self._hub_seen, within_s=self.settings.hub_wait_s):
            _log.debug("no hub has published a status yet")
        await self._announce()

    async def _announce(self, *, sent: Mapping[str, bytes] | None = None) -> None:
        async with self._publishing:
            if self._is_leaving:
                return
            # This status answers every session seen so far, and has the manifest of now.
            self._hub_is_new.clear()
            self._registered.clear()
            registrations = self.registrations
            # The manifest goes first, so that the hub accepts each registration as it arrives.
            await self.link.send(self.status.online(hub_session=self.hubs.session))
            for topic, payload in registrations.items():
                if (sent or {}).get(topic) != payload:
                    await self.link.send(Message(topic, payload, topics.SKILL.qos, retain=True))
            self._sent = registrations
        if self._stale:
            self._has_stale.set()
        if not self.announced.is_set():
            skills = len(self.registrations)
            _log.info(
                "%s is on the bus with %d %s", self.device, skills, "skill" if skills == 1 else "skills"
            )
            self.announced.set()

    async def _answer_hubs(self) -> None:
        while True:
            await self._hub_is_new.wait()
            await asyncio.sleep(random.uniform(0, self.settings.republish_within_s))  # noqa: S311 - no secret
            if self._hub_is_new.is_set():
                with suppress(Disconnected):
                    await self._announce()

    async def _announce_changes(self) -> None:
        await self.announced.wait()
        while True:
            await self._registered.wait()
            self._registered.clear()
            # Without a connection, the next one announces everything.
            with suppress(Disconnected):
                await self._announce(sent=self._sent)

    async def _correct_status(self) -> None:
        while True:
            await self._status_is_false.wait()
            self._status_is_false.clear()
            emptied, self._was_emptied = self._was_emptied, False
            if not emptied or await self.is_enrolled():
                # `offline` is final within a connection, and a Last Will belongs to one: only a new
                # connection corrects both.
                self.link.reconnect()
            await asyncio.sleep(self.settings.reclaim_s)

    async def _clear_stale(self) -> None:
        while True:
            await self._has_stale.wait()
            self._has_stale.clear()
            # Retained messages may arrive before the connection can publish: what failed stays in the set.
            with suppress(Disconnected):
                for topic in sorted(self._stale - self.registrations.keys()):
                    await self.link.send(Message(topic, b"", topics.SKILL.qos, retain=True))
                    self._stale.discard(topic)

    async def _send_heartbeats(self) -> None:
        process = psutil.Process()
        topic = topics.HEARTBEAT.build(device=self.device)
        await self.announced.wait()
        while True:
            payload = self._heartbeat(process).model_dump_json().encode()
            with suppress(Disconnected):
                await self.link.send(Message(topic, payload, topics.HEARTBEAT.qos, retain=True))
            await happens(self._beat, within_s=self.settings.heartbeat_s)
            self._beat.clear()

    def beat(self) -> None:
        self._beat.set()

    def _heartbeat(self, process: psutil.Process) -> Heartbeat:
        self._heartbeats += 1
        return Heartbeat(
            seq=self._heartbeats,
            uptime_s=round(time.monotonic() - self._began, 1),
            mode="hub" if self.hubs.is_online and self.link.connected else "alone",
            load=round(psutil.cpu_percent() / 100, 2),
            memory_mb=round(process.memory_info().rss / 2**20, 1),
            battery=_battery(),
            voice=self.voice(),
        )


def _battery() -> int | None:
    try:
        found = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    except OSError:  # a container or a kernel without power supplies
        return None
    return None if found is None else min(100, max(0, round(found.percent)))
