"""Being there: what a spoke tells the hub about itself, and keeps true on the bus."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Final

import psutil

from bus.link import Link, Message
from contracts import topics
from contracts.errors import Disconnected, Forbidden
from contracts.presence import Heartbeat
from spoke.presence.hubs import HubPresence
from spoke.presence.status import OwnStatus
from spoke.settings import SpokeSettings

_LOG = logging.getLogger(__name__)

_LEAVE_S: Final = 2.0
_MAX_MENDS: Final = 1_024


class Presence:
    """Announces the spoke, answers new sessions of the hub, and puts right what others say in its name.

    Args:
        registrations: Signed payload of each registration, by topic.
        is_wanted: Asked before what was emptied is said again: it may have been the hub, which lets the
            device in no more.

    Attributes:
        announced: Set once the spoke has told of itself and its skills for the first time.
    """

    def __init__(
        self,
        link: Link,
        *,
        device: str,
        status: OwnStatus,
        registrations: Mapping[str, bytes],
        hubs: HubPresence,
        is_wanted: Callable[[], Awaitable[bool]],
        settings: SpokeSettings,
    ) -> None:
        self.announced = asyncio.Event()
        self._link = link
        self._device = device
        self._status = status
        self._registrations = registrations
        self._hubs = hubs
        self._is_wanted = is_wanted
        self._settings = settings
        self._began = time.monotonic()
        self._heartbeats = 0
        self._speaking = asyncio.Lock()
        self._hub_seen = asyncio.Event()
        self._hub_is_new = asyncio.Event()
        self._must_mend = asyncio.Event()
        self._to_mend: set[str] = set()
        self._must_reclaim = False
        self._was_emptied = False
        self._is_leaving = False

    async def listen(self) -> None:
        """Subscribe; to be done before the link connects for the first time."""
        await self._link.subscribe(topics.HUB_STATUS.filter(), self._on_hub)
        await self._link.subscribe(self._status.topic, self._on_own_status)
        await self._link.subscribe(topics.SKILL.filter(device=self._device), self._on_own_skill)
        self._link.on_connected(self._on_connected)

    async def run(self) -> None:
        """Keep it up until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat(), name="heartbeat")
            tasks.create_task(self._answer_hubs(), name="answer new sessions of the hub")
            tasks.create_task(self._mend(), name="mend what is false on the bus")

    async def leave(self) -> None:
        """Say that the spoke goes, so that nobody has to wait for its Last Will."""
        self._is_leaving = True
        try:
            async with asyncio.timeout(_LEAVE_S), self._speaking:
                await self._publish(self._status.offline(), confirmed=True)
        except (Disconnected, Forbidden, TimeoutError) as error:
            _LOG.info("could not say goodbye; the broker will: %s", error)

    # What arrives

    def _on_hub(self, message: Message) -> None:
        is_new = self._hubs.hear(message)
        self._hub_seen.set()
        if is_new:
            self._hub_is_new.set()

    def _on_own_status(self, message: Message) -> None:
        # What the broker kept is from before this connection, which overwrites it.
        if message.retain or self._status.is_echo(message.payload):
            return
        if self._status.is_later(message.payload):
            _LOG.error(
                "another spoke speaks as %s, with its key: stop one of them, and join anew with the other",
                self._device,
            )
            return
        self._was_emptied |= not message.payload
        if not self._must_reclaim:
            _LOG.warning("a false status of %s was on the bus; it is said again", self._device)
        self._must_reclaim = True
        self._must_mend.set()

    def _on_own_skill(self, message: Message) -> None:
        own = self._registrations.get(message.topic)
        if message.payload == (own or b""):
            return
        # A registration that the broker kept is overwritten as soon as this connection speaks.
        if own is not None and message.retain:
            return
        self._was_emptied |= not message.payload
        if len(self._to_mend) < _MAX_MENDS:
            self._to_mend.add(message.topic)
            self._must_mend.set()

    # What is said

    async def _on_connected(self) -> None:
        # The hub's retained status follows the subscription within milliseconds where there is one; with
        # it the first status answers the hub's session already, and need not be said twice.
        if self._hubs.session is None:
            try:
                async with asyncio.timeout(self._settings.hub_wait_s):
                    await self._hub_seen.wait()
            except TimeoutError:
                _LOG.debug("no hub is there yet")
        await self._announce()

    async def _announce(self) -> None:
        async with self._speaking:
            if self._is_leaving:
                return
            # This answers every session that has been heard of.
            self._hub_is_new.clear()
            # First the manifest: the hub then takes in each registration as it comes.
            await self._publish(self._status.online(hub_session=self._hubs.session))
            for topic, payload in self._registrations.items():
                await self._publish(Message(topic, payload, topics.SKILL.qos, retain=True))
        if self._to_mend:
            self._must_mend.set()
        if not self.announced.is_set():
            _LOG.info("%s is on the bus with %d skills", self._device, len(self._registrations))
            self.announced.set()

    async def _answer_hubs(self) -> None:
        while True:
            await self._hub_is_new.wait()
            await asyncio.sleep(random.uniform(0, self._settings.republish_within_s))  # noqa: S311 - no secret
            if self._hub_is_new.is_set():
                with _while_connected():
                    await self._announce()

    async def _mend(self) -> None:
        while True:
            await self._must_mend.wait()
            self._must_mend.clear()
            mended, self._to_mend = self._to_mend, set()
            reclaim, self._must_reclaim = self._must_reclaim, False
            emptied, self._was_emptied = self._was_emptied, False
            if not emptied or await self._is_wanted():
                for topic in sorted(mended):
                    await self._put_right(topic)
                if reclaim:
                    # `offline` is final within a connection, and the Last Will belongs to one: only a new
                    # connection makes both true again.
                    self._link.reconnect()
            await asyncio.sleep(self._settings.reclaim_s)

    async def _put_right(self, topic: str) -> None:
        own = self._registrations.get(topic, b"")
        try:
            await self._publish(Message(topic, own, topics.SKILL.qos, retain=True))
        except Disconnected:
            # What the broker keeps may come while the connection is not yet ready to publish. A skill of
            # ours is said again anyhow; one that is gone is not, and would stay for ever.
            if not own:
                self._to_mend.add(topic)
            return
        _LOG.info("put right on the bus: %s", topic)

    async def _beat(self) -> None:
        process = psutil.Process()
        topic = topics.HEARTBEAT.build(device=self._device)
        await self.announced.wait()
        while True:
            payload = self._heartbeat(process).model_dump_json().encode()
            with _while_connected():
                await self._publish(Message(topic, payload, topics.HEARTBEAT.qos, retain=True))
            await asyncio.sleep(self._settings.heartbeat_s)

    async def _publish(self, message: Message, *, confirmed: bool = False) -> None:
        await self._link.publish(
            message.topic, message.payload, qos=message.qos, retain=message.retain, confirmed=confirmed
        )

    def _heartbeat(self, process: psutil.Process) -> Heartbeat:
        self._heartbeats += 1
        return Heartbeat(
            seq=self._heartbeats,
            uptime_s=round(time.monotonic() - self._began, 1),
            mode="hub" if self._hubs.is_online and self._link.connected else "alone",
            load=round(psutil.getloadavg()[0] / (psutil.cpu_count() or 1), 2),
            memory_mb=round(process.memory_info().rss / 2**20, 1),
        )


def _while_connected() -> AbstractContextManager[None]:
    """Let go of what cannot be said now: after the next connect everything is said anew."""
    return suppress(Disconnected)
