"""Entities of a home: what can be named, read and switched, found by name, area, floor and domain.

All names come from other programs. They are values of sentences' slots and never part of a template, so that
nothing in them has a meaning there.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

from agent_core.schemas.nearest import suggestion
from agent_core.search.words import naming_words, singular_words
from agent_core.sentences.matching import spoken
from contracts.errors import InvalidMessage, NotFound
from contracts.wire import Json
from hub_home_assistant import limits

_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+"
)
"""Control characters, and those that turn or hide what stands beside them."""


def clean(name: object) -> str:
    """Return a foreign name on one line, without invisible characters; empty if there is none."""
    return " ".join(_UNSEEN.sub(" ", name).split())[: limits.MAX_ENTITY_NAME] if isinstance(name, str) else ""


def clean_all(names: object) -> tuple[str, ...]:
    """Return those of foreign names that are names."""
    given = names if isinstance(names, list) else ()
    return tuple(filter(None, map(clean, given[: limits.MAX_ALIASES])))


@dataclass(frozen=True)
class State:
    """How an entity is.

    Attributes:
        value: None where it is not known.
        changed: Since when, Unix seconds; None where that is not known.
    """

    value: Json = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    changed: float | None = None


@dataclass(frozen=True)
class Place:
    """An area or a floor."""

    name: str
    aliases: tuple[str, ...] = ()
    floor: "Place | None" = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @cached_property
    def said(self) -> frozenset[str]:
        return frozenset(map(spoken, self.names)) | (self.floor.said if self.floor else frozenset())


@dataclass(frozen=True)
class Entity:
    """Something that has a state, in the words of Home Assistant.

    Attributes:
        id: As ``light.kitchen``.
        device: Name of the device.
        is_main: Whether it is what the device is for, and no setting or diagnosis of it.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    place: Place | None = None
    device: str | None = None
    device_class: str | None = None
    unit: str | None = None
    is_main: bool = True

    @property
    def domain(self) -> str:
        return self.id.partition(".")[0]

    @property
    def area(self) -> str | None:
        return self.place.name if self.place else None

    @property
    def names(self) -> Iterator[str]:
        """All that it is called; with its area, also where its own name is that of others."""
        for name in (self.name, *self.aliases):
            yield name
            for area in self.place.names if self.place else ():
                if spoken(area) not in spoken(name):
                    yield f"{area} {name}"

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that a search finds it by."""
        texts = (*self.names, self.id, self.device or "", self.device_class or "")
        return frozenset().union(*map(naming_words, texts))


UNKNOWN: Final = "?"
"""A service whose name only a template tells."""


class House(Protocol):
    """Who keeps the entities: Home Assistant, or Zigbee2MQTT."""

    @property
    def entities(self) -> "EntityIndex":
        """Those that there are."""

    @property
    def temperature_unit(self) -> str:
        """Return the unit of thermostats, which do not say it themselves."""

    def state(self, entity: Entity) -> State:
        """Return how an entity is; an empty one where that is not known."""

    async def call(
        self, domain: str, service: str, entities: Sequence[Entity], data: Mapping[str, Json]
    ) -> None:
        """Call a service of Home Assistant on entities.

        Raises:
            StrawberryError: If it is not there, or refuses.
        """

    async def services_of(self, script: str) -> frozenset[str]:
        """Return the services that a script or automation may call, by its id or that of its service.

        `UNKNOWN` is among them where only a template tells; so are scripts and automations that it names.

        Raises:
            StrawberryError: If it is not there.
        """

    async def history(self, entity: Entity, since: float) -> list[State]:
        """Return the states since then, oldest first.

        Raises:
            StrawberryError: If they are not kept.
        """


class EntityIndex:
    """Entities, found by what they are called. Unknown names are errors with the nearest ones."""

    def __init__(self, entities: Iterable[Entity] = (), places: Iterable[Place] = ()) -> None:
        self.by_id = {entity.id: entity for entity in entities}
        self._by_name: defaultdict[str, list[Entity]] = defaultdict(list)
        for entity in self.by_id.values():
            _ = entity.words  # now, so that the first question does not wait for those of thousands
            for name in {spoken(each) for each in entity.names} - {""}:
                self._by_name[name].append(entity)
        used = {entity.place: None for entity in self.by_id.values() if entity.place is not None}
        self.places = list(dict.fromkeys((*places, *used)))

    def __len__(self) -> int:
        return len(self.by_id)

    def called(self, domains: frozenset[str] | None = None) -> dict[str, str]:
        """Return what can be said of the main entities of some domains, with the name that it means."""
        return {
            name: found[0].id if len(found) == 1 else name
            for name, all_ in self._by_name.items()
            if (found := [each for each in all_ if each.is_main and _is_of(each, domains)])
        }

    def place_names(self) -> dict[str, str]:
        """Return what can be said of areas and floors, with the name of each."""
        floors = [place.floor for place in self.places if place.floor is not None]
        return {
            said: place.name
            for place in (*floors, *self.places)
            for name in place.names
            if (said := spoken(name))
        }

    def named(
        self,
        name: str,
        *,
        domains: frozenset[str] | None = None,
        area: str | None = None,
        near: str | None = None,
    ) -> Entity:
        """Find the one entity of a name or an id.

        Args:
            domains: Those that it may be of; None for any.
            area: Area or floor in which it is.
            near: Area of who asks, which wins where several have the name.

        Raises:
            NotFound: If nothing is called so, or nothing of these domains or in this area.
            InvalidMessage: If several are.
        """
        known = self.by_id.get(name) or self.by_id.get(name.strip().casefold())
        found = [known] if known is not None else self._by_name.get(spoken(clean(name)), [])
        able = [each for each in found if _is_of(each, domains)]
        if not able:
            others = {each.name for each in self.by_id.values() if _is_of(each, domains)}
            if found:
                what = f"{found[0].name} is a {found[0].domain}, which this is not for"
                raise NotFound(what, hint=suggestion(name, others))
            raise NotFound("there is nothing named {name!r}", name=name[:100], hint=suggestion(name, others))
        if area is not None:
            inside = self._inside(area)
            able = [each for each in able if inside(each)]
            if not able:
                raise NotFound("there is no {name!r} in {area!r}", name=name[:100], area=area[:100])
        for narrower in (_in_place(near), lambda each: each.is_main):
            if len(able) > 1:
                able = [each for each in able if narrower(each)] or able
        if len(able) > 1:
            shown = ", ".join(f"{each.id} ({each.area or 'no area'})" for each in able[:6])
            raise InvalidMessage(
                "{number} entities are named {name!r}: {text}",
                number=len(able),
                name=name[:100],
                text=shown,
                hint="Give the id.",
            )
        return able[0]

    def within(self, area: str, domains: frozenset[str]) -> list[Entity]:
        """List the main entities of some domains in an area or on a floor; at least one.

        Raises:
            NotFound: If there is no such area, or none in it.
        """
        inside = self._inside(area)
        found = [
            each for each in self.by_id.values() if each.is_main and _is_of(each, domains) and inside(each)
        ]
        if not found:
            raise NotFound(
                "there is no {kinds} in {area!r}", kinds=" or ".join(sorted(domains)), area=area[:100]
            )
        return found

    def find(
        self,
        *,
        name: str | None = None,
        area: str | None = None,
        floor: str | None = None,
        domain: str | None = None,
    ) -> list[Entity]:
        """List what fits all that is given.

        Args:
            name: A name or an id; where none has it, words of which each must be in its names.

        Raises:
            NotFound: If there is no such area, floor, domain or name, with the nearest.
        """
        found = list(self.by_id.values())
        if domain is not None:
            domains = {each.domain for each in found}
            if domain.strip().casefold() not in domains:
                raise NotFound(
                    "there is no domain {domain!r}", domain=domain[:100], hint=suggestion(domain, domains)
                )
            found = [each for each in found if each.domain == domain.strip().casefold()]
        for place in filter(None, (area, floor)):
            inside = self._inside(place)
            found = [each for each in found if inside(each)]
        if name is not None:
            words = singular_words(name)
            named = {each.id for each in self._by_name.get(spoken(clean(name)), ())} | {
                name.strip().casefold()
            }
            among = found
            found = [each for each in among if each.id in named] or [
                each for each in among if words and words <= each.words
            ]
            if not found:
                names = {each.name for each in among or self.by_id.values()}
                raise NotFound(
                    "there is nothing named {name!r}", name=name[:100], hint=suggestion(name, names)
                )
        return sorted(found, key=lambda each: (not each.is_main, each.area or "\uffff", each.name))

    def _inside(self, area: str) -> Callable[[Entity], bool]:
        wanted = spoken(clean(area))
        if wanted not in self.place_names():
            names = {
                name
                for place in self.places
                for name in (place.name, place.floor and place.floor.name)
                if name
            }
            raise NotFound("there is no area {area!r}", area=area[:100], hint=suggestion(area, names))
        return _in_place(area)


def _in_place(area: str | None) -> Callable[[Entity], bool]:
    wanted = spoken(clean(area))
    return lambda entity: entity.place is not None and wanted in entity.place.said


def _is_of(entity: Entity, domains: frozenset[str] | None) -> bool:
    return domains is None or entity.domain in domains
