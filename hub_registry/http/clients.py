"""Logins on the bus for people and their programs."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import Field

from contracts.errors import Conflict
from contracts.wire import Timestamp
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.access.clients import BusClient
from hub_registry.http.parts import Body, Lifetime, Remover
from hub_registry.registry import Registry


class ClientBody(Body):
    """A login to be made; ``chat`` grants it to chat with the hub."""

    name: Annotated[str, Field(max_length=64)]
    chat: bool = False
    lifetime_s: Lifetime | None = None


class ClientAnswer(Body):
    """A login as an admin sees it."""

    name: str
    username: str
    owner: str
    chat: bool
    created_at: Timestamp
    expires_at: Timestamp


class LoginAnswer(ClientAnswer):
    """A new login. The password is shown once and stored nowhere."""

    password: str = Field(repr=False)
    brokers: tuple[str, ...]
    prefix: str
    ca: str | None


def add(router: APIRouter, registry: Registry, gate: Gate, remover: Remover) -> None:
    """Add the routes."""
    admin = Depends(gate.require_admin)
    clients, settings = registry.clients, registry.settings

    @router.get("/api/clients", dependencies=[admin])
    async def list_clients() -> list[ClientAnswer]:
        return [ClientAnswer(**_shown(client)) for client in await clients.list()]

    @router.post("/api/clients")
    async def add_client(body: ClientBody, bearer: Annotated[Bearer, admin]) -> LoginAnswer:
        if settings.login is not None:
            raise Conflict(
                "this broker is shared with others, and the hub lets nobody in there",
                hint="Make the login on the broker itself.",
            )
        client, password = await clients.add(
            body.name,
            owner=bearer.user.id,
            chat=body.chat,
            lifetime_s=body.lifetime_s or settings.lifetimes.user_s,
        )
        return LoginAnswer(
            **_shown(client),
            password=password.get_secret_value(),
            brokers=settings.brokers,
            prefix=settings.topic_prefix,
            ca=settings.ca,
        )

    @router.delete("/api/clients/{name}", dependencies=[admin], status_code=204)
    async def remove_client(name: str) -> Response:
        await remover.remove_client(name)
        return Response(status_code=204)


def _shown(client: BusClient) -> dict[str, Any]:
    return {**vars(client), "username": client.name}
