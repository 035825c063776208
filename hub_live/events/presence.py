"""Devices that come and go, as events for their owners."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chat.tasks import supervise
from hub_live import limits
from hub_live.events.events import Events
from hub_live.events.kinds import PresenceData
from hub_registry.bus.service import RegistryService
from hub_registry.devices.directory import Directory, Entry
from hub_registry.devices.presence import PresenceChange


@asynccontextmanager
async def presence_events(
    events: Events, directory: Directory, service: RegistryService, *, tasks: asyncio.TaskGroup
) -> AsyncIterator[None]:
    """Publish an event whenever a device comes or goes, within the block.

    A device that is found as it was before the hub was restarted is no event.
    """
    told = {device: data.get("online") for device, data in (await events.latest("presence")).items()}
    changes: dict[str, tuple[Entry, bool]] = {}
    arrived = asyncio.Event()

    def note(change: PresenceChange) -> None:
        if (entry := directory.get(change.device)) is not None:
            changes[change.device] = entry, change.connected
            arrived.set()

    async def publish() -> None:
        while True:
            await arrived.wait()
            await asyncio.sleep(limits.PRESENCE_GATHER_S)
            arrived.clear()
            gathered = list(changes.values())
            changes.clear()
            news = [(entry, online) for entry, online in gathered if told.get(entry.id) is not online]
            told.update((entry.id, online) for entry, online in news)
            await events.publish_all([(entry.device.owner, _data(entry, online)) for entry, online in news])

    stop = service.on_presence(note)
    task = supervise(tasks, publish, name="presence events")
    try:
        yield
    finally:
        stop()
        task.cancel()


def _data(entry: Entry, online: bool) -> PresenceData:
    return PresenceData(subject=entry.display_name, device=entry.id, key=entry.key, online=online)
