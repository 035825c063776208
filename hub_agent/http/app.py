"""The hub's HTTP application: all routes, and the guard in front of them."""

from collections.abc import Callable, Container
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from chat.http.errors import HANDLERS
from chat.http.guard import Guard
from chat.http.requests import answer
from chat.http.routes import ChatRoutes
from chat.http.streams import Connections
from contracts.wire import Json
from hub_agent.agents.http import agent_routes
from hub_agent.chat.assistant import Assistant
from hub_agent.http.skills import DirectCalls
from hub_agent.http.turns import push_route
from hub_agent.live.live import Live
from hub_agent.live.topics.http import PublishBody
from hub_agent.prompt.http import prompt_route
from hub_agent.settings import HttpSettings
from hub_registry.access.bearer import Gate
from hub_registry.http import Remover
from hub_registry.http import make_routes as make_registry_routes


@dataclass(frozen=True)
class Services:
    """What the endpoints work with.

    Attributes:
        remover: The registry's service.
        health: Gives what ``/api/health`` shows to anybody.
        live: The live home.
        connections: The clients that wait.
    """

    assistant: Assistant
    gate: Gate
    remover: Remover
    health: Callable[[], dict[str, Json]]
    live: Live
    connections: Connections


def make_app(services: Services) -> Starlette:
    """Put the application together; `guarded`, it can be served."""
    assistant = services.assistant
    may_chat = services.gate.require("chat")

    async def health(_: Request) -> Response:
        return answer(services.health())

    async def models(request: Request) -> Response:
        await may_chat(request)
        gateway = assistant.gateway
        return answer({"models": gateway.states(), "problems": list(gateway.models.problems)})

    async def service() -> Assistant:
        return assistant

    direct = DirectCalls(assistant, gate=services.gate, connections=services.connections)
    registry = make_registry_routes(assistant.registry, gate=services.gate, remover=services.remover)
    chat = ChatRoutes(service, authenticate=may_chat, connections=services.connections)
    push = push_route(assistant.record, authenticate=may_chat)
    live = services.live.routes(
        services.gate, connections=services.connections, may_confirm=assistant.may_confirm
    )
    return Starlette(
        # The direct calls come first: they are the ones whose time counts.
        routes=[
            *direct.routes(),
            direct.route("/api/bus/publish", "BusSkill.publish", PublishBody),
            *chat.routes(),
            push,
            prompt_route(
                assistant.prompter, assistant.agents, services.gate, problems=services.live.problems
            ),
            *agent_routes(assistant.agents, services.gate, may_confirm=assistant.may_confirm),
            *registry,
            *live,
            Route("/api/models", models),
            Route("/api/health", health),
        ],
        exception_handlers=HANDLERS,
    )


def guarded(app: ASGIApp, settings: HttpSettings, *, names: Callable[[], Container[str]] = tuple) -> ASGIApp:
    """Put the guard of one listener in front of the application.

    Args:
        names: See `Guard`.
    """
    return Guard(app, max_body_bytes=settings.max_body_bytes, base_path=settings.base_path, names=names)
