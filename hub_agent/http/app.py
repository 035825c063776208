"""The hub's HTTP application: every router, and the guard in front of it."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from chat.http.guard import Guard
from chat.http.streams import Connections
from contracts.wire import Json
from hub_agent.calls.confirmations import Slips
from hub_agent.chat.history import History
from hub_agent.chat.incoming import Chat
from hub_agent.http import chat, completions, conversations, errors, history, skills
from hub_agent.http.skills import Direct
from hub_agent.settings import HttpSettings
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.http import Remover
from hub_registry.http import make_router as make_registry_router


@dataclass(frozen=True)
class Services:
    """What the endpoints work with.

    Attributes:
        remover: The registry's service.
        health: Gives what ``/api/health`` shows to anybody.
        connections: The clients that wait.
    """

    chat: Chat
    history: History
    gate: Gate
    remover: Remover
    health: Callable[[], dict[str, Json]]
    connections: Connections


def make_app(services: Services) -> ASGIApp:
    """Put the application together; `guarded`, it can be served."""
    assistant = services.chat.assistant
    settings = assistant.settings
    # Pages that describe the API to anybody, and that load scripts from elsewhere, are left out.
    app = FastAPI(title="Strawberry", docs_url=None, redoc_url=None, openapi_url=None)
    errors.install(app)

    @app.get("/api/health")
    async def health() -> dict[str, Json]:
        return services.health()

    may_chat = Depends(services.gate.require("chat"))

    @app.get("/api/models", response_model=None)
    async def models(_: Annotated[Bearer, may_chat]) -> dict[str, Json]:
        gateway = assistant.gateway
        return {"models": gateway.states(), "problems": list(gateway.models.problems)}

    direct = Direct(
        assistant,
        gate=services.gate,
        slips=Slips(expires_s=settings.turns.confirm_s),
        connections=services.connections,
    )
    for routes in (completions, chat):
        app.include_router(
            routes.make_router(services.chat, gate=services.gate, connections=services.connections)
        )
    app.include_router(conversations.make_router(assistant.conversations, gate=services.gate))
    app.include_router(history.make_router(services.history, gate=services.gate))
    app.include_router(skills.make_router(direct))
    app.include_router(make_registry_router(assistant.registry, gate=services.gate, remover=services.remover))
    return app


def guarded(app: ASGIApp, settings: HttpSettings, *, names: Callable[[], Container[str]] = tuple) -> ASGIApp:
    """Put the guard of one listener in front of the application.

    Args:
        names: See `Guard`.
    """
    return Guard(app, max_body_bytes=settings.max_body_bytes, base_path=settings.base_path, names=names)
