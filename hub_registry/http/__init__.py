"""The registry over HTTP: people, joining, devices, logins on the bus, tokens and skills."""

from starlette.routing import BaseRoute

from hub_registry.access.bearer import Gate
from hub_registry.http import clients, devices, joining, methods, public, sessions, skills, tokens, users
from hub_registry.http.parts import Remover
from hub_registry.registry import Registry

__all__ = ["Remover", "make_routes"]


def make_routes(registry: Registry, *, gate: Gate, remover: Remover) -> list[BaseRoute]:
    """Make the routes of the registry.

    Args:
        gate: Authenticates requests; shared with the other routes.
        remover: The registry's service.
    """
    return [
        *public.routes(registry, gate),
        *sessions.routes(registry, gate),
        *users.routes(registry, gate, remover),
        # Before the devices, whose names stand where these paths have a word.
        *joining.routes(registry, gate),
        *devices.routes(registry, gate, remover),
        *clients.routes(registry, gate),
        *tokens.routes(registry, gate),
        *skills.routes(registry, gate),
        *methods.routes(registry, gate),
    ]
