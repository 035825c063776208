"""What is shown to Home Assistant, over HTTP: ``/api/home-assistant``."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from agent_core.schemas.nearest import suggestion
from chat.operations import ADMIN, Resource
from contracts.answers.system import (
    ExposedDevice,
    ExposedEntity,
    ExposedItem,
    ExposedSkill,
    HomeBroker,
    OutwardState,
    ShownDecision,
)
from contracts.errors import NotFound
from hub_agent.tables import ExposureRow
from hub_home_assistant.inward.client import HomeAssistant
from hub_home_assistant.outward import Outward
from hub_home_assistant.outward.hub import CHAT, NOTIFY, WATCHERS
from hub_home_assistant.outward.rules import Entity
from hub_registry.access.bearer import Bearer
from hub_registry.devices.directory import Directory, Entry

_HUB = "hub"


ExposablePath = Annotated[str, Field(min_length=1, max_length=250)]
"""What is shown or hidden: ``kitchen``, ``kitchen.LampSkill``, ``kitchen.LampSkill.turn_on``."""


@dataclass(frozen=True)
class Exposing:
    """What exposes this home to Home Assistant, and what uses the entities there."""

    outward: Outward
    directory: Directory
    house: HomeAssistant


# What is shown is the admin's to decide: all people of the home see it there.
home_assistant: Resource[Exposing, Bearer] = Resource("home-assistant", "/api/home-assistant")


@home_assistant.get(ADMIN)
async def look(exposing: Exposing, asking: Bearer) -> OutwardState:
    """Return what appears [in Home Assistant](home-assistant.md), and what could.

    `broker` is null without `[home_broker]`, `address` where no Home Assistant is used, `home_assistant` is
    what that last said of itself: `online`, `offline` or nothing.
    """
    return _shown(exposing, asking)


@home_assistant.post(ADMIN, "/expose")
async def expose(exposing: Exposing, asking: Bearer, path: ExposablePath) -> OutwardState:
    """Expose a device, a skill of it, a method or property of that, or a part of the hub.

    Parts of the hub are `hub.chat`, `hub.notify` and `hub.watchers`; a device has any of its names.
    """
    found = _find(exposing.outward, exposing.directory, asking, path)
    await exposing.outward.exposures.show(found, user=asking.user.id)
    asking.note("home-assistant expose")
    return _shown(exposing, asking)


@home_assistant.post(ADMIN, "/hide")
async def hide(exposing: Exposing, asking: Bearer, path: ExposablePath) -> OutwardState:
    """Expose something no longer."""
    known = {each.path for each in _decisions(exposing.outward, exposing.directory, asking)}
    # What is gone, or is another person's now, can still be hidden.
    found = path if path in known else _find(exposing.outward, exposing.directory, asking, path)
    await exposing.outward.exposures.hide(found, user=asking.user.id)
    asking.note("home-assistant hide")
    return _shown(exposing, asking)


def _find(outward: Outward, directory: Directory, bearer: Bearer, given: str) -> str:
    """Return the path by which something is kept, which has the id of a device in place of its name.

    Raises:
        NotFound: If there is no such thing.
        CallError: If there is no such device.
    """
    first, *rest = given.removeprefix("devices.").split(".", 2)
    if first == _HUB:
        known = [_HUB, CHAT, NOTIFY, WATCHERS, *(path for path, _ in _watchers(outward))]
        if given not in known:
            raise NotFound("there is no {given!r}", given=given[:100], hint=suggestion(given, known))
        return given
    entry = directory.seen_by(bearer.user.id).resolve(first)
    path = ".".join((entry.id, *rest))
    skills = [f"{entry.id}.{skill}" for skill in entry.skills]
    known = [entry.id, *skills, *(path for path, _ in _members(outward, entry))]
    if path not in known:
        raise NotFound(
            "{name} has no {path!r}",
            name=entry.display_name,
            path=".".join(rest)[:100],
            hint=suggestion(path, known),
        )
    return path


def _members(outward: Outward, entry: Entry) -> list[tuple[str, Entity]]:
    return list(outward.publishing.entities_of(entry)) if outward.publishing is not None else []


def _watchers(outward: Outward) -> list[tuple[str, str]]:
    return outward.parts.watchers() if outward.parts is not None else []


def _decisions(outward: Outward, directory: Directory, bearer: Bearer) -> list[ExposureRow]:
    """List the decisions that are this person's, or about what this person sees or what is gone."""
    seen = {entry.id for entry in directory.seen_by(bearer.user.id).entries()}
    private = {entry.id for entry in directory.entries()} - seen
    return [
        each
        for each in outward.exposures.all()
        if each.user == bearer.user.id or each.path.partition(".")[0] not in private
    ]


def _shown(exposing: Exposing, bearer: Bearer) -> OutwardState:
    outward, directory, access = exposing.outward, exposing.directory, exposing.house.settings
    publishing = outward.publishing
    home = publishing.home if publishing is not None else None

    def is_shown(path: str) -> bool:
        return outward.exposures.find(path) is not None

    devices: list[ExposedDevice] = []
    for entry in directory.seen_by(bearer.user.id).entries():
        skills: list[ExposedSkill] = []
        members = _members(outward, entry)
        for skill in entry.skills:
            entities = [
                ExposedEntity(
                    path=path,
                    name=entity.label,
                    kind=entity.component,
                    shown=publishing is not None and publishing.is_shown(entry, path, entity),
                    only_by_name=entity.only_by_name,
                )
                for path, entity in members
                if entity.skill == skill
            ]
            path = f"{entry.id}.{skill}"
            skills.append(
                ExposedSkill(path=path, name=skill, kind="skill", shown=is_shown(path), entities=entities)
            )
        devices.append(
            ExposedDevice(
                path=entry.id,
                name=entry.display_name,
                kind="device",
                shown=is_shown(entry.id),
                skills=skills,
            )
        )
    notifies = "notify" if outward.discovery == "device" else "text"
    own = [
        (CHAT, "Chat", "text"),
        (WATCHERS, "Watchers", "event"),
        (NOTIFY, "Notify", notifies),
        *((path, f"Watcher {name}", "event") for path, name in _watchers(outward)),
    ]
    return OutwardState(
        broker=HomeBroker(url=home.broker, username=home.username, **vars(home.health())) if home else None,
        address=access.url if access is not None else None,
        home_assistant=publishing.status if publishing is not None else "",
        discovery=outward.discovery,
        published=publishing.entities if publishing is not None else 0,
        decisions=[
            ShownDecision(path=each.path, shown=each.shown, user=each.user, at=each.at)
            for each in _decisions(outward, directory, bearer)
        ],
        devices=devices,
        hub=[ExposedItem(path=path, name=name, kind=kind, shown=is_shown(path)) for path, name, kind in own],
    )
