"""The registry over HTTP: joining, devices, logins on the bus, tokens and skills."""

from fastapi import APIRouter

from hub_registry.access.bearer import Gate
from hub_registry.http import clients, devices, joining, public, purge, skills, tokens
from hub_registry.http.parts import Remover
from hub_registry.registry import Registry

__all__ = ["Remover", "make_router"]


def make_router(registry: Registry, *, gate: Gate, remover: Remover) -> APIRouter:
    """Make the routes of the registry.

    Args:
        gate: Who may come in; shared with the other routers.
        remover: The registry's service.
    """
    router = APIRouter()
    public.add(router, registry, gate)
    # Before the devices, whose names stand where these paths have a word.
    joining.add(router, registry, gate)
    devices.add(router, registry, gate, remover)
    clients.add(router, registry, gate, remover)
    tokens.add(router, registry, gate)
    skills.add(router, registry, gate)
    purge.add(router, gate, remover)
    return router
