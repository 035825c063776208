"""A replica: it is listed, and opens what only one hub of a home does whenever it leads."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from chat.tasks import open_tasks
from hub_agent.bus.connection import Bus
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.settings import MAIN, HubSettings
from hub_registry.registry import Registry
from hub_registry.storage.replicas import Replica, Term
from hub_registry.storage.tables import ReplicaRow, now

Opening = Callable[..., AbstractAsyncContextManager[None]]


@asynccontextmanager
async def open_replica(
    settings: HubSettings,
    registry: Registry,
    opening: Opening,
    *,
    url: str,
    bus: Bus,
    manager: DeviceManager,
    version: str,
) -> AsyncIterator[Replica]:
    """Be one of the replicas for as long as the context is open; the lead is given away first.

    Args:
        opening: See `hub_server.leading.open_leading`.
        url: Where the other replicas reach it.
    """
    row = ReplicaRow(
        instance=settings.instance,
        url=url,
        version=version,
        started_at=now(),
        seen_at=now(),
    )
    replica = Replica(registry.store, row)
    # What belongs to the home has the same name whichever replica leads.
    of_home = settings.model_copy(update={"instance": MAIN})

    @asynccontextmanager
    async def leading(term: Term) -> AsyncIterator[None]:
        fenced = replace(registry, store=term.store)
        async with (
            bus.service.leading(term.store),
            opening(of_home, fenced, manager=manager.fenced(term.confirm)),
        ):
            yield

    await replica.enter()
    async with open_tasks() as tasks:
        tasks.create_task(replica.stay(), name="replica: seen")
        tasks.create_task(replica.lead(leading), name="replica: lead")
        yield replica
