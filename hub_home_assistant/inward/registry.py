"""Home Assistant's registries and states as entities."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from hub_agent.settings import HomeAssistantAccess
from hub_home_assistant import limits
from hub_home_assistant.inward.connection import HomeAssistantConnection, Refused
from hub_home_assistant.inward.entities import Entity, EntityIndex, Place, State, clean, clean_all

_ENTITY_ID: Final = re.compile(r"[a-z0-9_]{1,64}\.[a-z0-9_]{1,128}\Z")
_OURS: Final = ("strawberry_", "strawberry-")
"""What the unique ids begin with that Strawberry gives what it announces to Home Assistant."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Registries:
    """What Home Assistant knows of its entities beside their states; each by id.

    Attributes:
        exposed: Ids of the entities that are exposed to Assist; None where there is no Assist.
    """

    areas: Mapping[str, Place] = field(default_factory=dict)
    devices: Mapping[str, Row] = field(default_factory=dict)
    entries: Mapping[str, Row] = field(default_factory=dict)
    exposed: frozenset[str] | None = None

    def index(self, states: Mapping[str, State], access: HomeAssistantAccess) -> EntityIndex:
        """Make the entities that have a state, without those that are hidden, withheld or our own."""
        exposed = states if self.exposed is None or access.expose == "all" else self.exposed
        made = (
            self._entity(id_, state)
            for id_, state in states.items()
            if id_ in exposed and not any(fnmatchcase(id_, each) for each in access.hide)
        )
        return EntityIndex((entity for entity in made if entity is not None), self.areas.values())

    def withheld(self, states: Iterable[str], access: HomeAssistantAccess) -> frozenset[str]:
        """Return those of the entities that are left out since Assist does not have them."""
        if self.exposed is None or access.expose == "all":
            return frozenset()
        return frozenset(states) - self.exposed

    def _entity(self, id_: str, state: State) -> Entity | None:
        entry = self.entries.get(id_, {})
        is_ours = entry.get("platform") == "mqtt" and str(entry.get("unique_id")).startswith(_OURS)
        if entry.get("hidden_by") or is_ours:
            return None
        device = self.devices.get(entry.get("device_id") or "", {})
        attributes = state.attributes
        return Entity(
            id=id_,
            name=clean(attributes.get("friendly_name")) or clean(entry.get("name")) or id_,
            aliases=clean_all(entry.get("aliases")),
            place=self.areas.get(entry.get("area_id") or device.get("area_id") or ""),
            device=clean(device.get("name_by_user")) or clean(device.get("name")) or None,
            device_class=clean(attributes.get("device_class")) or None,
            unit=clean(attributes.get("unit_of_measurement")) or None,
            is_main=entry.get("entity_category") is None,
        )


def is_entity_id(text: object) -> bool:
    return isinstance(text, str) and _ENTITY_ID.match(text) is not None


async def read_registries(connection: HomeAssistantConnection) -> Registries:
    """Read areas, floors, devices and entities.

    Raises:
        Refused: While it starts, and does not have them yet.
        Disconnected: If there is no answer.
    """
    try:
        floors = {
            each["floor_id"]: _place(each) for each in await connection.ask("config/floor_registry/list")
        }
    except Refused:
        floors = {}  # Before 2024.4 there are none.
    areas = {
        each["area_id"]: _place(each, floors.get(each.get("floor_id") or ""))
        for each in await connection.ask("config/area_registry/list")
    }
    devices = {each["id"]: each for each in await connection.ask("config/device_registry/list")}
    listed = await connection.ask("config/entity_registry/list")
    ids = [each["entity_id"] for each in listed if is_entity_id(each["entity_id"])][: limits.MOST_ENTITIES]
    # Only these have the aliases.
    full = await connection.ask("config/entity_registry/get_entries", entity_ids=ids) if ids else {}
    entries = {id_: entry for id_, entry in full.items() if entry is not None}
    return Registries(areas, devices, entries, await read_exposed(connection, entries))


async def read_exposed(
    connection: HomeAssistantConnection, entries: Mapping[str, Row]
) -> frozenset[str] | None:
    """Read which entities are exposed to Assist; None where there is no Assist.

    Args:
        entries: Of the registry. A user without admin rights learns it from them alone: what is not in the
            registry counts as withheld then.

    Raises:
        Disconnected: If there is no answer.
    """
    try:
        answer = await connection.ask("homeassistant/expose_entity/list")
        options: dict[str, Row] = answer.get("exposed_entities", {})
        told = {id_: each["conversation"] for id_, each in options.items() if "conversation" in each}
    except Refused:
        options = {id_: entry.get("options", {}).get("conversation", {}) for id_, entry in entries.items()}
        told = {id_: each["should_expose"] for id_, each in options.items() if "should_expose" in each}
    return frozenset(id_ for id_, is_exposed in told.items() if is_exposed) if told else None


def _place(row: Row, floor: Place | None = None) -> Place:
    return Place(clean(row.get("name")), clean_all(row.get("aliases")), floor)


def changed_states(states: dict[str, State], event: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Apply an event of ``subscribe_entities``.

    Args:
        states: By id of the entity; changed in place.

    Returns:
        The ids of those that are new, changed or gone, and whether entities came, went or got another name.
    """
    before = len(states)
    changed: list[str] = []
    is_other = False
    for id_, made in (event.get("a") or {}).items():
        if is_entity_id(id_) and (id_ in states or len(states) < limits.MOST_ENTITIES):
            states[id_] = State(made.get("s"), made.get("a") or {}, _seconds(made.get("lc")))
            changed.append(id_)
            is_other = True
    for id_, change in (event.get("c") or {}).items():
        if (old := states.get(id_)) is None:
            continue
        plus, minus = change.get("+") or {}, (change.get("-") or {}).get("a") or ()
        attributes = {**old.attributes, **(plus.get("a") or {})}
        for name in minus:
            attributes.pop(name, None)
        states[id_] = State(plus.get("s", old.value), attributes, _seconds(plus.get("lc", old.changed)))
        changed.append(id_)
        is_other |= any(old.attributes.get(each) != attributes.get(each) for each in _DESCRIBING)
    changed += [id_ for id_ in event.get("r") or () if states.pop(id_, None) is not None]
    return changed, is_other or len(states) != before


def _seconds(moment: object) -> float | None:
    return float(moment) if isinstance(moment, int | float) else None


_DESCRIBING: Final = ("friendly_name", "device_class", "unit_of_measurement")
