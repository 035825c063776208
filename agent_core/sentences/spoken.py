"""Declared sentences as they can be said, for speech to text."""

from collections.abc import Iterable, Mapping
from typing import Final

from agent_core.sentences.templates import Lists, slot_schema
from agent_core.skills.skill import VALUES
from contracts.chat.vocabulary import MAX_NAMES, MAX_SENTENCES, SpokenSentence, SpokenSlot, Vocabulary
from contracts.devices.registration import Method
from contracts.wire import Json

_MAX_VALUE: Final = 100
"""Characters of a value that a person says."""


def vocabulary(
    language: str, sentences: Iterable[tuple[str, Method]], *, names: Iterable[str], lists: Lists
) -> Vocabulary:
    """Return what can be said.

    Args:
        sentences: Templates, each with its method.
        names: Of devices and places; those of ``lists`` are added.
        lists: See `agent_core.sentences.templates.Lists`.
    """
    said = {
        text: SpokenSentence(
            text=text, slots={name: _slot(schema, lists) for name, schema in slot_schema(text, method)}
        )
        for text, method in sentences
    }
    every = dict.fromkeys([*names, *(name for values in lists.values() for name in values)])
    return Vocabulary(
        language=language,
        sentences=tuple(said[text] for text in sorted(said))[:MAX_SENTENCES],
        names=tuple(name for name in every if 0 < len(name) <= _MAX_VALUE)[:MAX_NAMES],
    )


def _slot(schema: Json, lists: Mapping[str, Mapping[str, str]]) -> SpokenSlot:
    if not isinstance(schema, dict):
        return SpokenSlot()
    if isinstance(name := schema.get(VALUES), str):
        return SpokenSlot(values=_short(lists.get(name, {})))
    if values := schema.get("enum"):
        return SpokenSlot(values=_short(each for each in values if isinstance(each, str)))
    kinds = [each.get("type") for each in (schema, *schema.get("anyOf", ())) if isinstance(each, dict)]
    return SpokenSlot(is_number=bool({"integer", "number"} & set(map(str, kinds))))


def _short(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(value for value in values if 0 < len(value) <= _MAX_VALUE)[:MAX_NAMES]
