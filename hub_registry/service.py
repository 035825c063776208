"""The registry on the bus: hears what devices say, and says what the hub is."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from broker.link import Link, Message
from contracts import topics
from contracts.errors import Disconnected, NotFound
from contracts.presence import Revocation
from hub_registry.hub_presence import HubPresence
from hub_registry.ingest import Ingest, OnPresence
from hub_registry.registry import Registry

_log = logging.getLogger(__name__)

_GATHER_S: Final = 0.05
"""What arrives within this time becomes one transaction: a thousand devices, a few commits."""
_EXPIRE_S: Final = 0.5
"""How late a device may be seen as gone whose retained ``online`` nobody confirmed."""
_FORGET_S: Final = 60.0
"""How late skills without a sign of life may leave the search; they leave after half an hour."""
_GOODBYE_S: Final = 2.0
"""How long stopping may wait for a broker that no longer answers."""


class RegistryService:
    """Keeps the registry and the bus in step. `run` it for as long as the hub lives."""

    def __init__(self, registry: Registry, *, link: Link, presence: HubPresence) -> None:
        self._registry = registry
        self._link = link
        self._presence = presence
        self._ingest = Ingest(
            registry.directory,
            registry.journal,
            hub_id=registry.hub_id,
            bounds=registry.settings.bounds,
        )
        self._heard = asyncio.Event()

    def on_presence(self, listener: OnPresence) -> Callable[[], None]:
        """Have a plain function called whenever a device comes, goes or reconnects; gives its undoing."""
        return self._ingest.on_presence(listener)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with self._listening(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write(), name="registry: write")
            tasks.create_task(
                _every(self._registry.settings.heartbeat_flush_s, self._registry.journal.flush_alive),
                name="registry: write signs of life",
            )
            tasks.create_task(_every(_EXPIRE_S, self._expire), name="registry: expire presence")
            tasks.create_task(_every(_FORGET_S, self._forget), name="registry: expire skills")

    async def remove_device(self, device: str) -> None:
        """Remove a device: disconnect it, wait for its will, clear its topics, forget it.

        Raises:
            NotFound: If there is no such device.
        """
        entry = self._registry.directory.get(device)
        if entry is None:
            raise NotFound(f"there is no device {device!r}", hint="'strawberry devices list' shows all.")
        gone = asyncio.Event()
        stop = self.on_presence(
            lambda change: _set_if(gone, change.device == device and not change.connected)
        )
        try:
            async with self._retained_of(device) as retained:
                await self._registry.authority.revoke_subject("device", device)
                if entry.presence.connected:
                    await _wait(gone, self._registry.settings.removal_wait_s)
                await self._registry.revoke_device(device)
                self._ingest.shut_out(entry)
                await self._clear(retained)
        finally:
            stop()
        await self._registry.remove_device(device)

    async def revoke_device(self, device: str) -> None:
        """Shut a device out: it is disconnected, and what it signed counts no longer.

        Raises:
            NotFound: If there is no such device.
        """
        await self._registry.revoke_device(device)
        entry = self._registry.directory.get(device)
        if entry is not None:
            self._ingest.shut_out(entry)

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(self._registry.authority.on_revoked(self._revoke_on_broker))
            stack.callback(self._link.on_connected(self._connected))
            stack.push_async_callback(self._say_goodbye)
            for filter_, handler, qos in (
                (topics.STATUS.filter(), self._ingest.status, 1),
                (topics.HEARTBEAT.filter(), self._ingest.heartbeat, 0),
                (topics.ALL_SKILLS, self._ingest.registration, 1),
            ):
                stack.push_async_callback(await self._link.subscribe(filter_, self._waking(handler), qos=qos))
            if self._link.connected:
                await self._connected()
            yield

    def _waking(self, handler: Callable[[Message], None]) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            handler(message)
            self._heard.set()

        return handle

    async def _connected(self) -> None:
        """After each connect: every device shall say again that it is there and what it has."""
        self._ingest.doubt_all()
        revoked = self._registry.authority.unexpired_revocations()
        if revoked.tokens:
            await self._revoke_on_broker(revoked)
        await self._publish(self._presence.online())

    async def _say_goodbye(self) -> None:
        async def publish() -> None:
            async with asyncio.timeout(_GOODBYE_S):
                await self._publish(self._presence.offline(), confirmed=True)

        try:
            await asyncio.shield(publish())
        except (TimeoutError, Disconnected):
            _log.info("the broker is gone; the hub's last will says that it went")

    async def _publish(self, message: Message, *, confirmed: bool = False) -> None:
        await self._link.publish(
            message.topic, message.payload, qos=message.qos, retain=message.retain, confirmed=confirmed
        )

    async def _revoke_on_broker(self, revocation: Revocation) -> None:
        row = topics.BROKER_CONTROL
        try:
            await self._link.publish(row.build(), revocation.model_dump_json().encode(), qos=row.qos)
        except Disconnected:
            # The whole list goes out at the next connect.
            _log.warning("the broker cannot be told of a revocation now; it is when it is back")

    @asynccontextmanager
    async def _retained_of(self, device: str) -> AsyncIterator[set[str]]:
        """Collect the topics that the broker retains of a device, besides those that are known."""
        entry = self._registry.directory.get(device)
        known = {row.build(device=device) for row in (topics.STATUS, topics.HEARTBEAT)}
        known |= {topics.SKILL.build(device=device, skill=name) for name in (entry.skills if entry else ())}

        def collect(message: Message) -> None:
            known.add(message.topic)

        async with AsyncExitStack() as stack:
            for row in (topics.STATUS, topics.HEARTBEAT, topics.SKILL, topics.STATE):
                stack.push_async_callback(
                    await self._link.subscribe(row.filter(device=device), collect, qos=row.qos)
                )
            yield known

    async def _clear(self, retained: set[str]) -> None:
        try:
            for topic in sorted(retained):
                await self._link.publish(topic, b"", qos=1, retain=True)
        except Disconnected:
            _log.warning("the broker is away: it goes on retaining topics of a removed device")

    async def _write(self) -> None:
        while True:
            await self._heard.wait()
            await asyncio.sleep(_GATHER_S)
            self._heard.clear()
            await self._registry.journal.flush()
            self._registry.search.sync()

    async def _expire(self) -> None:
        self._ingest.expire()

    async def _forget(self) -> None:
        self._registry.search.expire()


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await work()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        _log.warning("no last will came; the broker may not have disconnected the device")


def _set_if(event: asyncio.Event, condition: bool) -> None:
    if condition:
        event.set()
