"""One sentence template of a method: compiled, checked against the schema, and matched."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hassil import (
    Alternative,
    Group,
    Intents,
    ListReference,
    Permutation,
    RuleReference,
    Sentence,
    TextChunk,
    TextSlotList,
    WildcardSlotList,
    parse_sentence,
    recognize_all,
)
from hassil.errors import HassilError
from hassil.parser import ParseError

from agent_core.skills.arguments import check_arguments
from contracts.errors import CallError, StrawberryError
from contracts.registration import Method
from contracts.wire import Json

MIN_LITERAL_WORDS: Final = 2
"""Words that must be said as they stand; with fewer, everyday speech would trigger calls."""

_MAX_TEMPLATE: Final = 500
_MAX_READINGS: Final = 20
"""Ways of dividing an utterance among free slots that are tried before giving up."""

_MAX_NESTED: Final = 4
_SLOT: Final = re.compile(r"\{([^{}]*)\}")
_NUMBER: Final = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*(?:%|°\s*[CFcf]?)?\Z")


class BadTemplate(StrawberryError):
    """A sentence template that cannot be used; the message says why."""


@dataclass(frozen=True)
class Template:
    """A compiled template.

    Attributes:
        text: As the author wrote it.
        clauses: What an utterance must contain: of each set, at least one.
        lists: Slot lists by name, for hassil.
        example: How a person may say it, with slots in angle brackets.
    """

    text: str
    clauses: frozenset[frozenset[str]]
    intents: Intents
    lists: dict[str, Any]
    example: str

    def possible(self, utterance: str) -> bool:
        """Whether a case-folded utterance has all the words that the template needs."""
        return all(any(word in utterance for word in clause) for clause in self.clauses)

    def arguments(self, utterance: str, method: Method) -> dict[str, Json] | None:
        """Match an utterance; return checked arguments, or None where it does not match."""
        for number, slots in enumerate(self._readings(utterance)):
            if number == _MAX_READINGS:
                return None
            try:
                return check_arguments(method, [], _typed(slots, method))
            except CallError:
                continue
        return None

    def _readings(self, utterance: str) -> Iterator[dict[str, Json]]:
        for result in recognize_all(utterance, self.intents, slot_lists=self.lists):
            yield {
                name: entity.value.strip() if isinstance(entity.value, str) else entity.value
                for name, entity in result.entities.items()
            }


def compile_template(text: str, method: Method) -> Template:
    """Compile a template of a method.

    Raises:
        BadTemplate: If it cannot be parsed, has too few literal words, has a slot that is no
            parameter, or leaves a parameter open that the method needs.
    """
    if len(text) > _MAX_TEMPLATE:
        raise BadTemplate(f"{text[:60]!r}… is longer than {_MAX_TEMPLATE} characters")
    sentence = _parsed(text)
    references = list(sentence.expression.list_references()) if isinstance(sentence.expression, Group) else []
    properties = method.parameters.get("properties", {})
    slots = {reference.slot_name for reference in references}
    unknown = sorted(slots - set(properties))
    if unknown:
        raise BadTemplate(f"{text!r}: {', '.join(unknown)} is no parameter of {method.signature}")
    missing = [name for name in method.parameters.get("required", ()) if name not in slots]
    if missing:
        raise BadTemplate(f"{text!r}: {method.name} needs {', '.join(missing)}, which no slot gives")
    if _literal_words(sentence.expression) < MIN_LITERAL_WORDS:
        raise BadTemplate(
            f"{text!r}: at least {MIN_LITERAL_WORDS} words outside slots and brackets are needed"
        )
    lists = {
        reference.list_name: _slot_list(reference.list_name, properties[reference.slot_name])
        for reference in references
        if not reference.is_inline_range
    }
    clauses = sentence.get_required_clauses({})
    return Template(text, clauses, _intents(text), lists, _example(sentence.expression).strip())


def has_free_text(text: str, method: Method) -> bool:
    """Return whether a template has a slot for any words, and not only for numbers or listed values."""
    properties = method.parameters.get("properties", {})
    slots = (slot.partition(":")[2] or slot for slot in _SLOT.findall(text))
    return not all(_is_closed(properties.get(slot), method.parameters, 0) for slot in slots)


def _is_closed(schema: Json, root: dict[str, Json], depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _MAX_NESTED:
        return False
    if "enum" in schema or "const" in schema:
        return True
    if isinstance(reference := schema.get("$ref"), str):
        definition = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        return _is_closed(definition, root, depth + 1)
    if choices := schema.get("anyOf"):
        return all(_is_closed(choice, root, depth + 1) for choice in choices)
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return {"integer", "number", "boolean", "null"}.issuperset(kinds)


def _parsed(text: str) -> Sentence:
    try:
        sentence = parse_sentence(text)
    except (ParseError, HassilError, ValueError, AssertionError, RecursionError) as error:
        raise BadTemplate(f"{text!r} cannot be read: {error}") from None
    if any(isinstance(part, RuleReference) for part in _parts(sentence.expression)):
        raise BadTemplate(f"{text!r}: rules in angle brackets are not known here")
    return sentence


def _intents(text: str) -> Intents:
    return Intents.from_dict({"language": "en", "intents": {"it": {"data": [{"sentences": [text]}]}}})


def _parts(expression: object) -> Iterator[object]:
    yield expression
    if isinstance(expression, Group):
        for item in expression.items:
            yield from _parts(item)


def _slot_list(name: str, schema: Json) -> WildcardSlotList | TextSlotList:
    values = schema.get("enum") if isinstance(schema, dict) else None
    if values and all(isinstance(value, str) and value.strip() for value in values):
        return TextSlotList.from_tuples([(value, value) for value in values], allow_template=False, name=name)
    return WildcardSlotList(name)


def _typed(slots: dict[str, Json], method: Method) -> dict[str, Json]:
    """Write numbers the way JSON does; the schema decides whether they fit."""
    properties = method.parameters.get("properties", {})
    typed: dict[str, Json] = {}
    for name, value in slots.items():
        number = _NUMBER.match(value) if isinstance(value, str) and _is_number(properties[name]) else None
        typed[name] = number[1].replace(",", ".") if number else value
    return typed


def _is_number(schema: Json) -> bool:
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return bool({"integer", "number"} & set(kinds)) or any(map(_is_number, schema.get("anyOf", ())))


def _literal_words(expression: object) -> int:
    """Count the words that every way of saying it has."""
    match expression:
        case TextChunk():
            return len(expression.text.split())
        case Alternative():
            return 0 if expression.is_optional else min(map(_literal_words, expression.items), default=0)
        case Group():
            return sum(map(_literal_words, expression.items))
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
