"""Everyday sentences for what a home has: lights, blinds, players, timers, of any skill.

A skill is a thing of a kind (`kinds`), called by its name, its kind and its room. A `Home` names the entities
of Home Assistant. What matches becomes the same `SentenceCall` as of a declared sentence.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from agent_core import limits
from agent_core.search.catalogue import Target
from agent_core.search.directory import HUB_KEY
from agent_core.sentences.index import Hears, SentenceCall
from agent_core.sentences.kinds import LATER, NAMELESS, OPENING, call_for, kind_of, skill_words
from agent_core.sentences.matching import spoken
from agent_core.sentences.phrasebook import Phrasebook
from agent_core.sentences.templates import short_texts
from contracts.chat.vocabulary import SpokenSentence, SpokenSlot
from contracts.wire import Json

EVERYWHERE: Final = "*"
"""The area of a sentence that names none, said where there is none."""
HOME_KIND: Final = "home"
"""The kind of the skill that a `Home` speaks for."""

_ALL: Final = frozenset({"light_all", "fan_all"})
"""Responses to what is meant for all of a home: one call of several would be a part of it."""

_SLOT: Final = re.compile(r"\{(\w+)\}")

Slots = dict[str, Json]


class Home(Protocol):
    """What knows many things by name, and which method of its skill an intent means."""

    def names(self) -> Iterable[tuple[str, str, str]]:
        """Return what things are called, the value that stands for each, and its domain."""

    def areas(self) -> Mapping[str, str]:
        """Return what areas are called, with the name of each."""

    def floors(self) -> Mapping[str, str]:
        """Return what floors are called, with the name of each."""

    def call(self, intent: str, slots: Slots, domain: str) -> tuple[str, Slots] | None:
        """Return a method with its arguments; None where the intent means nothing that there is.

        The area `EVERYWHERE` is of a sentence that names no room, said where the room is not known.
        """


@dataclass(frozen=True)
class _Thing:
    """A skill of a device that sentences can mean."""

    key: str
    kind: str
    source: str
    names: tuple[str, ...]
    places: frozenset[str]
    targets: Mapping[str, Target]


@dataclass(frozen=True)
class Lists:
    """What may be said in a language, with the version that it is of.

    Attributes:
        values: The slot lists of hassil.
        names: What is said of things, areas and floors.
        groups: By the value of a name, the keys of the skills that are called so.
    """

    version: int
    values: Mapping[str, Any]
    names: frozenset[str]
    groups: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Named:
    """A copy of what there is, from which lists are made in a thread.

    Attributes:
        entities: Of Home Assistant: what each is called, its value and its domain.
    """

    version: int
    things: Sequence["_Thing"]
    entities: Sequence[tuple[str, str, str]]
    areas: Mapping[str, str]
    floors: Mapping[str, str]

    def digest(self) -> str:
        """Return a digest that changes where other things can be said."""
        things = sorted((each.kind, *each.names, *each.places) for each in self.things)
        said = json.dumps([things, sorted(self.entities), sorted(self.areas), sorted(self.floors)])
        return hashlib.sha256(said.encode()).hexdigest()


class IntentIndex:
    """What can be meant, by name, kind and room.

    Attributes:
        home: Knows the entities of Home Assistant, where there are any.
    """

    def __init__(self) -> None:
        self.home: Home | None = None
        self._home_targets: Mapping[str, Target] = {}
        self._home_source = ""
        self._things: dict[str, _Thing] = {}
        self._lists: dict[str, Lists] = {}
        self._version = 0

    def __bool__(self) -> bool:
        return bool(self._things) or self._offered is not None

    @property
    def _offered(self) -> Home | None:
        return self.home if self._home_targets else None

    def put(
        self,
        targets: Iterable[Target],
        *,
        source: str,
        kind: str | None,
        names: Iterable[str],
        places: Iterable[str],
    ) -> None:
        """Add a skill, if it is of a kind.

        Args:
            source: Id of the device that registered it.
            kind: What its author says that it is; None where the rule decides.
            names: Of the device; empty of the hub.
            places: Where the device is.
        """
        by_name = {target.method.name: target for target in targets}
        first = next(iter(by_name.values()), None)
        if first is None:
            return
        kind = kind or kind_of(first.skill, by_name)
        if kind == HOME_KIND:
            self._home_targets, self._home_source = by_name, source
        elif kind is not None:
            words, at = skill_words(first.skill), frozenset(map(spoken, places))
            prefixes = ("", *map(spoken, names), *at)
            said = tuple(f"{prefix} {words}".strip()[: limits.MAX_THING_NAME] for prefix in prefixes)
            key = f"{source}/{first.skill}"
            self._things[key] = _Thing(key, kind, source, said, at, by_name)
        # Others change nothing that can be said: a match that runs still counts.
        self._version += kind is not None

    def remove(self, source: str, skill: str) -> None:
        """Remove a skill of a device, if it is known."""
        is_known = self._things.pop(f"{source}/{skill}", None) is not None
        if source == self._home_source and any(each.skill == skill for each in self._home_targets.values()):
            self._home_targets, is_known = {}, True
        self._version += is_known

    def changed(self) -> None:
        self._version += 1

    def known_lists(self, book: Phrasebook) -> Lists | None:
        """Return the vocabulary of a language; None if it must be built again."""
        found = self._lists.get(book.language)
        return found if found is not None and found.version == self._version else None

    def named(self) -> Named:
        """Return a copy of what there is now."""
        things = list(self._things.values())
        areas = {place: place for thing in things for place in thing.places}
        if (home := self._offered) is None:
            return Named(self._version, things, [], areas, {})
        return Named(self._version, things, list(home.names()), areas | dict(home.areas()), home.floors())

    def keep(self, book: Phrasebook, lists: Lists) -> None:
        """Keep lists that were made, unless something has changed since."""
        if lists.version == self._version:
            self._lists = {k: each for k, each in self._lists.items() if each.version == self._version}
            self._lists[book.language] = lists

    def listed(self, book: Phrasebook, hears: Hears) -> list[tuple[str, str, str]]:
        """Return sentences for what there is, with the id of the device and the skill of each."""
        kinds = Counter(thing.kind for thing in self._things.values())
        made: dict[tuple[str, str, str], None] = {}
        for thing in self._things.values():
            if not all(hears(thing.source, target) for target in thing.targets.values()):
                continue
            # Where there are several, the one that is meant is named by its device or its room.
            said = thing.names[-1 if kinds[thing.kind] > 1 else 0]
            if book.language != "en" and kinds[thing.kind] == 1:
                said = next(iter(book.kinds.get(thing.kind, ())), said)  # the name of its class is English
            skill = next(iter(thing.targets.values())).skill
            for text in book.examples.get(thing.kind, ()):
                made[thing.source, skill, text.replace("{name}", said)] = None
        targets = self._home_targets.values()
        home = self._offered
        if home is not None and all(hears(self._home_source, each) for each in targets):
            first = {domain: said for said, _, domain in home.names()}
            skill = next(iter(targets)).skill
            for domain, said in first.items():
                for text in book.examples.get(domain, ()):
                    made[self._home_source, skill, text.replace("{name}", said)] = None
        return list(made)

    def sayable(self, book: Phrasebook, hears: Hears) -> list[SpokenSentence]:
        """Return the sentences that speech to text listens for: each with the names of things of its kind."""
        names, areas = defaultdict[str, dict[str, None]](dict), dict[str, None]()
        for thing in self._things.values():
            if all(hears(thing.source, target) for target in thing.targets.values()):
                generic = (spoken(each) for each in book.kinds.get(thing.kind, ()))
                names[thing.kind] |= dict.fromkeys((*thing.names, *generic))
                areas |= dict.fromkeys(thing.places)
        if (home := self._offered) is not None:
            for said, _, domain in home.names():
                names[domain][said] = None
            areas |= dict.fromkeys((*home.areas(), *home.floors()))
        if "light" in names and any("call_later" in thing.targets for thing in self._things.values()):
            names["later"] = names["light"]
        if areas:
            names["area"] = {}  # of sentences that name a room alone
        slots = {kind: SpokenSlot(values=short_texts(known)) for kind, known in names.items()}
        placed, number = SpokenSlot(values=short_texts(areas)), SpokenSlot(is_number=True)
        return [
            SpokenSentence(
                text=text,
                slots={
                    slot: slots[kind] if slot == "name" else placed if slot == "area" else number
                    for slot in _SLOT.findall(text)
                },
            )
            for kind in slots
            for text in book.spoken.get(kind, ())
            if areas or "{area}" not in text
        ]

    def calls(
        self,
        results: Sequence[Any],
        book: Phrasebook,
        lists: Lists,
        utterance: str,
        *,
        current: str | None,
        hears: Hears = lambda source, target: True,
    ) -> tuple[list[SentenceCall], bool]:
        """Return the calls that fit best of what was recognized, and whether all of them are meant.

        Args:
            lists: With which it was recognized.
            current: Id of the current device: free words, as what to buy, go to it and to the hub alone.
        """
        ranked: dict[tuple[int, ...], list[SentenceCall]] = {}
        length = len(spoken(utterance).split())
        for result in results:
            named = result.entities.get("name")
            if named is not None and len(spoken(named.text).split()) >= length:
                continue  # a name alone is no sentence
            slots: Slots = {name: each.value for name, each in result.entities.items()}
            if "Timer" in result.intent.name and named is not None:
                slots["text"], named = slots.pop("name"), None  # a timer is called as its person likes
            domain = str((named.metadata or {}).get("domain", "") if named else slots.get("domain", ""))
            wild = sum(len(each.text) for each in result.entities.values() if each.is_wildcard)
            rank = (wild, -("name" in slots), -result.text_chunks_matched)
            intent, key = result.intent.name, result.response or "default"
            said = {name: each.text.strip() or each.value for name, each in result.entities.items()}
            for target, arguments in self._calls_of(intent, slots, domain, lists, hears):
                if wild and target.device not in (current, HUB_KEY):
                    continue
                is_told = target.method.flags.read_only and target not in self._home_targets.values()
                answer = None if is_told else partial(_answer, book, intent, key, said, domain)
                call = SentenceCall(target, arguments, book.language, answer)
                ranked.setdefault(rank, []).append(call)
        best = ranked[min(ranked)] if ranked else []
        return best, any(result.response in _ALL for result in results)

    def later(self, call: SentenceCall, slots: Slots, text: str, hears: Hears) -> SentenceCall | None:
        """Return the call that makes a call later; None where there is nothing to be made, or no timer.

        Args:
            slots: When: hours, minutes and seconds.
            text: What was said of the call itself.
        """
        if call.target.method.flags.read_only:
            return None
        wanted = {"call": call.target.path, "arguments": call.arguments, "text": text}
        found = self._own_calls(self._things.values(), LATER, {**slots, **wanted}, "timer", hears)
        made = next((SentenceCall(*each, call.language) for each in found), None)
        return made if made is not None and made.target.path != call.target.path else None

    def _calls_of(
        self, intent: str, slots: Slots, domain: str, lists: Lists, hears: Hears
    ) -> list[tuple[Target, Slots]]:
        named = slots.get("name")
        keys = None if named is None else lists.groups.get(str(named))
        made: list[tuple[Target, Slots]] = []
        if named is None or keys is not None:
            things = [each for key in keys or self._things if (each := self._things.get(key)) is not None]
            made += self._own_calls(things, intent, slots, domain, hears)
        if (home := self._offered) is not None and keys is None:
            found = home.call(intent, slots, domain)
            target = self._home_targets.get(found[0]) if found is not None else None
            if found is not None and target is not None and hears(self._home_source, target):
                made.append((target, found[1]))
        return made

    def _own_calls(
        self, things: Iterable[_Thing], intent: str, slots: Slots, domain: str, hears: Hears
    ) -> Iterable[tuple[Target, Slots]]:
        named, at = slots.get("name"), (slots.get("area"), slots.get("floor"))
        places = {spoken(str(each)) for each in at if each not in (None, EVERYWHERE)}
        given = {
            name: value for name, value in slots.items() if name not in ("name", "domain", "area", "floor")
        }
        for thing in things:
            if named is None and thing.kind != domain and (domain or thing.kind not in NAMELESS):
                continue
            if places and not places <= thing.places and thing.kind not in NAMELESS:
                continue
            parameters = {
                name: list(target.method.parameters.get("properties", ()))
                for name, target in thing.targets.items()
            }
            found = call_for(intent, thing.kind, given, parameters)
            if found is None:
                continue
            target = thing.targets[found[0]]
            if set(target.method.parameters.get("required", ())) <= found[1].keys() and hears(
                thing.source, target
            ):
                yield target, found[1]


def made_lists(named: Named, book: Phrasebook) -> Lists:
    """Return what may be said in a language of what there is; a thousand skills take 25 ms."""
    from hassil import TextSlotList

    names: dict[tuple[str, str, str], None] = {}
    groups: dict[str, dict[str, None]] = {}
    taken: Counter[str] = Counter()
    # Things of the same name are one value: a thousand lamps would be a thousand readings.
    for thing in named.things:
        if thing.kind in NAMELESS and thing.kind != "media_player":
            continue
        generic = [spoken(each) for each in book.kinds.get(thing.kind, ())]
        placed = [f"{place} {word}" for place in thing.places for word in generic]
        for said in (*generic, *placed, *thing.names):
            value = f"{thing.kind}:{said}"
            if (said, value, thing.kind) not in names:
                if taken[thing.source] >= limits.MAX_NAMES_OF_SOURCE:
                    continue
                taken[thing.source] += 1
            names[said, value, thing.kind] = None
            groups.setdefault(value, {})[thing.key] = None
    names |= dict.fromkeys(named.entities)
    bounded = [each for each in names if 0 < len(each[0]) <= limits.MAX_THING_NAME]
    bounded = bounded[: limits.MAX_NAMED_THINGS]
    tuples = [(said, value, {"domain": domain}, {"domain": domain}) for said, value, domain in bounded]
    values = {
        "name": TextSlotList.from_tuples(tuples, allow_template=False, name="name"),
        "area": _texts("area", named.areas),
        "floor": _texts("floor", named.floors),
    }
    words = frozenset((*(each[0] for each in bounded), *named.areas, *named.floors))
    return Lists(named.version, values, words, {value: tuple(keys) for value, keys in groups.items()})


def is_risky(call: SentenceCall) -> bool:
    """Return whether a call is left out because the sentence only resembles what was said."""
    method, flags = call.target.method, call.target.method.flags
    if method.name in OPENING or method.name == "toggle":
        return True  # whatever its author declared
    return not flags.read_only and (flags.unknown or flags.confirm or flags.destructive or flags.open_world)


def distinct(calls: Iterable[SentenceCall]) -> list[SentenceCall]:
    """Return calls that differ in what they do."""
    found = {(each.target.path, json.dumps(each.arguments, sort_keys=True)): each for each in calls}
    return list(found.values())


def _texts(name: str, values: Mapping[str, str]) -> Any:
    from hassil import TextSlotList

    bounded = [pair for pair in values.items() if 0 < len(pair[0]) <= limits.MAX_THING_NAME]
    return TextSlotList.from_tuples(bounded[: limits.MAX_NAMED_THINGS], allow_template=False, name=name)


def _answer(
    book: Phrasebook, intent: str, key: str, slots: Mapping[str, Json], domain: str, result: Json
) -> str:
    """Return the package's answer; what was read of states is in the result."""
    read: Mapping[str, Json] = result if isinstance(result, dict) else {}
    value = read.get("state", read.get("value"))
    state = {"domain": domain, "state": value, "state_with_unit": read.get("state_with_unit")}
    query = {name: read.get(name, []) for name in ("matched", "unmatched")}
    return book.answer(intent, key, {"slots": dict(slots), "state": state, "query": query})
