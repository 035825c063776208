"""Names of people, devices and skills, as far as a person may know them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from agent_core.skills.labels import Labels
from contracts.answers.live import ShownThing
from contracts.answers.people import UserAnswer
from hub_live.watchers.words.sentence import state_name
from hub_registry.http.devices import list_devices
from hub_registry.http.skills import list_labels
from hub_registry.http.users import list_users
from hub_web.texts import LANGUAGE
from hub_web.view import view


@dataclass(frozen=True)
class Names:
    """Names by id; where one is missing, the id is shown."""

    people: Mapping[str, str]
    devices: Mapping[str, str]
    declared: Mapping[tuple[str, str], Mapping[str, Mapping[str, str]]]
    """Labels by the id of a device and the name of a skill."""

    def person(self, user: str) -> str:
        return self.people.get(user, user)

    def device(self, device: str) -> str:
        return self.devices.get(device, device)

    def label(self, device: str, skill: str) -> Labels:
        return Labels(self.declared.get((device, skill), {}), LANGUAGE.get())

    def value(self, thing: ShownThing) -> str:
        """Return the name of something that has a value: ``Tank level (Garden Pi)``."""
        if thing.kind != "state":
            return thing.name
        _, device, skill, name = thing.id.split(".", 3)
        called = state_name(self.declared.get((device, skill), {}), LANGUAGE.get(), skill, name)
        return f"{called} ({self.device(device)})"


async def load_names() -> Names:
    """Return the names of all devices and skills that a person sees, and for admins of all people."""

    async def people() -> list[UserAnswer]:
        return await view.api(list_users) if view.is_admin else []

    users, devices, labels = await asyncio.gather(people(), view.api(list_devices), view.api(list_labels))
    return Names(
        {view.user.id: view.user.display_name, **{each.id: each.name for each in users}},
        {each.id: each.name for each in devices},
        {(each.device, each.skill): each.labels for each in labels},
    )


def now_words(thing: ShownThing) -> str:
    """Return the present value of something, to follow its name; empty where it is not known."""
    state = thing.state
    if state is None:
        return ""
    short = f"{state:.6g}" if isinstance(state, float) else str(state)[:24]
    return f" · {short} {thing.unit or ''}".rstrip()
