"""One language of ``home-assistant-intents``: its sentences, politeness, number words and answers.

Its data, and our additions in ``languages/``, are trusted; names of things come from devices and are only
values of its lists. Loading takes up to a second and happens in a thread.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property, lru_cache
from itertools import product
from math import prod
from operator import ne
from pathlib import Path
from typing import Any, Final

from agent_core import limits
from agent_core.sentences.kinds import INTENTS, LATER
from agent_core.sentences.matching import normalized, spoken
from agent_core.sentences.responses import primary
from contracts.text import shortened
from contracts.wire import Json

_ADDITIONS: Final = Path(__file__).parent / "languages"
_PART: Final = re.compile(r"([^\W\d_]+)|\(([^()\[\]\s]*)\)|\[([^()\[\]\s]*)\]")
_WORD: Final = re.compile(rf"(?:{_PART.pattern})+")
"""A word of a template, as ``minute[s]`` or ``dr(i|ü)ck[e]``; its parts: as it is, one of, optional."""
_SLOT_OR_RULE: Final = re.compile(r"[{<][^{}<>]*[}>]")
_UNSERVED: Final = ("{timer_command", "{search_query", "{zone")
"""Lists of any words in sentences that nothing here serves."""


class Phrasebook:
    """What is known of one language.

    Args:
        data: As ``home_assistant_intents.get_intents`` returns it, with our additions.
    """

    def __init__(self, language: str, data: Mapping[str, Any]) -> None:
        from hassil import Intents

        self.language = language
        self.kinds: Mapping[str, list[str]] = data["kinds"]
        self.examples: Mapping[str, list[str]] = data["examples"]
        self.spoken: Mapping[str, list[str]] = data["spoken"]
        self.intents = Intents.from_dict(dict(data))
        self._later = Intents.from_dict({**data, "intents": {LATER: {"data": data["later"]}}})
        self._responses: Mapping[str, Mapping[str, str]] = data["responses"]["intents"]
        self._compounds: Mapping[str, str] = data["compounds"]
        self._skipped = sorted(map(spoken, data.get("skip_words", ())), key=len, reverse=True)
        self._texts = _texts(data)
        self._numbers = number_words(language)
        # What is compiled at the first match is compiled now.
        self.matches("1", {})
        self.later("1")

    def matches(self, utterance: str, slot_lists: Mapping[str, Any], area: str = "") -> list[Any]:
        """Return what hassil recognizes, at most `limits.MAX_RECOGNIZED`.

        Args:
            area: What a sentence without a room means.
        """
        from hassil import TextSlotList, recognize_all

        for compound, parts in self._compounds.items():
            utterance = re.sub(compound, parts, utterance, flags=re.IGNORECASE)
        lists = {name: TextSlotList(name=name, values=[]) for name in ("name", "area", "floor")}
        results = recognize_all(
            utterance,
            self.intents,
            slot_lists={**lists, **slot_lists},
            intent_context={"area": area},
            language=self.language,
        )
        return [result for result, _ in zip(results, range(limits.MAX_RECOGNIZED), strict=False)]

    def later(self, utterance: str) -> tuple[str, dict[str, Json]] | None:
        """Return what is to be done later, and when: the slots hours, minutes and seconds."""
        from hassil import recognize_all

        found = None
        for result, _ in zip(
            recognize_all(utterance, self._later), range(limits.MAX_RECOGNIZED), strict=False
        ):
            slots = {name: each.value for name, each in result.entities.items()}
            parts = [str(slots.pop(name, "")).strip(" ,") for name in ("conversation_command", "particle")]
            command = " ".join(filter(None, parts))
            # "20 minutes and 30 seconds" is longer than "30 seconds".
            if command and (found is None or len(command) < len(found[0])):
                found = command, slots
        return found

    def variants(self, utterance: str) -> list[str]:
        """Return an utterance without politeness at its ends, and with numbers as digits."""
        text = normalized(utterance)
        plain = self._without_politeness(text)
        said = dict.fromkeys((plain, self._with_digits(text), self._with_digits(plain)))
        return [each for each in said if each and each != text]

    def corrected(self, utterance: str, names: Iterable[str]) -> list[tuple[int, str]]:
        """Return an utterance with unknown words replaced by known ones that differ in a letter.

        Each comes with the number of words that were replaced, the fewest first: what is not known may also
        be free text, which is kept as it was said.
        """
        known = self._vocabulary | {word for name in names for word in name.split()}
        words = normalized(utterance).split()
        choices: list[list[str]] = []
        for word in words:
            said = spoken(word)
            near: list[str] = []
            if len(said) >= limits.LEAST_CORRECTED and said not in known and said.isalpha():
                near = sorted(
                    each for each in known if abs(len(each) - len(said)) <= 1 and _is_near(said, each)
                )
            # A German noun keeps the capital that it was said with.
            as_said = str.capitalize if word[:1].isupper() else str
            choices.append([word, *map(as_said, near[: limits.MAX_CORRECTIONS])])
        if prod(map(len, choices)) > limits.MAX_FORMS:
            return []
        made = ((sum(map(ne, each, words)), " ".join(each)) for each in product(*choices))
        return sorted(each for each in made if each[0])[: limits.MAX_CORRECTIONS]

    def answer(self, intent: str, key: str, values: Mapping[str, Json]) -> str:
        """Return what is answered to an intent, empty where there is no answer."""
        template = self._responses.get(intent, {}).get(key)
        if template is None:
            return ""
        from jinja2 import TemplateError

        try:
            text = " ".join(_template(template).render(**values).split())
        except (TemplateError, TypeError, ValueError, ArithmeticError):
            return ""  # it needs values that nothing here gives
        text = shortened(text, limits.MAX_INTENT_ANSWER)
        return f"{text}." if text and text[-1].isalnum() else text

    @cached_property
    def _vocabulary(self) -> frozenset[str]:
        kinds = (each for names in self.kinds.values() for each in names)
        return frozenset(
            word.casefold()
            for text in (*self._texts, *self._skipped, *kinds)
            for word in _words(_SLOT_OR_RULE.sub(" ", text))
        )

    def _without_politeness(self, text: str) -> str:
        said = text
        while True:
            low = spoken(said)
            for phrase in self._skipped:
                size = len(phrase.split())
                if low.startswith(f"{phrase} "):
                    said = " ".join(said.split()[size:])
                    break
                if low.endswith(f" {phrase}"):
                    said = " ".join(said.split()[:-size])
                    break
            else:
                return said

    def _with_digits(self, text: str) -> str:
        words, made = text.split(), list[str]()
        while words:
            for size in range(min(limits.MOST_NUMBER_WORDS, len(words)), 0, -1):
                number = self._numbers.get(spoken(" ".join(words[:size])))
                if number is not None:
                    made.append(str(number))
                    words = words[size:]
                    break
            else:
                made.append(words.pop(0))
        return " ".join(made)


def other_languages(utterance: str, language: str) -> list[str]:
    """Return the other languages that have words of an utterance which this one has not, the likeliest first.

    Only of those with a file in ``languages/``, whose words are enough to tell them apart.
    """
    words, own = set(spoken(utterance).split()), _file_words(primary(language))
    others = [file.stem for file in sorted(_ADDITIONS.glob("*.yaml")) if file.stem != primary(language)]
    found = {each: len(words & (_file_words(each) - own)) for each in others}
    return sorted((each for each in others if found[each]), key=lambda each: -found[each])


def likely_language(utterance: str, language: str) -> str:
    """Return the language of an utterance, this one unless another has more of its words."""
    words = set(spoken(utterance).split())
    for other in other_languages(utterance, language):
        if len(words & _file_words(other)) > len(words & _file_words(primary(language))):
            return other
    return language


@cache
def _file_words(language: str) -> frozenset[str]:
    file = _ADDITIONS / f"{language}.yaml"
    text = re.sub("^#.*", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE) if file.exists() else ""
    return frozenset(re.findall(r"[^\W\d_]{2,}", spoken(text)))


def load_phrasebook(language: str) -> Phrasebook | None:
    """Load a language; None where the package does not have it. It takes up to a second of the processor."""
    from home_assistant_intents import get_intents, get_languages

    known = sorted(get_languages())
    low = language.replace("_", "-").lower()
    found = next((each for each in known if each.lower() == low), None)
    found = found or next((each for each in known if each.lower().split("-")[0] == low.split("-")[0]), None)
    data = get_intents(found) if found is not None else None
    if found is None or data is None:
        return None
    return Phrasebook(found, _with_additions(found, dict(data)))


def _with_additions(language: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a language with ours, and without intents that nothing here serves."""
    import yaml

    file = _ADDITIONS / f"{language}.yaml"
    ours: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    intents = {}
    for name in INTENTS - {LATER}:
        blocks = [*data["intents"].get(name, {}).get("data", ()), *ours.get("intents", {}).get(name, ())]
        served = [
            {**block, "sentences": kept}
            for block in blocks
            if (kept := [each for each in block["sentences"] if not any(map(each.__contains__, _UNSERVED))])
        ]
        if served:
            intents[name] = {"data": served}
    commands = [each for block in data["intents"]["HassStartTimer"]["data"] for each in block["sentences"]]
    later = [{"sentences": [each for each in commands if "{timer_command" in each]}]
    return {
        **data,
        "intents": intents,
        "later": [*later, *ours.get("intents", {}).get(LATER, ())],
        **{each: ours.get(each, {}) for each in ("compounds", "kinds", "examples", "spoken")},
        "lists": {**data["lists"], **ours.get("lists", {})},
        "skip_words": [*data.get("skip_words", ()), *ours.get("skip_words", ())],
        "expansion_rules": {**data.get("expansion_rules", {}), **ours.get("expansion_rules", {})},
    }


