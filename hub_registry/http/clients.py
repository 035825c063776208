"""Logins on the bus for people and their programs."""

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, NoBody, answer, read
from contracts.errors import Conflict
from contracts.wire import Strict, Timestamp
from hub_registry.access.bearer import Gate
from hub_registry.access.clients import BusClient
from hub_registry.http.parts import LongLifetime
from hub_registry.registry import Registry


class ClientBody(Strict):
    """A login to be made: a reader; with ``chat`` it chats, with ``home_assistant`` it is Home Assistant."""

    name: Annotated[str, Field(max_length=64)]
    chat: bool = False
    home_assistant: bool = False
    lifetime_s: LongLifetime | None = None


class ClientAnswer(Strict):
    """A login as an admin sees it."""

    name: str
    username: str
    owner: str
    chat: bool
    home_assistant: bool
    created_at: Timestamp
    expires_at: Timestamp


class LoginAnswer(ClientAnswer):
    """A new login. The password is shown once and stored nowhere."""

    password: str = Field(repr=False)
    brokers: tuple[str, ...]
    prefix: str
    ca: str | None


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    clients, settings = registry.clients, registry.settings

    async def list_clients(request: Request) -> Answer[list[ClientAnswer]]:
        await gate.require_admin(request)
        return answer([_shown(client) for client in await clients.list()])

    async def add_client(request: Request) -> Answer[LoginAnswer]:
        bearer = await gate.require_admin(request)
        body = await read(request, ClientBody)
        if settings.login is not None:
            raise Conflict(
                "the hub makes no logins on a shared broker",
                hint="Make the login on the broker itself.",
            )
        lifetimes = settings.lifetimes
        usual_s = lifetimes.home_assistant_s if body.home_assistant else lifetimes.user_s
        client, password = await clients.add(
            body.name,
            owner=bearer.user.id,
            chat=body.chat,
            home_assistant=body.home_assistant,
            lifetime_s=body.lifetime_s or usual_s,
        )
        return answer(
            LoginAnswer(
                **vars(_shown(client)),
                password=password.get_secret_value(),
                brokers=settings.brokers,
                prefix=settings.topic_prefix,
                ca=settings.ca,
            )
        )

    async def remove_client(request: Request) -> NoBody:
        await gate.require_admin(request)
        await clients.remove(request.path_params["name"])
        return NoBody()

    return [
        Route("/api/clients", list_clients),
        Route("/api/clients", add_client, methods=["POST"]),
        Route("/api/clients/{name}", remove_client, methods=["DELETE"]),
    ]


def _shown(client: BusClient) -> ClientAnswer:
    return ClientAnswer(
        name=client.name,
        username=client.name,
        owner=client.owner,
        chat=client.chat,
        home_assistant=client.home_assistant,
        created_at=client.created_at,
        expires_at=client.expires_at,
    )
