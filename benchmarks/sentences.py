"""Everyday sentences that are understood without a model, beside plain ``hassil`` with the same data.

English and German ones were written by hand (``sentences.txt``); those of eight more languages are drawn from
``home-assistant-intents``. Both sides have the same areas, floors and entities, and are heard in the living
room. Plain ``hassil`` recognizes; the call that its result means is made by our rule.
"""

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import home_assistant_intents
from hassil import Intents, TextSlotList, recognize_best
from hassil.expression import Alternative, Group, ListReference, Permutation, RuleReference, TextChunk
from hassil.intents import RangeSlotList, SlotList
from pydantic import SecretStr

from agent_core import limits
from agent_core.finder import SkillFinder
from agent_core.sentences.index import SentenceCall
from agent_core.sentences.intents import Lists, Slots
from agent_core.sentences.kinds import INTENTS
from agent_core.skills.skill import Skill, skill_method
from benchmarks.measure import Effort
from benchmarks.table import Row
from contracts.wire import Json
from hub_agent.settings import HomeAssistantAccess
from spoke.samples.clock import TimeSkill
from tests.hub_agent.home import Home, open_home
from tests.hub_home_assistant.recorded import TOKEN, recorded
from tests.hub_registry.spokes import eventually

_OWN: Final = Path(__file__).with_name("sentences.txt")
_LANGUAGES: Final = ("fr", "es", "it", "nl", "pl", "pt", "sv", "cs")
_OF_INTENT: Final = 6
"""Sentences drawn of each intent."""
_HERE: Final = "Living Room"
_POLITE: Final = {
    "en": ("please {}", "{} please", "could you {}", "hey, {}", "{}, thank you"),
    "de": ("bitte {}", "{} bitte", "kannst du bitte {}", "hallo, {}", "{}, danke"),
}
_SHORT: Final = {"en": {"the", "a", "my", "it's"}, "de": {"das", "die", "den", "der", "einen", "mal"}}
_COMMANDS: Final = {"conversation_command", "timer_command"}
"""Slots that hold a request of their own."""
_NO_REQUESTS: Final = {"HassRespond", "HassNevermind"}

_FLOORS: Final = {"Ground Floor": ("Erdgeschoss",), "Upstairs": ("Obergeschoss", "oben")}
_AREAS: Final = {
    "Kitchen": ("Küche", "Ground Floor"),
    "Living Room": ("Wohnzimmer", "Ground Floor"),
    "Hall": ("Flur", "Ground Floor"),
    "Bedroom": ("Schlafzimmer", "Upstairs"),
}
_ENTITIES: Final = """
light.kitchen|Kitchen Light|Küchenlicht|Kitchen|on|
light.counter|Counter Light|Thekenlampe|Kitchen|on|
light.ceiling|Ceiling Light|Deckenlampe|Living Room|on|
light.floor|Floor Lamp|Stehlampe|Living Room|on|
light.bedside|Bedside Lamp|Nachttischlampe|Bedroom|on|
switch.coffee|Coffee Maker|Kaffeemaschine|Kitchen|on|
fan.living|Ceiling Fan|Ventilator|Living Room|on|
fan.bedroom|Bedroom Fan|Tischlüfter|Bedroom|on|
cover.kitchen|Kitchen Blinds|Küchenrollo|Kitchen|open|blind
cover.curtains|Curtains|Vorhang|Living Room|open|curtain
cover.bedroom|Bedroom Shutter|Schlafzimmerrollladen|Bedroom|open|shutter
cover.garage|Garage Door|Garagentor|Hall|closed|garage
lock.front|Front Door|Haustür|Hall|locked|
binary_sensor.window|Kitchen Window|Küchenfenster|Kitchen|off|window
climate.living|Thermostat|Thermostat|Living Room|heat|
climate.bedroom|Bedroom Heater|Schlafzimmerheizung|Bedroom|heat|
climate.kitchen|Kitchen Heater|Küchenheizung|Kitchen|heat|
sensor.outside|Outdoor Temperature|Außentemperatur||12|temperature
media_player.tv|TV|Fernseher|Living Room|playing|
media_player.bedroom|Bedroom Speaker|Schlafzimmerlautsprecher|Bedroom|idle|
vacuum.robbie|Robbie|Robbie|Living Room|docked|
lawn_mower.shaun|Shaun|Shaun||docked|
scene.movie|Movie Night|Filmabend|Living Room|2026-01-01|
"""


