"""The registry over HTTP: people, joining, devices, logins on the bus, tokens and skills."""

from starlette.routing import BaseRoute

from chat.operations import Operations
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.http import clients, devices, public, sessions, skills, tokens, users
from hub_registry.http.parts import RegistryAdmin, Remover
from hub_registry.registry import Registry

__all__ = ["Remover", "make_routes"]


def make_routes(
    registry: Registry, *, gate: Gate, operations: Operations[Bearer], remover: Remover
) -> list[BaseRoute]:
    """Make the routes of the registry.

    Args:
        gate: Authenticates requests; shared with the other routes.
        operations: Of the hub; those of the registry become part of them.
        remover: The registry's service.
    """
    admin = RegistryAdmin(registry, remover)
    return [
        *public.routes(registry, gate),
        *sessions.routes(registry, gate),
        *operations.mount(sessions.sessions, registry),
        *operations.mount(users.users, admin),
        *operations.mount(sessions.home, registry),
        # Before the devices, whose names stand where these paths have a word.
        *operations.mount(devices.joining, registry.joining),
        *operations.mount(devices.devices, admin),
        *operations.mount(devices.purging, remover),
        *operations.mount(clients.clients, registry),
        *operations.mount(tokens.tokens, tokens.Tokens(registry.authority)),
        *operations.mount(skills.skills, registry),
    ]
