"""Words of names, texts and questions, as the search sees them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agent_core import limits

_PARTS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+")
_WORDS: Final = re.compile(r"\w+")
_TEMPLATE: Final = re.compile(r"[\[\](){}<>|:]")
_SHORT: Final = 3
"""Letters of a word whose final s is its own: ``gas``, ``bus``."""

_STOP_LIST: Final = """
    a am an and any are as at be been but by can could d did do does doesn don for from give had has have he
    her him his how i if in into is isn it its let like ll m make me my need not of on or our out please re s
    she should skill skills so some t tell than that the their them then there these they this those to us ve
    want was we were what when where which who whom whose why will with won would you your
    aber alle als am an auf aus bei bin bis bitte da das dass dem den der des die du ein eine einem einen
    einer er es für hat ich ihm ihn ihr im ist kann mal man mein meine mich mir mit nach nicht noch nun
    ob oder sich sie sind so um und uns vom von vor wann was wer wie wir wird wo zu zum zur
"""

STOP_WORDS: Final = frozenset(_STOP_LIST.split())
"""Words that say nothing about what is wanted, in English and German."""


@dataclass(frozen=True)
class Term:
    """A word of a question.

    Attributes:
        missed: How much it counts against all methods where none has it, 0 to 1.
    """

    word: str
    missed: float = 1.0


def name_words(name: str) -> list[str]:
    """Split a name where case or an underscore does: ``MediaSkill`` gives ``media``, ``skill``."""
    return [part.lower() for part in _PARTS.findall(name)]


def sentence_words(templates: Iterable[str]) -> str:
    return _TEMPLATE.sub(" ", " ".join(templates))


def query_words(query: str) -> list[str]:
    """Return the words that a question is about, without repetition; of a name also its parts.

    Stop-words are left out, unless the question has no others.
    """
    words = [part for word in _WORDS.findall(query) for part in (word.lower(), *name_words(word))]
    telling = [word for word in words if word not in STOP_WORDS]
    return list(dict.fromkeys(telling or words))[: limits.MAX_QUERY_WORDS]


def query_terms(query: str) -> list[Term]:
    """Return the words that a question is about."""
    values = set(map(str.lower, _values(query)))
    return [Term(word, limits.VALUE_WEIGHT if word in values else 1.0) for word in query_words(query)]


def _values(query: str) -> Iterable[str]:
    """Find the words that look like values: numbers, and names within a sentence."""
    for found in _WORDS.finditer(query):
        word, before = found[0], query[: found.start()].rstrip()
        if word[0].isdigit() or (word[0].isupper() and before and before[-1] not in ".!?:"):
            yield word


def singular(word: str) -> str:
    return word[:-1] if len(word) > _SHORT and word.endswith("s") and not word.endswith("ss") else word


def singular_words(text: str) -> frozenset[str]:
    return frozenset(map(singular, (*query_words(text), *name_words(text))))


naming_words: Final = lru_cache(maxsize=16_384)(singular_words)
"""The same for names of the home, which are kept; what a person says is another text each time."""


def trigrams(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(word[i : i + 3] for word in words for i in range(len(word) - 2)))