class ShoppingListSkill(Skill):
    """A shopping list."""

    @skill_method()
    def add_item(self, item: str) -> None:
        """Add an item."""


class WeatherSkill(Skill):
    """The weather."""

    @skill_method(read_only=True)
    def now(self) -> str:
        """Return the weather."""
        return "sunny"


@dataclass(frozen=True)
class Request:
    """A sentence with the calls that it may mean; with none where nothing in the home fits.

    Attributes:
        short: The same without what may be left out.
        is_served: Whether something here does it, so that it means a call and not the name of an intent.
    """

    language: str
    domain: str
    text: str
    wanted: frozenset[str]
    short: str = ""
    is_served: bool = True

    def met_by(self, call: str) -> bool:
        """Return whether a call is one that is meant; without values, those of the call do not matter."""
        return call in self.wanted or (bool(call) and call.split()[0] in self.wanted)


class House:
    """The home of the benchmark: what both sides hear of it, and what they would call."""

    def __init__(self, home: Home, device: str) -> None:
        self.search: SkillFinder = home.hub.registry.search
        self._intents = self.search._understanding.intents
        self._device, self._user = device, home.hub.registry.admin.id
        self._entities = home.hub.live.home_assistant.client.entities
        assert self._intents.home is not None
        self.names = list(self._intents.home.names())
        self.areas, self.floors = self._intents.home.areas(), self._intents.home.floors()

    async def ours(self, language: str, text: str) -> str:
        """Return what is called for a sentence, empty where nothing is."""
        found = await self.search.understand(
            text, language=language, current=self._device, user=self._user, patient=True
        )
        return (
            self._text(found.target.method.name, found.arguments) if isinstance(found, SentenceCall) else ""
        )

    def calls(self, intent: str, slots: Slots, domain: str) -> frozenset[str]:
        """Return what an intent with its slots means here; its name where our rule has no call for it."""
        found = self._intents._calls_of(intent, slots, domain, Lists(0, {}, frozenset(), {}), lambda *_: True)
        made = frozenset(self._text(target.method.name, arguments) for target, arguments in found)
        return made or frozenset({intent.casefold()})

    def _text(self, method: str, arguments: Mapping[str, Json]) -> str:
        words = [method]
        for name, value in arguments.items():
            said = [
                self._entities.named(str(each)).id if name == "name" else each
                for each in (value if isinstance(value, list) else [value])
            ]
            words += sorted(
                f"{each:g}" if isinstance(each, int | float) else str(each)
                for each in said
                if each is not None
            )
        return " ".join(words).casefold()


class PlainHassil:
    """Recognition with one language of ``home-assistant-intents`` as it comes."""

    def __init__(self, language: str, house: House) -> None:
        self.data: dict[str, Any] = home_assistant_intents.get_intents(language) or {}
        self.intents = Intents.from_dict(self.data)
        self._language, self._house = language, house
        named = [(said, value, {"domain": domain}, {"domain": domain}) for said, value, domain in house.names]
        self._lists: dict[str, SlotList] = {
            "name": TextSlotList.from_tuples(named, allow_template=False, name="name"),
            "area": TextSlotList.from_tuples(house.areas.items(), allow_template=False, name="area"),
            "floor": TextSlotList.from_tuples(house.floors.items(), allow_template=False, name="floor"),
        }

    def calls(self, text: str) -> frozenset[str]:
        """Return what a sentence means, empty where nothing is recognized."""
        found = recognize_best(
            text,
            self.intents,
            slot_lists=self._lists,
            intent_context={"area": _HERE},
            language=self._language,
            best_slot_name="name",
        )
        if found is None or found.intent.name in _NO_REQUESTS:
            return frozenset()
        slots: Slots = {name: each.value for name, each in found.entities.items()}
        named = found.entities.get("name")
        domain = (named.metadata or {}).get("domain", "") if named else slots.get("domain", "")
        meant = self._house.calls(found.intent.name, slots, str(domain))
        return meant | {found.intent.name.casefold()}


