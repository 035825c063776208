"""What may be called on entities, and what asks a person first."""

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from contracts.errors import Forbidden, InvalidMessage
from contracts.phrases import Phrase
from contracts.wire import Json
from hub_agent.calls.own_skills import Asking
from hub_home_assistant import limits
from hub_home_assistant.inward.entities import UNKNOWN, Entity, House, clean

_ALWAYS: Final = frozenset({"lock", "alarm_control_panel"})
_OPENERS: Final = frozenset({"button", "cover", "input_boolean", "input_button", "script", "switch"})
"""Domains of what opens a door in many homes."""
_DOORS: Final = frozenset({"garage", "gate", "door", "lock"})
_SAFE: Final = frozenset(
    {
        "lock.lock",
        "cover.close_cover",
        *(f"alarm_control_panel.alarm_arm_{mode}" for mode in ("away", "home", "night", "vacation")),
    }
)
"""What may be done to a lock, a door or an alarm without a question: it opens nothing. Once a model has read
text from outside it asks for this, too: the text may want to lock somebody out."""
_DOOR_WORDS: Final = re.compile(
    r"barrier|carport|(?<!in|ut)door(?!bell)|garage|gate(?!way)|einfahrt|pforte|schranke|t(ü|ue)r(?!lich|kis)"
    r"|\btor(?!ch)|(?:garagen|hof|garten|roll|schiebe|sektional|dreh|schwing|einfahrts)tor\b"
)
"""In the names of a switch, or of a cover that has no class, as those of templates and of Zigbee2MQTT.

German joins words: ``Garagentor``, ``Haustür``; a ``Rolloaktor``, ``Ventilator`` or ``Monitor`` is none."""
_PROGRAMS: Final = frozenset({"automation", "script"})
"""What they do is not known here."""
_CONVERSATIONS: Final = frozenset({"ai_task", "assist_pipeline", "assist_satellite", "conversation"})
"""Their services ask an assistant, which may be this one: it would go round for ever."""
_TRIGGER: Final = "automation.trigger"
_SCRIPT_SERVICES: Final = frozenset({"turn_on", "turn_off", "toggle", "reload"})
"""Those of the domain ``script`` that are no scripts themselves."""
_TARGETS: Final = frozenset({"entity_id", "device_id", "area_id", "floor_id", "label_id"})
_TURNS: Final = 256

ANY: Final = "homeassistant"
"""The domain whose services are for entities of any other."""


class Rules(NamedTuple):
    """What is changed only after a question.

    Attributes:
        confirm: Patterns of the ids of entities that ask always.
        unasked: Entities that one call, or one turn, may change without a question.
    """

    confirm: tuple[str, ...] = ()
    unasked: int = 5


class Control:
    """Checks calls before they are made; remembers what each turn has changed."""

    def __init__(self) -> None:
        self._touched: OrderedDict[str, set[str]] = OrderedDict()

    async def check(
        self,
        asking: Asking,
        house: House,
        entities: Sequence[Entity],
        *,
        service: str,
        data: Mapping[str, Json],
        rules: Rules,
    ) -> None:
        """Go on only with what may be called, and what was confirmed where that is needed.

        Args:
            service: With its domain, as ``light.turn_on``.

        Raises:
            Forbidden: If it asks an assistant.
            InvalidMessage: If the data name entities.
            CallError: ``needs_confirmation``.
        """
        members = _with_members(house, entities)
        scripts = [each.id for each in members if each.domain == "script" or service == _TRIGGER]
        if _is_script(service):
            scripts.append(service)
        await _check_conversation(house, {service}, scripts)
        if named := _TARGETS & data.keys():
            raise InvalidMessage(
                "data must not have {names}", names=", ".join(sorted(named)), hint="Give names instead."
            )
        reason = _reason(members, service, data, rules.confirm)
        if reason is None and (asking.has_read or service not in _SAFE):
            reason = next(filter(None, map(_guarded, members)), None)
        touched = self._of_turn(asking.actor.turn)
        everything = touched | {each.id for each in members}
        is_one_room = asking.by_sentence and _are_lights_of_one_area(members)
        if reason is None and len(everything) > rules.unasked and not is_one_room:
            reason = Phrase("{number} entities are changed", number=len(everything))
        program = next((each for each in members if each.domain in _PROGRAMS), None)
        if reason is None and asking.untrusted and program is not None:
            reason = Phrase(
                "{name} may do anything, and text from outside was read before", name=program.name
            )
        if reason is not None:
            shown: dict[str, Json] = {"entities": [f"{each.name} ({each.id})" for each in members]}
            hint = "Name all entities in one call: then one question is enough." if touched else ""
            asking.need_confirmation(f"{service}: {reason}", hint=hint, shown=shown)
        touched |= everything

    def _of_turn(self, turn: str | None) -> set[str]:
        if turn is None:
            return set()
        touched = self._touched.setdefault(turn, set())
        self._touched.move_to_end(turn)
        if len(self._touched) > _TURNS:
            self._touched.popitem(last=False)
        return touched


