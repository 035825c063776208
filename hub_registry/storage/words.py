"""Search for words in what was said, as each kind of database does it; its index is part of the schema."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlmodel import Session

from hub_registry.storage.schema import PLAIN


@dataclass(frozen=True)
class WordSearch:
    """Parts of a query of the table ``turn``, with the words as the parameter ``words``.

    Attributes:
        source: The table, with its index.
        matches: The condition.
        rank: How well a turn matches, the best one lowest, all of them below 0.
        question: The part of the question that matches, and some of it where nothing does; likewise
            ``answer``.
    """

    source: str
    matches: str
    rank: str
    question: str
    answer: str
    _quoted: str
    _begun: str
    _or: str
    _and: str

    def any_of(self, words: Iterable[str]) -> str:
        return self._or.join(self._quoted.format(word) for word in words)

    def all_begun(self, words: Iterable[str]) -> str:
        """Return the value of the parameter for turns with all of these words, or their beginnings.

        Args:
            words: Of letters and digits alone.
        """
        return self._and.join(self._begun.format(word) for word in words)


_SQLITE: Final = WordSearch(
    source="turn_words JOIN turn ON turn.rowid = turn_words.rowid",
    matches="turn_words MATCH :words",
    rank="rank",
    question="snippet(turn_words, 0, '', '', '…', 40)",
    answer="coalesce(snippet(turn_words, 1, '', '', '…', 60), '')",
    _quoted='"{}"',
    _begun='"{}"*',
    _or=" OR ",
    _and=" ",
)
_QUERY: Final = f"to_tsquery('english', {PLAIN.format('CAST(:words AS text)')})"
_PART: Final = (
    "ts_headline('english', {}, " + _QUERY + ', \'StartSel="", StopSel="", MaxWords={}, MinWords=15\')'
)
_POSTGRESQL: Final = WordSearch(
    source="turn",
    matches=f"turn.words @@ {_QUERY}",
    rank=f"-ts_rank(turn.words, {_QUERY})",
    question=_PART.format("turn.question", 40),
    answer=_PART.format("coalesce(turn.answer, '')", 60),
    _quoted="'{}'",
    _begun="'{}':*",
    _or=" | ",
    _and=" & ",
)


def word_search(session: Session) -> WordSearch:
    return _SQLITE if session.get_bind().dialect.name == "sqlite" else _POSTGRESQL
