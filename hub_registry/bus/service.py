"""The registry on the bus: hears what devices say, says what the hub is, and clears up."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from broker.door import Door
from bus.link import Link, Message
from contracts import topics
from contracts.access import Principal
from contracts.errors import Disconnected, NotFound, StrawberryError
from contracts.presence import CONFIRM_ONLINE_S
from hub_registry.access.doorkeeper import Doorkeeper
from hub_registry.bus.hub_presence import HubPresence
from hub_registry.bus.purging import Purger, purge_bus
from hub_registry.bus.retained import Purged, RetainedTopics
from hub_registry.bus.sweeper import Sweeper
from hub_registry.devices.ingest import Ingest, OnPresence
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
_RECLAIM_S: Final = 5.0
"""Seconds between two answers to a false status of the hub: whoever repeats it must not rule the bus."""


class RegistryService:
    """Keeps the registry and the bus in step. `run` it for as long as the hub lives.

    Args:
        door: Of a broker of our own; None on one that is shared, where the hub lets nobody in or out.
        purgers: What else is emptied by `purge`: what the hub published on other brokers.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        link: Link,
        presence: HubPresence,
        door: Door | None = None,
        purgers: Sequence[Purger] = (),
    ) -> None:
        self._registry = registry
        self._link = link
        self._presence = presence
        self._keeper = Doorkeeper(registry.authority, door, on_out=self._out) if door is not None else None
        self._purgers = purgers
        self._retained = RetainedTopics(link, presence)
        self._ingest = Ingest(
            registry.directory,
            registry.journal,
            hub_id=registry.hub_id,
            bounds=registry.settings.bounds,
            suspect=lambda device: self._sweeper.suspect(device),
        )
        self._sweeper = Sweeper(
            self._retained,
            registry.directory,
            retired=set(),
            states=registry.settings.bounds.states,
            complain=self._ingest.complain,
        )
        self._heard = asyncio.Event()
        self._is_new = asyncio.Event()
        self._said_falsely = asyncio.Event()
        self._must_begin_anew = False

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
            tasks.create_task(self._reclaim(), name="registry: own status")
            tasks.create_task(self._sweeper.run(), name="registry: sweep")
            tasks.create_task(self._check_retained(), name="registry: check what is retained")
            if self._keeper is not None:
                tasks.create_task(self._keeper.run(), name="registry: door")

    async def remove_device(self, device: str) -> None:
        """Remove a device: disconnect it, or wait until it leaves, forget it, empty its topics.

        What cannot be emptied while the broker is away is emptied when it is back.

        Raises:
            NotFound: If there is no such device.
            LinkError: If the broker still lets it in; it is shut out here, and stays in the list.
        """
        entry = self._registry.directory.get(device)
        if entry is None:
            raise NotFound(f"there is no device {device!r}", hint="'strawberry devices list' shows all.")
        gone = asyncio.Event()
        stop = self.on_presence(
            lambda change: _set_if(gone, change.device == device and not change.connected)
        )
        try:
            try:
                await self._registry.authority.revoke_subject("device", device)
                # Without a door the device leaves by itself, when it hears that it is no longer let in.
                if self._keeper is None and entry.presence.connected and self._link.connected:
                    await _wait(gone, self._registry.settings.removal_wait_s)
            finally:
                await self.revoke_device(device)
        finally:
            stop()
        await self._registry.remove_device(device)
        await self._clear_up(device)

    async def revoke_device(self, device: str) -> None:
        """Shut a device out: it is disconnected, and what it signed counts no longer.

        Raises:
            NotFound: If there is no such device.
            LinkError: If the broker still lets it in; it is shut out here, and the broker asked again.
        """
        try:
            await self._registry.revoke_device(device)
        finally:
            entry = self._registry.directory.get(device)
            if entry is not None:
                self._ingest.shut_out(entry)

    async def remove_client(self, name: str) -> None:
        """Let a client in no longer, disconnect it, and empty what it left on its chat topics.

        Raises:
            NotFound: If there is none.
            LinkError: If the broker still lets it in; the broker is asked again.
        """
        await self._registry.clients.remove(name)
        await self._clear_up(name)

    async def check_retained(self) -> None:
        """Look through what the broker retains for what is left of skills and devices, and for too much."""
        await self._sweeper.check()

    async def purge(self) -> Purged:
        """Empty every retained topic of ours, on every broker; see `hub_registry.bus.purging`.

        Raises:
            Disconnected: If there is no broker, or the connection to it is lost.
        """
        there = [entry.id for entry in self._registry.directory.entries() if entry.presence.connected]
        return await purge_bus(
            self._link, self._presence, self._retained, connected=there, further=self._purgers
        )

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for device in await self._registry.devices.retired():
                self._sweeper.note_retired(device)
            if self._keeper is not None:
                stack.callback(self._registry.authority.use_door(self._keeper))
            stack.callback(self._link.on_connected(self._connected))
            stack.push_async_callback(self._say_goodbye)
            for filter_, handler, qos in (
                (topics.STATUS.filter(), self._ingest.status, 1),
                (topics.HEARTBEAT.filter(), self._ingest.heartbeat, 0),
                (topics.ALL_SKILLS, self._ingest.registration, 1),
                (topics.HUB_STATUS.filter(), self._own_status, 1),
            ):
                stack.push_async_callback(await self._link.subscribe(filter_, self._waking(handler), qos=qos))
            if self._link.connected:
                with suppress(Disconnected):  # the next connect does it
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
        if self._keeper is not None:
            try:
                await self._keeper.settle()
            except StrawberryError as error:
                # It is tried again; who is let in already need not wait for it.
                _log.error("the broker does not agree on who may log in: %s", error)
        silent = self._presence.silent
        await self._publish(self._presence.nothing() if silent else self._presence.online())
        self._is_new.set()

    async def _say_goodbye(self) -> None:
        leave = self._presence.nothing if self._presence.silent else self._presence.offline

        async def publish() -> None:
            async with asyncio.timeout(_GOODBYE_S):
                await self._publish(leave(), confirmed=True)

        try:
            await asyncio.shield(publish())
        except (TimeoutError, Disconnected):
            _log.info("the broker is gone; the hub's last will says that it went")

    def _own_status(self, message: Message) -> None:
        """Hear what stands on the hub's own status: it is retained, so nothing false may stay there."""
        if message.topic != self._presence.topic or message.retain or self._presence.silent:
            return
        if not self._presence.said(message.payload):
            # Who empties what is retained has seldom emptied this alone; in a new session all say it again.
            self._must_begin_anew = self._must_begin_anew or not message.payload
            self._said_falsely.set()

    async def _reclaim(self) -> None:
        while True:
            await self._said_falsely.wait()
            self._said_falsely.clear()
            anew, self._must_begin_anew = self._must_begin_anew, False
            if not self._presence.silent and self._link.connected:
                _log.warning("what the bus retained of the hub was not so; it is said again")
                if anew:
                    self._link.reconnect()
                else:
                    await self._say_online()
            await asyncio.sleep(_RECLAIM_S)

    async def _say_online(self) -> None:
        try:
            await self._publish(self._presence.online())
        except Disconnected:
            _log.debug("the next connect says it")

    async def _check_retained(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._registry.settings.retained_check_s):
                    await self._is_new.wait()
            except TimeoutError:
                pass
            else:
                self._is_new.clear()
                # By then every device has said what it has.
                await asyncio.sleep(CONFIRM_ONLINE_S)
            if self._link.connected:
                await self.check_retained()

    def _out(self, principal: Principal) -> None:
        entry = self._registry.directory.get(principal.id) if principal.kind == "device" else None
        if entry is not None:
            self._ingest.cut(entry)
            self._sweeper.cut(entry.id)

    async def _clear_up(self, principal: str) -> None:
        self._sweeper.retire(principal)
        try:
            await self._sweeper.sweep(principal)
        except Disconnected:
            _log.warning("the broker is away: what it retains of %s is emptied when it is back", principal)

    async def _publish(self, message: Message, *, confirmed: bool = False) -> None:
        await self._link.publish(
            message.topic, message.payload, qos=message.qos, retain=message.retain, confirmed=confirmed
        )

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
