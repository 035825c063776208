"""Words of names, texts and questions, as the search sees them."""

import re
from collections.abc import Iterable
from typing import Final

_PARTS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+")
_WORDS: Final = re.compile(r"\w+")
_TEMPLATE: Final = re.compile(r"[\[\](){}<>|:]")
_MAX_WORDS: Final = 16
"""A question has fewer; a pasted page must not become a query of a thousand terms."""

_SAYING_NOTHING: Final = """
    a an and any are as at be by can could do does for from give has have how i if in into is it its let
    like me my need of on or our out please should skill skills so some tell that the their then there
    these they this to us want was we what when where which who will with would you your
    aber alle als am an auf aus bei bin bis bitte da das dass dem den der des die du ein eine einem einen
    einer er es für hat ich ihm ihn ihr im ist kann mal man mein meine mich mir mit nach nicht noch nun
    ob oder sich sie sind so um und uns vom von vor wann was wer wie wir wird wo zu zum zur
"""

STOP_WORDS: Final = frozenset(_SAYING_NOTHING.split())
"""Words that say nothing about what is wanted, in English and German."""


def name_words(name: str) -> list[str]:
    """Split a name where case or an underscore does: ``MediaSkill`` gives ``media``, ``skill``."""
    return [part.lower() for part in _PARTS.findall(name)]


def sentence_words(templates: Iterable[str]) -> str:
    """Return the words of sentence templates, without their signs."""
    return _TEMPLATE.sub(" ", " ".join(templates))


def query_words(query: str) -> list[str]:
    """Return the words that a question is about, without repetition; of a name also its parts.

    Stop-words are left out, unless the question has no others.
    """
    words = [part for word in _WORDS.findall(query) for part in (word.lower(), *name_words(word))]
    telling = [word for word in words if word not in STOP_WORDS]
    return list(dict.fromkeys(telling or words))[:_MAX_WORDS]


def trigrams(words: Iterable[str]) -> list[str]:
    """Return every run of three letters within the words, without repetition."""
    return list(dict.fromkeys(word[i : i + 3] for word in words for i in range(len(word) - 2)))