def _texts(data: Mapping[str, Any]) -> list[str]:
    blocks = (block for intent in data["intents"].values() for block in intent["data"])
    values = (each for one in data["lists"].values() for each in one.get("values", ()))
    return [
        *(text for block in blocks for text in block["sentences"]),
        *data["expansion_rules"].values(),
        *(str(each["in"] if isinstance(each, dict) else each) for each in values),
    ]


def _words(text: str) -> Iterable[str]:
    for word in _WORD.finditer(text):
        parts = [
            (plain,) if plain else one_of.split("|") if one_of else (*optional.split("|"), "")
            for plain, one_of, optional in _PART.findall(word[0])
        ]
        if prod(map(len, parts)) <= limits.MAX_FORMS:
            yield from map("".join, product(*parts))


@cache
def number_words(language: str) -> dict[str, int]:
    """Return the numbers up to 100 by their words; empty for a language without them."""
    from hassil.numbers import get_rbnf_engine

    try:
        engine = get_rbnf_engine(language)
    except ValueError:
        return {}
    words: dict[str, int] = {}
    for number in range(101):
        for text in engine.format_number(number).text_by_ruleset.values():
            said = spoken(text.replace("\u00ad", ""))
            if not said[:1].isdigit():
                words.setdefault(said, number)
    return words


@lru_cache(maxsize=500)
def _template(text: str) -> Any:
    from jinja2 import Undefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=Undefined, autoescape=False)
    environment.globals = {"state_attr": lambda *_: None}
    return environment.from_string(text)


def _is_near(one: str, other: str) -> bool:
    """Return whether two words differ in one letter, or in two neighbours that are swapped."""
    if len(one) == len(other):
        wrong = [place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
        if len(wrong) == 2:
            first, second = wrong
            return second == first + 1 and one[first] == other[second] and one[second] == other[first]
        return len(wrong) <= 1
    short, long = sorted((one, other), key=len)
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))
