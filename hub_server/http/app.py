"""The hub's HTTP application: all routes, the guard in front of them, and the listeners."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Container
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from chat.conversations import conversations
from chat.http.connections import ConnectionBounds
from chat.http.errors import HANDLERS
from chat.http.guard import Guard
from chat.http.requests import Answer, answer
from chat.http.routes import ChatRoutes
from chat.http.server import serve
from chat.service import ChatService
from contracts.answers.system import LinkHealth
from contracts.errors import Forbidden, NotFound, Unauthorized
from hub_agent.agents.operations import agents as agent_operations
from hub_agent.calls.audit_log import AuditLog
from hub_agent.parts import HubParts
from hub_agent.prompt.operations import Prompts, prompt
from hub_agent.settings import HttpSettings
from hub_home_assistant.inward.client import HomeAssistantHealth
from hub_registry.access.bearer import Bearer
from hub_registry.http import make_routes as make_registry_routes
from hub_server.http.audit import Audit, audit
from hub_server.http.chat_socket import ChatSockets
from hub_server.http.installation import installation
from hub_server.http.ollama import KeyInPath, OllamaRoutes
from hub_server.http.openapi import OpenApi, openapi_document
from hub_server.http.pages import Pages
from hub_server.http.sentences import Sentences, sentences
from hub_server.http.skills import calls
from hub_server.http.turns import Turns, turns
from hub_server.leading import Leader
from hub_server.mcp.http import Mcp
from hub_server.seeing.http import MetricsRoute
from hub_server.system.cluster import Cluster, cluster
from hub_server.system.first_steps import first_steps
from hub_server.system.host import Health, LinkUp, PublicHealth
from hub_server.system.models import ModelFiles, models
from hub_server.system.operations import System, system

if TYPE_CHECKING:
    from hub_server.http.lan import Lan


@dataclass(frozen=True, kw_only=True)
class Services(HubParts):
    """What the endpoints work with.

    Attributes:
        health: Gives what ``/api/health`` shows to all who have a token.
        pages: What answers where there is no route.
        system: The installation; None where the hub does not know its own.
        mcp: The endpoint of the Model Context Protocol.
        metrics: The numbers of this hub.
        authority: Makes the certificate that browsers are to trust; None without TLS of
            the hub's own.
    """

    leader: Leader
    health: Callable[[], Health]
    sockets: ChatSockets
    pages: Pages
    system: System | None
    mcp: Mcp
    metrics: MetricsRoute
    authority: Callable[[], bytes] | None


def make_app(services: Services) -> Starlette:
    """Put the application together; `guarded`, it can be served."""
    agent, registry, settings = services.agent, services.registry, services.settings
    operations, assistant = services.operations, agent.assistant
    prompts = Prompts(assistant.prompter, assistant.agents, services.leader.problems)
    may_chat, of_home = services.gate.require("chat"), services.gate.require()

    async def health(request: Request) -> Answer[Health | PublicHealth]:
        found = services.health()
        try:
            await of_home(request)
        except (Unauthorized, Forbidden):
            # Anybody may ask. What brokers and Home Assistant said, and what runs here, is for the home.
            return answer(_for_anybody(found))
        return answer(found)

    async def authority(_: Request) -> Annotated[Response, "application/x-x509-ca-cert"]:
        if services.authority is None:
            raise NotFound("this hub has no certificate of its own")
        made = await asyncio.to_thread(services.authority)
        return Response(made, media_type="application/x-x509-ca-cert", headers={"cache-control": "no-store"})

    async def openapi(request: Request) -> Answer[OpenApi]:
        await of_home(request)
        return answer(await asyncio.to_thread(document))

    @cache
    def document() -> OpenApi:
        return openapi_document(app.routes, version=services.health().version)

    async def service() -> ChatService[Bearer]:
        return assistant

    members = make_registry_routes(
        registry, gate=services.gate, operations=operations, remover=services.bus.service
    )
    chat = ChatRoutes(service, authenticate=may_chat, connections=services.connections)
    log = AuditLog(registry.store, services.trail)
    app = Starlette(
        # The direct calls come first: they are the ones whose time counts.
        routes=[
            *operations.mount(calls, agent.calls),
            *operations.mount(installation, agent.calls),
            *chat.routes(),
            *operations.mount(conversations, service),
            services.sockets.route(),
            *OllamaRoutes(services).routes(),
            *operations.mount(sentences, Sentences(registry, assistant.prompter.household)),
            *operations.mount(turns, Turns(assistant.record, agent.traces, log, registry.directory)),
            *operations.mount(prompt, prompts),
            *operations.mount(agent_operations, assistant.agents),
            *members,
            *services.leader.routes(),
            *operations.mount(models, ModelFiles(settings.home, services.gateway)),
            services.mcp.route(),
            *services.metrics.routes(),
            *operations.mount(cluster, Cluster(registry.store, settings.is_replica, services.bus.nodes)),
            *operations.mount(audit, Audit(log, registry, services.connections)),
            *(operations.mount(system, services.system) if services.system is not None else ()),
            *(operations.mount(first_steps, services.system) if services.system is not None else ()),
            Route("/ca.crt", authority),
            Route("/api/health", health),
            Route("/api/openapi.json", openapi),
        ],
        exception_handlers=HANDLERS,
    )
    services.pages.enter(app)
    return app


def _for_anybody(health: Health) -> PublicHealth:
    return PublicHealth(
        broker=LinkUp(connected=health.broker.connected),
        home_broker=_up(health.home_broker),
        home_assistant=_up(health.home_assistant),
        status=health.status,
    )


def _up(link: LinkHealth | HomeAssistantHealth | None) -> LinkUp | None:
    return None if link is None else LinkUp(connected=link.connected)


def guarded(app: ASGIApp, settings: HttpSettings, *, names: Callable[[], Container[str]] = tuple) -> ASGIApp:
    """Put the guard of one listener in front of the application.

    Args:
        names: See `Guard`.
    """
    guard = Guard(app, max_body_bytes=settings.max_body_bytes, base_path=settings.base_path, names=names)
    return KeyInPath(guard, base_path=settings.base_path)


@asynccontextmanager
async def open_http(
    app: ASGIApp,
    settings: HttpSettings,
    listener: socket.socket,
    lan: "Lan | None",
) -> AsyncIterator[None]:
    """Serve the API while the context is open."""
    bounds = ConnectionBounds(most=settings.connections)
    proxies = settings.trusted_proxies
    near = guarded(app, settings, names=lambda: settings.names)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serve(near, listener, bounds=bounds, sockets=True, proxies=proxies))
        if lan is not None:
            far = guarded(app, settings, names=lan.names)
            await stack.enter_async_context(
                serve(far, lan.listener, tls=lan.context, bounds=bounds, sockets=True, proxies=proxies)
            )
        yield