class Sampler:
    """Draws sentences of a language, with the values that were put into them."""

    def __init__(self, plain: PlainHassil, house: House, chosen: random.Random) -> None:
        self._intents, self._house, self._chosen = plain.intents, house, chosen

    def requests(self, language: str) -> list[Request]:
        """Return some sentences of each intent that something in the home fits."""
        made = []
        for name, intent in self._intents.intents.items():
            if name in _NO_REQUESTS:
                continue
            every = [(part, sentence) for part in intent.data for sentence in part.sentences]
            for part, sentence in self._chosen.sample(every, min(_OF_INTENT, len(every))):
                full = self._drawn(name, part, sentence, is_short=False)
                short = self._drawn(name, part, sentence, is_short=True)
                if full is not None:
                    same = short[0] if short is not None and short[1] == full[1] else full[0]
                    is_served = full[1] != {name.casefold()}
                    made.append(Request(language, full[2], full[0], full[1], same, is_served))
        return made

    def _drawn(
        self, intent: str, part: Any, sentence: Any, *, is_short: bool
    ) -> tuple[str, frozenset[str], str] | None:
        chosen = random.Random(f"{intent} {sentence.text}")  # the same values in the short form
        domains = _domains(part)
        slots: Slots = dict(part.slots)
        named: list[str] = []

        def value_of(reference: Any) -> str:
            name = reference.list_name
            if name == "name":
                fitting = [each for each in self._house.names if each[2] in domains and each[0].isascii()]
                said, slots["name"], domain = chosen.choice(fitting)
                named.append(domain)
                return said
            if name in ("area", "floor"):
                of = self._house.areas if name == "area" else self._house.floors
                said = chosen.choice([each for each in of if each.isascii() and each != "hall"])
                slots[reference.slot_name] = of[said]
                return said
            values = part.slot_lists.get(name) or self._intents.slot_lists.get(name)
            if isinstance(values, RangeSlotList):
                number = chosen.randrange(max(values.start, 10), values.stop + 1, values.step)
                slots[reference.slot_name] = number
                return str(number)
            if isinstance(values, TextSlotList):
                value = chosen.choice(values.values)
                slots[reference.slot_name] = value.value_out
                return walk(value.text_in)
            slots[reference.slot_name] = "pizza"
            return "pizza"

        def walk(each: Any) -> str:
            if isinstance(each, TextChunk):
                return str(each.original_text)
            if isinstance(each, ListReference):
                return f"{each.prefix or ''}{value_of(each)}{each.suffix or ''}"
            if isinstance(each, RuleReference):
                rule = (
                    part.expansion_rules.get(each.rule_name) or self._intents.expansion_rules[each.rule_name]
                )
                return walk(rule.expression)
            assert isinstance(each, Group)
            if isinstance(each, Alternative):
                return "" if is_short and each.is_optional else walk(chosen.choice(each.items))
            texts = map(walk, each.items)
            return " ".join(texts) if isinstance(each, Permutation) else "".join(texts)

        try:
            text = " ".join(walk(sentence.expression).split())
        except (IndexError, KeyError, ValueError):
            return None  # nothing of this kind is in the home
        if "area" not in slots and part.requires_context.get("area") is not None:
            slots["area"] = _HERE
        domain = named[0] if named else str(slots.get("domain", ""))
        wanted = self._house.calls(intent, slots, domain)
        if not slots.keys().isdisjoint(_COMMANDS):
            wanted = frozenset({intent.casefold()})
        if wanted == {intent.casefold()} and intent in INTENTS and not named:
            return None  # it names what the home does not have in that place
        return text, wanted, domain or intent


def _domains(part: Any) -> set[str]:
    needed = part.requires_context.get("domain")
    if isinstance(needed, dict):
        needed = needed.get("value")
    return {needed} if isinstance(needed, str) else set(needed or ("light", "switch", "fan"))


def own_requests() -> list[Request]:
    """Read ``sentences.txt``."""
    made: list[Request] = []
    language, domain = "", ""
    for line in _OWN.read_text("utf-8").splitlines():
        if head := re.fullmatch(r"\[(\w+) (.+)\]", line):
            language, domain = head.groups()
        elif language:
            calls, _, text = line.rpartition(" | ")
            wanted = frozenset(each.casefold() for each in calls.split(" or ") if each)
            words = [each for each in text.split() if each not in _SHORT[language]]
            made.append(Request(language, domain, text, wanted, " ".join(words)))
    return made


