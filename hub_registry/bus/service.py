"""The registry on the bus: takes in what devices publish, publishes the hub's status, empties old topics."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from broker.logins import BrokerLogins
from bus.link import Link, Message
from chat.tasks import happens, open_tasks, supervise
from contracts import topics
from contracts.access import Principal
from contracts.answers.devices import Purged
from contracts.errors import Disconnected, NotFound, StorageError, StrawberryError
from hub_registry import limits
from hub_registry.access.login_sync import LoginSync
from hub_registry.bus.hub_presence import HubPresence
from hub_registry.bus.published import PublishedTopics
from hub_registry.bus.purging import Purger, purge_bus
from hub_registry.devices.ingest import Ingest, OnPresence
from hub_registry.devices.presence import PresenceChange
from hub_registry.registry import INDEX_SLICE_S, Registry
from hub_registry.storage.store import Store

_log = logging.getLogger(__name__)


class RegistryService:
    """Keeps the registry and the bus in step. `run` it for as long as the hub lives.

    Args:
        logins: Of a broker of our own; None on one that is shared, where the hub manages no logins.

    Attributes:
        purgers: Empty what the hub published on other brokers; see `purge`.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        link: Link,
        presence: HubPresence,
        logins: BrokerLogins | None = None,
        purgers: Sequence[Purger] = (),
    ) -> None:
        self._registry = registry
        self._link = link
        self._presence = presence
        self._logins = LoginSync(registry.authority, logins, on_out=self._out) if logins is not None else None
        self.purgers = purgers
        self._ingest = Ingest(
            registry.directory,
            registry.journal,
            hub_id=registry.hub_id,
            on_manifest=lambda device, skills: self._published.keep(device, skills),
            on_skill=lambda: self._heard.set(),
        )
        self._published = PublishedTopics(link, registry.directory, complain=self._ingest.complain)
        self._published.is_on = self._leads = not registry.settings.is_replica
        self._heard = asyncio.Event()
        self._indexing = asyncio.Event()
        # What the database knew is not indexed yet.
        self._indexing.set()
        self._has_changed = True
        self._indexed = asyncio.Event()

    def on_presence(self, listener: OnPresence) -> Callable[[], None]:
        return self._ingest.on_presence(listener)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with self._listening(), asyncio.TaskGroup() as tasks:
            supervise(tasks, self._ingest.run, name="registry: read registrations")
            supervise(tasks, self._write, name="registry: write")
            supervise(tasks, self._index, name="registry: index")
            supervise(tasks, self._tell_words, name="registry: tell what can be said")
            flush = self._registry.journal.flush_alive
            alive = partial(_every, limits.HEARTBEAT_FLUSH_S, flush)
            supervise(tasks, alive, name="registry: write signs of life")
            supervise(tasks, partial(_every, limits.EXPIRE_S, self._expire), name="registry: expire presence")
            supervise(tasks, partial(_every, limits.FORGET_S, self._forget), name="registry: expire skills")
            supervise(tasks, self._published.run, name="registry: empty topics")
            if self._logins is not None and self._leads:
                supervise(tasks, self._logins.run, name="registry: logins")

    @asynccontextmanager
    async def leading(self, store: Store) -> AsyncIterator[None]:
        """Write what devices register, and manage the logins of the broker, while the context is open.

        Args:
            store: Refuses writes when another replica leads.
        """
        async with open_tasks() as tasks, AsyncExitStack() as stack:
            self._registry.journal.store, self._leads, self._published.is_on = store, True, True
            stack.callback(self._follow)
            self._published.retire(await self._registry.devices.retired())
            if self._logins is not None:
                stack.callback(self._registry.authority.use_logins(self._logins))
                # The leader before may have left something undone.
                self._logins.resync()
                supervise(tasks, self._logins.run, name="registry: logins")
            self._heard.set()
            yield

    def _follow(self) -> None:
        self._registry.journal.store, self._leads, self._published.is_on = None, False, False
        # What was refused because another replica leads counts here, too, until then.
        self._registry.store.read_again()

    async def remove_device(self, device: str) -> None:
        """Remove a device: disconnect it, or wait until it leaves, forget it, empty its topics.

        What cannot be emptied while the broker is away is emptied when it is back.

        Raises:
            NotFound: If there is no such device.
            LinkError: If the broker still accepts its login; it is revoked here, and stays in the list.
        """
        entry = self._registry.directory.get(device)
        if entry is None:
            raise NotFound(
                "there is no device {name!r}", name=device, hint="'strawberry devices list' lists them."
            )
        gone = asyncio.Event()

        def note(change: PresenceChange) -> None:
            if change.device == device and not change.connected:
                gone.set()

        stop = self.on_presence(note)
        try:
            try:
                await self._registry.authority.revoke_subject("device", device)
                # On a shared broker the device leaves by itself when it learns that it was revoked.
                waits = self._logins is None and entry.presence.connected and self._link.connected
                if waits and not await happens(gone, within_s=limits.REMOVAL_WAIT_S):
                    _log.warning("no last will came; the broker may not have disconnected the device")
            finally:
                await self.revoke_device(device)
        finally:
            stop()
        await self._registry.devices.remove(device)
        self._published.retire([device])
        self._published.empty([row.build(device=device) for row in (topics.STATUS, topics.HEARTBEAT)])
        await self._published.flush()

    async def revoke_device(self, device: str) -> None:
        """Revoke a device: it is disconnected, and what it signed counts no longer.

        Raises:
            NotFound: If there is no such device.
            LinkError: If the broker still accepts its login; it is revoked here, and the broker asked again.
        """
        try:
            await self._registry.revoke_device(device)
        finally:
            entry = self._registry.directory.get(device)
            if entry is not None:
                self._ingest.revoke(entry)

    def tell_names(self, device: str) -> None:
        """Tell a device that is online to ask again what it is called; any other asks when it starts."""
        entry = self._registry.directory.get(device)
        if entry is not None and entry.presence.connected:
            with suppress(Disconnected):  # it asks by itself every few minutes
                self._link.publish_nowait(self._presence.renamed(device, epoch=entry.presence.high.epoch))

    async def purge(self) -> Purged:
        """Empty every retained topic of ours, on every broker; see `hub_registry.bus.purging`.

        Raises:
            Disconnected: If there is no broker, or the connection to it is lost.
        """
        there = [entry.id for entry in self._registry.directory.entries() if entry.presence.connected]
        return await purge_bus(self._link, self._presence, connected=there, further=self.purgers)

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self._published.retire(await self._registry.devices.retired())
            if self._logins is not None and self._leads:
                stack.callback(self._registry.authority.use_logins(self._logins))
            stack.callback(self._registry.directory.on_change(self._note_change))
            stack.callback(self._link.on_connected(self._connected))
            stack.push_async_callback(self._publish_offline)
            for filter_, handler, qos in (
                (topics.STATUS.filter(), self._ingest.status, 1),
                (topics.HEARTBEAT.filter(), self._ingest.heartbeat, 0),
                (topics.ALL_SKILLS, self._ingest.registration, 1),
                (topics.STATE.filter(), None, 0),
            ):
                stack.push_async_callback(
                    await self._link.subscribe(filter_, self._hearing(handler), qos=qos)
                )
            if self._link.connected:
                with suppress(Disconnected):  # the next connect does it
                    await self._connected()
            yield

    def _hearing(self, handler: Callable[[Message], None] | None) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            if not self._published.hear(message) and handler is not None:
                handler(message)
                self._heard.set()

        return handle

    async def _connected(self) -> None:
        """Begin a session: every device has to confirm that it is online and publish its skills again."""
        self._ingest.require_confirmation()
        if self._logins is not None and self._leads:
            try:
                await self._logins.sync()
            except StrawberryError as error:
                # It is tried again; devices that are connected need not wait for it.
                _log.error("the broker does not agree on who may log in: %s", error)
        silent = self._presence.silent
        await self._link.send(self._presence.cleared() if silent else self._presence.online())
        await self._published.flush()

    async def _publish_offline(self) -> None:
        leave = self._presence.cleared if self._presence.silent else self._presence.offline
        try:
            sent = self._link.send(leave(), confirmed=True)
            await asyncio.shield(asyncio.wait_for(sent, limits.BUS_STOP_S))
        except (TimeoutError, Disconnected):
            _log.info("the broker is gone; the hub's last will says that it went")

    def _out(self, principal: Principal) -> None:
        entry = self._registry.directory.get(principal.id) if principal.kind == "device" else None
        if entry is not None:
            self._ingest.cut(entry)
            # Mosquitto publishes no will of a client that it disconnects.
            self._published.empty([topics.STATUS.build(device=entry.id)])

    async def _write(self) -> None:
        while True:
            await self._heard.wait()
            await asyncio.sleep(limits.GATHER_S)
            self._heard.clear()
            try:
                if (store := self._registry.journal.store) is not None:
                    await self._registry.directory.approvals.flush(store)
            except StorageError as error:
                _log.error("approvals could not be written, it is tried again: %s", error)
            except Exception:  # noqa: BLE001
                # Something in the rows, which come from devices; the registry goes on, as the journal does.
                _log.exception("approvals could not be written")
            await self._registry.journal.flush()
            self._indexing.set()

    async def _index(self) -> None:
        while True:
            await self._indexing.wait()
            self._indexing.clear()
            while self._registry.search.sync() is not None:  # noqa: ASYNC110 - each call does a part
                # A single device with very many skills leaves as much time to everything else.
                await asyncio.sleep(0 if self._registry.search.waiting > 1 else INDEX_SLICE_S)
            if self._has_changed:
                self._has_changed = False
                self._indexed.set()

    def _note_change(self, device: str) -> None:
        self._has_changed = True
        self._indexing.set()

    async def _tell_words(self) -> None:
        """Publish the hub's status again when something else can be said: who listens to speech then asks."""
        while True:
            await self._indexed.wait()
            self._indexed.clear()
            words = await self._registry.search.words()
            if words != self._presence.words and not self._presence.silent:
                self._presence.words = words
                with suppress(Disconnected):  # the next connect does it
                    await self._link.send(self._presence.online())
            await asyncio.sleep(limits.WORDS_STATUS_S)

    async def _expire(self) -> None:
        self._ingest.expire()

    async def _forget(self) -> None:
        self._registry.search.expire()
        self._indexing.set()


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await work()
