"""What the pages say; see `agent_core.texts`."""

import re
from typing import Final

from agent_core.texts import LANGUAGE, SENTENCES, ZONE, Translator, catalogue, choose, languages, text
from contracts.phrases import Phrase

__all__ = [
    "LANGUAGE",
    "SENTENCES",
    "ZONE",
    "Translator",
    "catalogue",
    "choose",
    "for_people",
    "languages",
    "text",
]

_FOR_PROGRAMS: Final = re.compile(
    r"\bstrawberry (?!spoke)[a-z]|GET /api/|^(The|There are no) (field|parameter)s|own token"
)
"""Sentences of a hint that a page does not show: what to type in a terminal or to send."""


def for_people(hint: str) -> str:
    """Return the hint of an error without its sentences for programs and terminals."""
    phrase = Phrase(hint)
    kept = (each for each in SENTENCES.split(phrase.template) if not _FOR_PROGRAMS.search(each))
    values = {
        name: for_people(value) if isinstance(value, Phrase) else value
        for name, value in phrase.values.items()
    }
    return Phrase(" ".join(kept), **values)
