"""The grammar of what can be said, made of the home's sentences and names (JSGF)."""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Final

from hassil import Alternative, Group, ListReference, Permutation, TextChunk, parse_sentence
from hassil.errors import HassilError
from hassil.expression import Expression
from hassil.parser import ParseError

from contracts.chat.vocabulary import SpokenSlot, Vocabulary
from voice import limits

_log = logging.getLogger(__name__)

_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d+")
_PIECE: Final = r"[\w']+|\([\w' |]*\)|\[[\w' |]*\]"
_GLUED: Final = re.compile(rf"(?:{_PIECE.replace('+', '')})+")
"""Letters and alternatives of letters that touch each other."""
_NESTED: Final = re.compile(r"(?<=[(\[|])(?:\(([\w' |]*)\)|\[([\w' |]*)\])(?=[)\]|])")
"""Alternatives that are one of other alternatives."""
_STILL_GLUED: Final = re.compile(r"[\w'](?:[()\[\]]+[\w']|[(\[]+\{)|\}[)\]]+[\w']")
"""Letters that touch alternatives of more than letters, or too many of them."""
_REFERENCE: Final = re.compile(r"<\w+>")

_ONES: Final = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen
""".split()  # noqa: SIM905  not a column of words
_ALIKE: Final = re.compile(r"(?<![\d.])(?:1[3-9]|[3-9]0)(?![\d.])")
"""Of 224 sentences by eight voices with these numbers, one in four was taken for the other, as surely as for
its own: thirteen and thirty, to nineteen and ninety."""
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_GERMAN_ONES: Final = """
    null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn
    siebzehn achtzehn neunzehn
