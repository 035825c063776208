"""Logins on the bus for people and their programs: ``/api/clients``, ``strawberry broker logins``."""

from typing import Annotated

from pydantic import Field

from chat.operations import ADMIN, Command, Resource
from contracts.answers.devices import BusClient, LoginAnswer
from contracts.errors import Conflict
from hub_registry import limits
from hub_registry.access.bearer import Bearer
from hub_registry.http.parts import LongLifetime
from hub_registry.registry import Registry

clients: Resource[Registry, Bearer] = Resource(
    "broker",
    "/api/clients",
    columns=("name", "chat", "home_assistant", "created=created_at", "expires=expires_at"),
)


@clients.get(
    ADMIN,
    command=Command("logins", empty="There is no login yet. 'strawberry broker login NAME' makes one."),
)
async def list_clients(registry: Registry, asking: Bearer) -> list[BusClient]:
    """List the logins of MQTT programs."""
    return list(await registry.clients.list())


@clients.post(ADMIN)
async def add_client(
    registry: Registry,
    asking: Bearer,
    name: Annotated[str, Field(max_length=64)],
    chat: bool = False,
    home_assistant: bool = False,
    lifetime_s: LongLifetime | None = None,
) -> LoginAnswer:
    """Make a login, of which the password is shown only now; it may read.

    Args:
        chat: It also chats.
        home_assistant: It has the rights [of Home Assistant](home-assistant.md#setting-up) instead.
        lifetime_s: A year by default, with `home_assistant` a century.
    """
    bus = registry.settings.bus
    if bus.login is not None:
        raise Conflict(
            "the hub makes no logins on a shared broker", hint="Make the login on the broker itself."
        )
    client, password = await registry.clients.add(
        name,
        owner=asking.user.id,
        chat=chat,
        home_assistant=home_assistant,
        lifetime_s=lifetime_s or (limits.HOME_ASSISTANT_TOKEN_S if home_assistant else limits.USER_TOKEN_S),
    )
    return LoginAnswer(
        **client.model_dump(),
        password=password.get_secret_value(),
        brokers=bus.brokers,
        prefix=bus.prefix,
        ca=bus.ca,
    )


@clients.delete(ADMIN, "/{name}", command=Command("logout NAME", says="The login {name} is deleted."))
async def remove_client(registry: Registry, asking: Bearer, name: str) -> None:
    """Delete a login and disconnect it."""
    await registry.clients.remove(name)