def _is_script(service: str) -> bool:
    domain, _, name = service.partition(".")
    return domain == "script" and name not in _SCRIPT_SERVICES


async def _check_conversation(house: House, services: Collection[str], scripts: Iterable[str]) -> None:
    """Check that neither services nor what scripts call, directly or through others, ask an assistant.

    Raises:
        Forbidden: If one does, or there are too many to know.
    """
    waiting, seen, script = list(scripts), set[str](), ""
    while True:
        if UNKNOWN in services:
            raise Forbidden(
                "{script} is never started from here: whether it asks an assistant is not known",
                script=script,
                hint="A template in it names a service, or what it starts.",
            )
        asked = next((each for each in services if each.partition(".")[0] in _CONVERSATIONS), None)
        if asked is not None:
            raise Forbidden(
                "{asked} is never called from here: it asks an assistant, which may be this one",
                asked=asked,
                hint="Answer the person yourself.",
            )
        automations = [each for each in services if each.startswith("automation.") and each != _TRIGGER]
        waiting += [each for each in services if _is_script(each)]
        waiting += automations if _TRIGGER in services else []
        waiting = [each for each in waiting if each not in seen]
        if not waiting:
            return
        if len(seen) >= limits.MOST_SCRIPTS:
            raise Forbidden(
                "it calls more than {most} scripts, so whether one asks an assistant is not known",
                most=limits.MOST_SCRIPTS,
            )
        seen.add(script := waiting.pop())
        services = await house.services_of(script)


def _with_members(house: House, entities: Sequence[Entity]) -> list[Entity]:
    """Return entities with those that they stand for: a group switches all of its members."""
    found = {each.id: each for each in entities}
    waiting = list(entities)
    while waiting:
        members = house.state(waiting.pop()).attributes.get("entity_id")
        for id_ in members if isinstance(members, list) else ():
            if isinstance(id_, str) and id_ not in found:
                found[id_] = house.entities.by_id.get(id_) or _hidden(house, id_)
                waiting.append(found[id_])
    return list(found.values())


def _hidden(house: House, id_: str) -> Entity:
    """Return a member that is hidden here, as those of a group are in Home Assistant unless one says no."""
    attributes = house.state(Entity(id_, id_)).attributes
    name, device_class = map(clean, map(attributes.get, ("friendly_name", "device_class")))
    return Entity(id_, name or id_, device_class=device_class or None)


def _reason(
    entities: Sequence[Entity], service: str, data: Mapping[str, Json], patterns: tuple[str, ...]
) -> str | None:
    """Return why a person must be asked; None where they need not be."""
    domain = service.partition(".")[0]
    if _is_script(service) or any(map(_is_nested, data.values())):
        return "what it changes is in its data"
    if not entities:
        return "no entity is named, so it is not known what it changes"
    for entity in entities:
        if any(fnmatchcase(entity.id, each) for each in patterns):
            return f"{entity.name} is in [home_assistant] confirm"
    if domain not in (ANY, "group") and all(each.domain != domain for each in entities):
        return f"it is no service of a {entities[0].domain}"
    return None


def _guarded(entity: Entity) -> str | None:
    if entity.domain in _ALWAYS or (entity.domain in _OPENERS and entity.device_class in _DOORS):
        return f"{entity.name} is a {entity.device_class or entity.domain}"
    if _sounds_like_door(entity):
        return f"{entity.name} may be a garage, a gate or a door"
    return None


def _are_lights_of_one_area(entities: Sequence[Entity]) -> bool:
    areas = {each.area for each in entities}
    return len(areas) == 1 and None not in areas and all(each.domain == "light" for each in entities)


def _sounds_like_door(entity: Entity) -> bool:
    is_cover = entity.domain == "cover"
    if entity.domain not in _OPENERS or (is_cover and entity.device_class is not None):
        return False
    # A garage has other switches than the one of its door.
    names = entity.names if is_cover else (entity.name, *entity.aliases)
    texts = (*names, entity.id, entity.device or "", (entity.area if is_cover else None) or "")
    return any(_DOOR_WORDS.search(each.casefold().replace("_", " ")) for each in texts)


def _is_nested(value: Json) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_is_nested, value)))