""".split()  # noqa: SIM905  not a column of words
_GERMAN_TENS: Final = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()  # noqa: SIM905
_GERMAN: Final = (
    *_GERMAN_ONES,
    *(f"{one}und{ten}" if one else ten for ten in _GERMAN_TENS for one in ("", "ein", *_GERMAN_ONES[2:10])),
    "hundert",
)
"""From 0 to 100, one word each."""
_NUMBERS: Final = {
    **{word: number for number, word in enumerate(_ONES)},
    **{word: 10 * number for number, word in enumerate(_TENS, 2)},
    **{word: number for number, word in enumerate(_GERMAN)},
}

_LEADS: Final = {"en": "[on|in|at] [the]", "de": "[auf|in|im] [der|dem|den]"}
"""What may stand before the name of a device at the end of a sentence."""

Known = Callable[[str], bool]
"""Whether the dictionary of the speech to text has a word."""


def grammar_of(vocabulary: Vocabulary, known: Known, *, before: str = "") -> str | None:
    """Return the grammar in JSGF; None where nothing can be said.

    Sentences and names with words that are not known are left out, with a line in the log.

    Args:
        before: A word that may stand before every sentence.
    """
    language = vocabulary.language.partition("-")[0]
    names = _Names(known, language)
    anything = names.rule("names", vocabulary.names)
    sentences = []
    for sentence in vocabulary.sentences:
        rules = {slot: names.slot(values, anything) for slot, values in sentence.slots.items()}
        rule = _rule_of(sentence.text, rules, known, language)
        if rule is not None:
            sentences.append(rule)
    if names.unknown:
        _log.info("not in the dictionary, and so not in the grammar: %s", ", ".join(sorted(names.unknown)))
    if not sentences:
        return None
    lead = _LEADS.get(language, "")
    lead = " ".join(part for part in lead.split() if all(map(known, _WORD.findall(part))))
    behind = names.sizes.get(anything, 0)
    if behind > limits.MOST_COPIED_VALUES / 2:
        behind, anything = 0, ""
    where = f" [{lead} {anything}]" if anything else ""
    sentences = _that_fit(sentences, names.sizes, limits.MOST_COPIED_VALUES - behind)
    if not sentences:
        return None
    utterance = f"{f'[{before}] ' if before else ''}<sentence>{where}"
    return _jsgf([f"public <utterance> = {utterance}", f"<sentence> = {_either(sentences)}", *names.rules])


def _that_fit(rules: list[str], sizes: Mapping[str, int], left: int) -> list[str]:
    """Return the rules without those that refer to the most values, where these are too many in all."""
    costs = [sum(sizes[name] for name in _REFERENCE.findall(rule)) for rule in rules]
    kept: set[int] = set()
    for at in sorted(range(len(rules)), key=costs.__getitem__):
        left -= costs[at]
        if left < 0:
            _log.warning(
                "%d sentences have too many names for the grammar: another engine must understand them",
                len(rules) - len(kept),
            )
            break
        kept.add(at)
    return [rule for at, rule in enumerate(rules) if at in kept]


def choices(texts: Iterable[str]) -> str:
    return _jsgf([f"public <utterance> = {_either(' '.join(_words(text)) for text in texts)}"])


def with_digits(text: str) -> str:
    """Return a text with its numbers in digits, as sentences want them: ``forty two`` becomes ``42``."""
    out: list[str] = []
    value: int | None = None
    for word in [*text.split(), ""]:
        number = _NUMBERS.get(word)
        if number is not None and value is not None and value % 10 == 0 and value >= 20 and 0 < number < 10:
            value += number
        elif word == "hundred" and value is not None:
            value *= 100
        else:
            if value is not None:
                out.append(str(value))
            value = number
            if number is None and word:
                out.append(word)
    return re.sub(r"(\d+) point (\d)\b", r"\1.\2", " ".join(out))


def alike(text: str) -> str:
    """Return a text with the number that sounds like its own, ``90`` for ``19``; empty if there is none."""
    found = _ALIKE.search(text)
    if found is None:
        return ""
    number = int(found[0])
    other = (number - 10) * 10 if number < 20 else number // 10 + 10
    return f"{text[: found.start()]}{other}{text[found.end() :]}"


class _Names:
    """Rules for names and slots, each set of values once.

    Attributes:
        sizes: How many values each reference stands for.
    """

    def __init__(self, known: Known, language: str) -> None:
        self.rules: list[str] = []
        self.sizes: dict[str, int] = {}
        self.unknown: set[str] = set()
        self._known = known
        self._language = language
        self._made: dict[tuple[str, ...], str] = {}

    def slot(self, slot: SpokenSlot, anything: str) -> str:
        if slot.is_number:
            return self._number()
        return self.rule(f"values{len(self.rules)}", slot.values) if slot.values else anything

    def rule(self, name: str, values: tuple[str, ...]) -> str:
        """Return a reference to the rule of these values; empty where none of them can be said."""
        if values not in self._made:
            said = []
            for value in values:
                words = _words(value, self._language)
                missing = [word for word in words if not self._known(word)]
                self.unknown.update(missing)
                if words and not missing:
                    said.append(" ".join(words))
            if said:
                self.sizes[f"<{name}>"] = len(said)
                self.rules.append(f"<{name}> = {_either(dict.fromkeys(said))}")
            self._made[values] = f"<{name}>" if said else ""
        return self._made[values]

    def _number(self) -> str:
        if ("number",) not in self._made:
            self._made["number",] = (
                self._german_number() if self._language == "de" else self._english_number()
            )
        return self._made["number",]

    def _english_number(self) -> str:
        # "one hundred" stands for itself; more is seldom said to a lamp.
        ones, tens = _either(_ONES[1:10]), _either(_TENS)
        self.rules.append(f"<whole> = {_either(_ONES)} | {tens} [{ones}] | one hundred")
        self.rules.append(f"<number> = <whole> [point {_either(_ONES[:10])}] [percent|degrees]")
        self.sizes["<number>"] = 50
        return "<number>"

    def _german_number(self) -> str:
        words = [word for word in _GERMAN if self._known(word)]
        behind = [word for word in ("prozent", "grad") if self._known(word)]
        if not words or not behind:
            return ""
        self.rules.append(f"<number> = {_either(words)} [{'|'.join(behind)}]")
        self.sizes["<number>"] = len(words)
        return "<number>"


def _jsgf(rules: Iterable[str]) -> str:
    return "#JSGF V1.0 UTF-8;\ngrammar home;\n" + "".join(f"{rule};\n" for rule in rules)


def _either(ways: Iterable[str]) -> str:
    return f"({'|'.join(ways)})"


def _words(text: str, language: str = "en") -> list[str]:
    """Return the words of a text as they are spoken."""
    words: list[str] = []
    for word in _WORD.findall(text.lower().replace("’", "'")):
        words += _spoken_number(int(word), language) if word.isdigit() else [word]
    return words


def _spoken_number(number: int, language: str) -> list[str]:
    if language == "de":
        return [_GERMAN[at] for at in ([number] if number <= 100 else map(int, str(number)))]
    if number < 20:
        return [_ONES[number]]
    if number < 100:
        return [_TENS[number // 10 - 2], *([_ONES[number % 10]] if number % 10 else [])]
    return [_ONES[int(digit)] for digit in str(number)]


def _rule_of(text: str, slots: dict[str, str], known: Known, language: str) -> str | None:
    """Return the rule of a sentence; None where it cannot be said."""
    try:
        text = _with_whole_words(text)
        if _STILL_GLUED.search(text):
            return None
        expression = parse_sentence(text).expression
    except (ParseError, HassilError, ValueError, AssertionError):
        return None
    return _Sentence(slots, known, language).rule([expression])


def _with_whole_words(text: str) -> str:
    """Return a sentence whose words with alternatives inside them are in full, the innermost first."""
    while (written := _NESTED.sub(_opened, _GLUED.sub(_written_out, text))) != text:
        text = written
    return text


def _opened(nested: re.Match[str]) -> str:
    # ``[ed]`` becomes ``ed|``.
    return f"{nested[2]}|" if nested[1] is None else nested[1]


def _written_out(glued: re.Match[str]) -> str:
    """Return a word with alternatives inside it in full: ``light[s]`` is ``(lights|light)``."""
    pieces = re.findall(_PIECE, glued[0])
    ways = [piece.strip("()[]").split("|") + [""] * (piece[0] == "[") for piece in pieces]
    if len(pieces) == 1 or math.prod(map(len, ways)) > limits.MOST_GLUED:
        return glued[0]
    return f"({'|'.join(map(''.join, product(*ways)))})"


class _Sentence:
    """Turns one parsed sentence into a rule; a way of saying it that has an unknown word is left out."""

    def __init__(self, slots: dict[str, str], known: Known, language: str) -> None:
        self._slots = slots
        self._known = known
        self._language = language

    def rule(self, items: list[Expression]) -> str | None:
        """Return the rule of items that follow each other; empty where nothing needs to be said."""
        parts: list[str] = []
        for item in items:
            part = self._item(item)
            if part is None:
                return None
            parts.append(part)
        return " ".join(filter(None, parts))

    def _item(self, item: Expression) -> str | None:
        match item:
            case TextChunk():
                words = _words(item.text, self._language)
                return " ".join(words) if all(map(self._known, words)) else None
            case ListReference():
                return self._slots.get(item.slot_name) or None
            case Permutation():
                items = item.items
                orders = [[each, *items[:n], *items[n + 1 :]] for n, each in enumerate(items)]
                return self._ways([self.rule(order) for order in orders])
            case Alternative():
                return self._ways([self.rule([one]) for one in item.items])
            case Group():
                return self.rule(item.items)
        return None

    def _ways(self, ways: list[str | None]) -> str | None:
        said = list(dict.fromkeys(way for way in ways if way))
        optional = "" in ways
        if not said:
            return "" if optional else None
        return f"[{'|'.join(said)}]" if optional else _either(said)
