"""Names of people and devices by id, as far as a person may know them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from contracts.answers.people import UserAnswer
from hub_registry.http.devices import list_devices
from hub_registry.http.users import list_users
from hub_web.view import view


@dataclass(frozen=True)
class Names:
    """Names by id; where one is missing, the id is shown."""

    people: Mapping[str, str]
    devices: Mapping[str, str]


async def load_names() -> Names:
    """Return the names of all devices that a person sees, and for admins of all people."""

    async def people() -> list[UserAnswer]:
        return await view.api(list_users) if view.is_admin else []

    users, devices = await asyncio.gather(people(), view.api(list_devices))
    return Names(
        {view.user.id: view.user.display_name, **{each.id: each.name for each in users}},
        {each.id: each.name for each in devices},
    )
