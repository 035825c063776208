"""One sentence template of a method: compiled, checked against the schema, matched, and as it is spoken."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, chain
from typing import Final

from hassil import (
    Alternative,
    Group,
    ListReference,
    Permutation,
    RuleReference,
    Sentence,
    TextChunk,
    parse_sentence,
)
from hassil.errors import HassilError
from hassil.parser import ParseError

from agent_core import limits
from agent_core.schemas.arguments import check_arguments
from agent_core.schemas.foreign_schema import branches, kinds_of, resolved, without_null
from agent_core.sentences.matching import (
    Match,
    Node,
    ReadSlot,
    Steps,
    compile_expression,
    folded,
    spoken,
    ways,
)
from contracts.chat.vocabulary import MAX_NAMES, SpokenSentence, SpokenSlot
from contracts.devices.registration import Method
from contracts.errors import CallError, StrawberryError
from contracts.wire import Json

MIN_LITERAL_WORDS: Final = 2
"""Words that must be said as they stand; with fewer, everyday speech would trigger calls."""


_DURATION: Final = re.compile(
    r"(?:([\d.,]+) ?(?:h|hours?|stunden?))?(?:(?:,| and| und)? ?([\d.,]+) ?(?:min|minutes?|minuten?))?"
    r"(?:(?:,| and| und)? ?([\d.,]+) ?(?:s|seconds?|sekunden?))?"
)
_WHOLE: Final = re.compile(r"-?\d{1,18}\Z")
_SLOT: Final = re.compile(r"\{([^{}]*)\}")
_ESCAPED: Final = re.compile(r"\\.")
_BRACKETS: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}
_NUMBER: Final = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*(?:%|°\s*[CFcf]?)?\Z")


class BadTemplate(StrawberryError):
    """A sentence template that cannot be used; the message says why."""


@dataclass(frozen=True)
class Template:
    """A compiled template.

    Attributes:
        text: As the author wrote it.
        clauses: What an utterance must contain: of each set, at least one.
        start: What an utterance begins with.
        check_steps: What checking the arguments of one reading counts.
        example: How a person may say it, with slots in angle brackets.
    """

    text: str
    clauses: frozenset[frozenset[str]]
    start: Node | None
    check_steps: int
    example: str

    def possible(self, utterance: str) -> bool:
        """Return whether a case-folded utterance without hyphens has all words that the template needs."""
        return all(any(word in utterance for word in clause) for clause in self.clauses)

    def arguments(self, utterance: str, method: Method, steps: Steps) -> dict[str, Json] | None:
        """Match a normalized utterance; return checked arguments, or None where it does not match.

        Raises:
            OutOfSteps: It takes more steps than are left.
        """
        for number, slots in enumerate(Match(utterance, steps).readings(self.start)):
            if number == limits.MAX_READINGS:
                return None
            steps.take(self.check_steps)
            try:
                return check_arguments(method, [], slots)
            except CallError:
                continue
        return None


def compile_template(text: str, method: Method) -> Template:
    """Compile a template of a method.

    Raises:
        BadTemplate: If it cannot be parsed, can be said in too many ways, has too few literal words, has a
            slot that is no parameter, or leaves a parameter open that the method needs.
    """
    sentence = parsed(text)
    parts = _parts(sentence.expression)
    if any(isinstance(part, RuleReference) for part in parts):
        raise BadTemplate("{text!r}: rules in angle brackets are not known here", text=text)
    references = [part for part in parts if isinstance(part, ListReference)]
    if len(references) > limits.MAX_SLOTS:
        raise BadTemplate(
            "{text!r} has {slots} slots; {most} are allowed",
            text=text,
            slots=len(references),
            most=limits.MAX_SLOTS,
        )
    if ways(sentence.expression) > limits.MAX_WAYS:
        raise BadTemplate(
            "{text!r} can be said in more than {most:,} ways; write several sentences",
            text=text,
            most=limits.MAX_WAYS,
        )
    if any(isinstance(part, Alternative) and sum(map(_is_empty, part.items)) > 1 for part in parts):
        raise BadTemplate("{text!r} has more than one empty alternative in the same brackets", text=text)
    properties = method.parameters.get("properties", {})
    slots = {reference.slot_name for reference in references}
    if slots != slots_of(text):
        raise BadTemplate("{text!r} has a brace in a slot or in its words", text=text)
    unknown = sorted(slots - set(properties))
    if unknown:
        raise BadTemplate(
            "{text!r}: {name} is no parameter of {method}",
            text=text,
            name=", ".join(unknown),
            method=method.signature,
        )
    missing = [name for name in method.parameters.get("required", ()) if name not in slots]
    if missing:
        raise BadTemplate(
            "{text!r}: {method} needs {missing}, which no slot gives",
            text=text,
            method=method.name,
            missing=", ".join(missing),
        )
    closed = frozenset(name for name in slots if _is_listed(properties[name]))
    if _literal_words(sentence.expression, closed) < MIN_LITERAL_WORDS:
        raise BadTemplate(
            "{text!r}: at least {least} words outside slots and brackets are needed",
            text=text,
            least=MIN_LITERAL_WORDS,
        )
    readers = {each.slot_name: _reader(each, method.parameters) for each in references}
    try:
        check_steps = limits.STEPS_PER_CHECK * branches(method.parameters)
    except ValueError as error:
        raise BadTemplate("{text!r}: {error}", text=text, error=error) from None
    return Template(
        text,
        frozenset(frozenset(map(folded, clause)) for clause in sentence.get_required_clauses({})),
        compile_expression(sentence.expression, readers),
        check_steps,
        _example(sentence.expression).strip(),
    )


def sentence_problems(method: Method) -> list[str]:
    """Return why sentences of a method cannot be used."""
    problems: list[str] = []
    for text in chain.from_iterable(method.sentences.values()):
        try:
            compile_template(text, method)
        except BadTemplate as error:
            problems.append(error.message)
    return problems


def free_sentences(method: Method) -> list[tuple[str, str]]:
    """Return the templates that have a slot for any words, and not only for numbers or listed values.

    Each comes with its language.
    """
    properties = method.parameters.get("properties", {})

    @cache
    def is_closed(slot: str) -> bool:
        return _is_closed(properties.get(slot), method.parameters, 0)

    return [
        (language, text)
        for language, texts in method.sentences.items()
        for text in texts
        if not all(map(is_closed, slots_of(text)))
    ]


def spoken_sentence(text: str, method: Method) -> SpokenSentence:
    """Return a template that was compiled, for speech to text."""
    properties = method.parameters.get("properties", {})
    slots = {slot: _spoken_slot(properties.get(slot), method.parameters) for slot in sorted(slots_of(text))}
    return SpokenSentence(text=text, slots=slots)


def _spoken_slot(schema: Json, root: Mapping[str, Json]) -> SpokenSlot:
    if (values := without_null(schema, root).get("enum")) and _is_closed(schema, root, 0):
        return SpokenSlot(values=short_texts(each for each in values if isinstance(each, str)))
    return SpokenSlot(is_number=bool({"integer", "number"} & kinds_of(schema, root)))


def short_texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(value for value in values if 0 < len(value) <= limits.MAX_SPOKEN)[:MAX_NAMES]


def slots_of(text: str) -> set[str]:
    """Return the slots of a template without parsing it; `compile_template` rejects any other syntax."""
    return {slot.partition(":")[2] or slot for slot in _SLOT.findall(text)}


def _is_closed(schema: Json, root: Mapping[str, Json], depth: int) -> bool:
    schema = resolved(schema, root)
    if depth > limits.MAX_SLOT_NESTING:
        return False
    if "enum" in schema or "const" in schema:
        return True
    if choices := schema.get("anyOf"):
        return len(choices) <= limits.MAX_SLOT_CHOICES and all(
            _is_closed(each, root, depth + 1) for each in choices
        )
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return {"integer", "number", "boolean", "null"}.issuperset(kinds)


def parsed(text: str) -> Sentence:
    if len(text) > limits.MAX_TEMPLATE:
        raise BadTemplate(
            "{text!r}… is longer than {most} characters", text=text[:60], most=limits.MAX_TEMPLATE
        )
    depths = accumulate((char in "([{<") - (char in ")]}>") for char in text)
    if max(depths, default=0) > limits.MAX_BRACKET_DEPTH:
        raise BadTemplate(
            "{text!r} has more than {most} brackets inside each other",
            text=text,
            most=limits.MAX_BRACKET_DEPTH,
        )
    try:
        return parse_sentence(text)
    except (ParseError, HassilError, ValueError, AssertionError):
        raise BadTemplate(_mistake(text), text=text) from None


def _mistake(text: str) -> str:
    """Return which bracket of a template has no other, as the template of a message."""
    opened: list[str] = []
    for char in _ESCAPED.sub("", text):
        if char in _BRACKETS:
            opened.append(char)
        elif char in _BRACKETS.values() and (not opened or _BRACKETS[opened.pop()] != char):
            return f"{{text!r}} has a '{char}' that closes nothing"
    if opened:
        return f"{{text!r}} has a '{opened[-1]}' that is not closed"
    return "{text!r} is not a sentence template"


def _parts(expression: object) -> list[object]:
    """Return an expression and all that is in it."""
    parts = [expression]
    for part in parts:  # grows while it is read
        if isinstance(part, Group):
            parts.extend(part.items)
    return parts


def _is_empty(expression: object) -> bool:
    return all(
        isinstance(part, Group) or (isinstance(part, TextChunk) and not part.text.strip())
        for part in _parts(expression)
    )


def _is_listed(schema: Json) -> bool:
    """Return whether only listed words fit: one of them is as good as a word of the template."""
    values = schema.get("enum") if isinstance(schema, dict) else None
    return bool(values and all(map(_is_word, values)))


def _is_word(value: Json) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _reader(reference: ListReference, root: Mapping[str, Json]) -> ReadSlot:
    """Return what turns the text in a slot into a value; the schema of the parameter checks it later."""
    schema = root["properties"][reference.slot_name]
    values = without_null(schema, root).get("enum")
    if bounds := reference.get_inline_range():
        first, last, step = bounds
        whole = range(first, last + 1, max(step, 1))
        return lambda text: int(text) if _WHOLE.match(text) and int(text) in whole else None
    if values and all(map(_is_word, values)):
        known = _by_spoken(tuple(values))
        return lambda text: known.get(spoken(text))
    if {"integer", "number"} & kinds_of(schema, root):
        return lambda text: _as_json(text) or None
    if without_null(schema, root).get("format") == "duration":
        return lambda text: _as_duration(text) or text or None
    return lambda text: text or None


def _as_duration(text: str) -> str:
    """Write "1 hour and 5 minutes" as ISO 8601 does; empty where it is none."""
    if not (said := _DURATION.fullmatch(text.casefold())) or not any(said.groups()):
        return ""
    return "PT" + "".join(
        f"{number.replace(',', '.')}{unit}"
        for number, unit in zip(said.groups(), "HMS", strict=True)
        if number
    )


@lru_cache(maxsize=100)
def _by_spoken(values: tuple[str, ...]) -> dict[str, str]:
    # One table serves all sentences with the list.
    return {spoken(value): value for value in values}


def _as_json(text: str) -> str:
    """Write a number the way JSON does."""
    number = _NUMBER.match(text)
    return number[1].replace(",", ".") if number else text


def _literal_words(expression: object, closed: frozenset[str]) -> int:
    """Count the words that every way of saying it has.

    Args:
        closed: Slots that hold listed words only; each counts as one.
    """
    match expression:
        case TextChunk():
            return len(expression.text.split())
        case Alternative():
            each = [_literal_words(item, closed) for item in expression.items]
            return 0 if expression.is_optional else min(each, default=0)
        case Group():
            return sum(_literal_words(item, closed) for item in expression.items)
        case ListReference():
            return int(expression.slot_name in closed)
    return 0


def _example(expression: object) -> str:
    match expression:
        case TextChunk():
            return expression.original_text
        case Alternative():
            return "" if expression.is_optional else _example(expression.items[0])
        case Permutation():
            return " ".join(_example(item).strip() for item in expression.items)
        case Group():
            return re.sub(r"\s+", " ", "".join(map(_example, expression.items)))
        case ListReference():
            return f"<{expression.slot_name}>"
    return ""
