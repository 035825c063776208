"""A call as a question to a person: a declared sentence that says just these arguments, or its labels."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from hassil import Alternative, Group, ListReference, Permutation, TextChunk

from agent_core import limits
from agent_core.schemas.arguments import secret_arguments
from agent_core.search.catalogue import Target
from agent_core.sentences.templates import BadTemplate, parsed, slots_of
from agent_core.skills.labels import Labels
from contracts.devices.registration import Method
from contracts.wire import Json

_GERMAN: Final = "de"
"""Of which there are common labels, also for a skill that has none of its own."""


def questions_of(target: Target, arguments: Mapping[str, Json]) -> dict[str, str]:
    """Return the questions by language, as ``{"en": "Unlock the front door for 5 minutes?"}``.

    A language without such a sentence has its labels, as ``Einschalten (Licht): Helligkeit 30?``; English has
    the summary of the method in place of that, and none has what is secret or too long to be said.
    """
    made = spoken_questions(target.method, arguments)
    if secret_arguments(target.method) & arguments.keys():
        return made
    for language in {_GERMAN, *target.labels} - {"en"} - made.keys():
        label = Labels(target.labels, language)
        said = {name: _labelled(value, label) for name, value in arguments.items() if value is not None}
        words, value = label(target.method.name), target.method.name.removeprefix("set_")
        if language == _GERMAN and value != target.method.name and words == label(value):
            words = f"{words} einstellen"
        given = ", ".join(f"{label(name, of=target.method.name)} {text}" for name, text in said.items())
        question = f"{words} ({label(target.skill)}){given and f': {given}'}?"
        if all(said.values()) and len(question) <= limits.MAX_QUESTION:
            made[language] = question
    return made


def spoken_questions(method: Method, arguments: Mapping[str, Json]) -> dict[str, str]:
    """Return those questions that are a sentence of the method."""
    if secret_arguments(method) & arguments.keys():
        return {}
    said = {name: _said(value) for name, value in arguments.items() if value is not None}
    if not all(said.values()):
        return {}
    made: dict[str, str] = {}
    for language, texts in method.sentences.items():
        for text in texts:
            if slots_of(text) == said.keys() and (question := _question(text, said)):
                made[language] = question
                break
    return made


def labels_of_call(
    declared: Mapping[str, Mapping[str, str]], skill: str, method: str, arguments: Iterable[str]
) -> dict[str, dict[str, str]]:
    """Return those labels of a skill that a person reads who confirms a call."""
    names = {skill, method, *arguments, *(f"{method}.{each}" for each in arguments)}
    found = {
        language: {name: label for name, label in labels.items() if name in names}
        for language, labels in declared.items()
    }
    return {language: labels for language, labels in found.items() if labels}


def _question(text: str, said: Mapping[str, str]) -> str:
    try:
        words = re.sub(r"\s+", " ", _filled(parsed(text).expression, said)).strip()
    except BadTemplate:
        return ""
    return f"{words[:1].upper()}{words[1:]}?" if 0 < len(words) <= limits.MAX_QUESTION else ""


def _filled(expression: object, said: Mapping[str, str]) -> str:
    """Return the text to speak: the first alternative with a value in it, else the first one."""
    match expression:
        case TextChunk():
            return expression.original_text
        case ListReference():
            return said[expression.slot_name]
        case Alternative():
            ways = [_filled(item, said) for item in expression.items]
            with_value = [way for way, item in zip(ways, expression.items, strict=True) if _has_value(item)]
            return next(iter((*with_value, *filter(None, ways))), "")
        case Permutation():
            return " ".join(_filled(item, said).strip() for item in expression.items)
        case Group():
            return "".join(_filled(item, said) for item in expression.items)
    return ""


def _has_value(expression: object) -> bool:
    if isinstance(expression, Group):
        return any(map(_has_value, expression.items))
    return isinstance(expression, ListReference)


def _labelled(value: Json, label: Labels) -> str:
    if isinstance(value, bool):
        return label.value("on" if value else "off")
    each = [_said(one) for one in value] if isinstance(value, list) else [_said(value)]
    return ", ".join(each) if all(each) else ""


def _said(value: Json) -> str:
    """Return a value as it is said; empty where it cannot be."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= limits.MAX_SPOKEN and text.isprintable() else ""
