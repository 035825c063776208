"""A replica: it is listed, and opens what only one hub of a home does whenever it leads."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chat.tasks import open_tasks, supervise
from contracts import own_version
from hub_agent.parts import HubParts
from hub_agent.settings import MAIN
from hub_registry.storage.replicas import Replica, Term
from hub_registry.storage.tables import ReplicaRow, now
from hub_server import limits
from hub_server.http.app import Services
from hub_server.replicas.files import SharedFiles
from hub_server.replicas.live import RemoteLive
from hub_server.replicas.passing import Passing
from hub_server.replicas.routing import Routing
from hub_server.replicas.turns import RemoteTurns

_OPEN = (
    *("/api/devices/enrol", "/api/devices/join", "/api/devices/join/poll"),
    *("/api/session", "/api/setup"),
)
"""What is asked without a token: codes, logins of the broker and limits of guesses are the leader's."""


@asynccontextmanager
async def open_replica(
    services: Services,
    leading: Callable[[HubParts], AbstractAsyncContextManager[None]],
    app: Starlette,
    url: str,
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Be one of the replicas for as long as the context is open.

    It yields what gives the lead away and waits until the turns of this replica have ended.

    Args:
        leading: See `hub_server.leading.open_leading`.
        app: Gets the routes that replicas use.
        url: Where the other replicas reach it.
    """
    assert services.system is not None  # no replica runs without its installation
    settings, registry, bus, gate = services.settings, services.registry, services.bus, services.gate
    leader, sockets, operations = services.leader, services.sockets, services.operations
    assistant = services.agent.assistant
    row = ReplicaRow(
        instance=settings.instance, url=url, version=own_version(), started_at=now(), seen_at=now(), term=0
    )
    replica = Replica(registry.store, row, on_bus=lambda: bus.link.connected)
    passing = Passing(registry, gate, instance=settings.instance, runs=lambda who: routing.presence.runs(who))
    routing = Routing(
        replica, leader, registry.store, assistant.record, passing, services.manager.open_request
    )
    live = RemoteLive(registry, leader, services.own, routing, passing)
    # What belongs to the home has the same name whichever replica leads.
    of_home = settings.model_copy(update={"instance": MAIN})

    @asynccontextmanager
    async def lead(term: Term) -> AsyncIterator[None]:
        fenced = replace(
            services,
            settings=of_home,
            registry=replace(registry, store=term.store),
            manager=services.manager.fenced(term.confirm),
        )
        gate.begin_joins()
        async with bus.service.leading(term.store), leading(fenced):
            yield

    await replica.enter()
    gate.passed_on, operations.elsewhere, leader.remote_part = passing.bearer, routing, live.part
    remote = RemoteTurns(sockets, routing, passing)
    sockets.others = remote
    app.router.routes[:0] = [*live.routes(), remote.route(), routing.route(), *_open(app, routing, passing)]
    try:
        async with open_tasks() as tasks:
            tasks.create_task(replica.stay(also=routing.look), name="replica: seen")
            # Beside it: this asks the leader, who may be stopped.
            # What a leader of another version says may be unreadable, too.
            supervise(tasks, live.run, name="replica: skills of the leader")
            host, hub = services.system.host, settings.directory
            files = SharedFiles(registry.store, host, routing, home=settings.home, hub=hub)
            supervise(tasks, files.run, name="replica: files")
            leads = tasks.create_task(replica.lead(lead), name="replica: lead")

            async def leave() -> None:
                try:
                    await files.leave()
                finally:
                    leads.cancel()
                    await asyncio.wait([leads], timeout=limits.REPLICA_LEAVE_S)
                until = time.monotonic() + limits.REPLICA_LEAVE_S
                # Turns do not announce their end.
                while assistant.running.open_count and time.monotonic() < until:  # noqa: ASYNC110
                    await asyncio.sleep(limits.LEADER_LOOK_S)

            yield leave
    finally:
        gate.passed_on, operations.elsewhere, sockets.others = None, None, None
        await passing.close()


def _open(app: Starlette, routing: Routing, passing: Passing) -> list[Route]:
    """Return routes that pass on to the leader what devices and people ask without a token."""

    def passed(route: Route) -> Route:
        async def endpoint(request: Request) -> Response:
            asked = await passing.asked(request)
            if not routing.leads and (row := await routing.leader(asked)) is not None:
                return await passing.forward(row, request, None)
            with routing.writing():
                found: Response = await route.endpoint(asked)
                return found

        return Route(route.path, endpoint, methods=["POST"])

    found = (each for each in app.router.routes if isinstance(each, Route) and each.path in _OPEN)
    return [passed(each) for each in found if each.methods and "POST" in each.methods]