def variants(request: Request, polite: str) -> dict[str, Request]:
    """Return a request in other forms: polite, short, and with two letters of its longest word swapped."""
    longest = max(request.text.split(), key=len)
    middle = len(longest) // 2
    swapped = longest[: middle - 1] + longest[middle] + longest[middle - 1] + longest[middle + 1 :]
    texts = {
        "polite": polite.format(request.text),
        "short": request.short,
        "misspelt": request.text.replace(longest, swapped, 1),
    }
    return {form: replace(request, text=text) for form, text in texts.items()}


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; takes some minutes for all languages."""
    await asyncio.to_thread(directory.mkdir, exist_ok=True)
    # How many are understood is no question of how busy the machine is.
    patient = patch.multiple(limits, INTENT_WAIT_S=60.0, FIRST_INTENT_WAIT_S=60.0)
    async with recorded(**_fixture()) as assistant, open_home(directory / "home") as home:
        home.hub.live.home_assistant.client.use(
            HomeAssistantAccess(url=assistant.url, token=SecretStr(TOKEN))
        )
        device = await home.device("Speaker", TimeSkill(), ShoppingListSkill(), WeatherSkill())
        async with home.client() as client:
            (await client.patch("/api/devices/speaker", json={"area": _HERE})).raise_for_status()
        search = home.hub.registry.search
        await eventually(
            lambda: (
                search.sync() is None
                and search.match("turn on shaun", language="en", current=None) is None
                and bool(list(search._understanding.intents.named().entities))
            )
        )
        with patient:
            return await _rows(House(home, device.id), effort)


async def _rows(house: House, effort: Effort) -> list[Row]:
    made: list[Row] = []

    async def compare(work: str, requests: list[Request], plain: PlainHassil) -> None:
        made.append(await _row(work, requests, house, plain))

    own = own_requests()
    for language in ("en", "de"):
        requests = [each for each in own if each.language == language]
        unfit = [each for each in requests if not each.wanted]
        fit = [each for each in requests if each.wanted]
        plain = PlainHassil(language, house)
        forms = [variants(*each) for each in zip(fit, cycle(_POLITE[language]), strict=False)]
        by_domain = defaultdict(list)
        for each in fit:
            by_domain[each.domain].append(each)
        await compare(f"{language}, by hand: understood", fit, plain)
        for domain, those in by_domain.items():
            await compare(f"  {domain}", those, plain)
        for form in ("polite", "short", "misspelt"):
            await compare(f"  {form}", [each[form] for each in forms], plain)
        ours = [await house.ours(language, each.text) for each in unfit]
        theirs = [plain.calls(each.text) for each in unfit]
        share = _share([bool(each) for each in ours]), _share([bool(each) for each in theirs])
        made.append(Row(f"  matched though nothing fits, of {len(unfit)}", share[0], "%", reference=share[1]))
    for language in _LANGUAGES[: effort.size(len(_LANGUAGES))]:
        plain = PlainHassil(language, house)
        drawn = Sampler(plain, house, random.Random(7)).requests(language)
        polite = [f"{each} {{}}" for each in plain.data["skip_words"] if each.replace(" ", "").isalpha()]
        forms = [variants(*each) for each in zip(drawn, cycle(polite), strict=False)]
        served = [each for each in drawn if each.is_served]
        await compare(f"{language}, drawn from the data, what the home does: understood", served, plain)
        for form in ("polite", "short", "misspelt"):
            await compare(f"  {form}", [each[form] for each in forms if each[form].is_served], plain)
        await compare("  with intents that nothing here serves", drawn, plain)
    return made


async def _row(work: str, requests: list[Request], house: House, plain: PlainHassil) -> Row:
    ours = [each.met_by(await house.ours(each.language, each.text)) for each in requests]
    theirs = [any(map(each.met_by, plain.calls(each.text))) for each in requests]
    return Row(f"{work}, of {len(requests)}", _share(ours), "%", reference=_share(theirs))


def _share(of: list[bool]) -> float:
    return 100 * sum(of) / len(of)


def _fixture() -> dict[str, Any]:
    lines = [line.split("|") for line in _ENTITIES.strip().splitlines()]
    return {
        "floors": [
            {"floor_id": name, "name": name, "aliases": list(aliases), "level": 0}
            for name, aliases in _FLOORS.items()
        ],
        "areas": [
            {"area_id": name, "name": name, "aliases": [alias], "floor_id": floor}
            for name, (alias, floor) in _AREAS.items()
        ],
        "entities": {
            id_: (
                state,
                {"friendly_name": name, **({"device_class": kind} if kind else {})},
                {"area_id": area or None, "aliases": [alias], "platform": "demo", "unique_id": id_},
            )
            for id_, name, alias, area, state, kind in lines
        },
    }
