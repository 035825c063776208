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
    her him his how i if in into is isn it its let like ll m me my need not of on or our out please re s she
    should skill skills so some t tell than that the their them then there these they this those to us ve
    want was we were what when where which who whom whose why will with won would you your
    aber alle als am an auf aus bei bin bis bitte da das dass dem den der des die du ein eine einem einen
    einer er es für hat ich ihm ihn ihr im ist kann mal man mein meine mich mir mit nach nicht noch nun
    ob oder sich sie sind so um und uns vom von vor wann was wer wie wir wird wo zu zum zur
"""

STOP_WORDS: Final = frozenset(_STOP_LIST.split())
"""Words that say nothing about what is wanted, in English and German."""

_EVERYDAY_LIST: Final = """
    able about actually after again ago all almost already also always another anybody anyone anything around
    available away back bad because become before being believe best better between big bit both bring came
    cannot certain come comes couple current currently day days detailed details different difficult doing
    done down during each early easily easy either else enough especially even ever every everyone everything
    exactly example few first five following four full further general getting go goes going gone good got
    great guess half happen happened happening hard heard hello help helpful hence here hey hi hope hour
    hours however important include including information instead interested interesting isn just keep kind
    know last late lately later least left less life little ll long look looking looks lot lots love made main
    make makes making many matter may maybe me mean might mine minute minutes moment monday month months more
    morning most much must myself name near necessary never new next nice night no nobody none nothing now
    off often ok okay old once one only onto other others over own particular people perhaps person piece
    planning point possible possibly pretty probably provide put quick quickly quite rather ready real really
    recent recently regarding related right said same saw say says see seem seems seen several shall show
    since single situation six someone something sometimes somewhere soon sort special specific start started
    still stuff such suddenly suggest suitable sunday sure take taking talk ten thank thanks that thing things
    think thinking though three through time times today together told tomorrow tonight too took top topic
    tried try trying tuesday two type under understand until up upcoming update upon use used useful using
    usually various very via wanted wants way ways week weekend weeks well went whatever whether while whole
    within without wonder wondering work working world worth wrong year years yes yesterday yet
    dann doch etwas euch ganz gar gerade gern gerne gibt habe haben heute hier immer jetzt keine kein machen
    mach mache mehr morgen muss nur schon sehr sein soll viel vielleicht warum weil wenn wieder will
"""

_EVERYDAY: Final = frozenset(_EVERYDAY_LIST.split()) - STOP_WORDS
"""Words that are in many questions, whatever they are about: rare in an index, and yet telling little."""


@dataclass(frozen=True)
class Term:
    """A word of a question.

    Attributes:
        weight: How much it tells of what is wanted, 0 to 1.
        missed: How much it counts against all methods where none has it, 0 to 1.
    """

    word: str
    weight: float = 1.0
    missed: float = 1.0

    @property
    def is_everyday(self) -> bool:
        """Return whether it may mean anything, so that synonyms of it mislead."""
        return self.weight < 1


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
    return list(dict.fromkeys(telling or words))[: limits.MAX_QUERY_WORDS]


def query_terms(query: str) -> list[Term]:
    """Return the words that a question is about, weighted by how much they tell."""
    words = query_words(query)
    values = set(map(str.lower, _values(query)))
    vague = {word for word in words if word in _EVERYDAY or word[0].isdigit()}
    if len(vague) == len(words):
        vague = set()  # a question that has no others is about these
    return [
        Term(
            word,
            weight=limits.EVERYDAY_WEIGHT if word in vague else 1.0,
            missed=limits.VALUE_WEIGHT if word in values else 1.0,
        )
        for word in words
    ]


def _values(query: str) -> Iterable[str]:
    """Find the words that look like values: numbers, and names within a sentence."""
    for found in _WORDS.finditer(query):
        word, before = found[0], query[: found.start()].rstrip()
        if word[0].isdigit() or (word[0].isupper() and before and before[-1] not in ".!?:"):
            yield word


@lru_cache(maxsize=16_384)
def naming_words(name: str) -> frozenset[str]:
    """Return the words of a name as they are compared with a question's: in lower case and singular."""
    return frozenset(
        word[:-1] if len(word) > _SHORT and word.endswith("s") and not word.endswith("ss") else word
        for word in (*query_words(name), *name_words(name))
    )


def trigrams(words: Iterable[str]) -> list[str]:
    """Return every run of three letters within the words, without repetition."""
    return list(dict.fromkeys(word[i : i + 3] for word in words for i in range(len(word) - 2)))
